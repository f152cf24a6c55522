//! What the annotations of a `MachineInventory` say: approval, allocation, claim, wanted agent.

use kube::ResourceExt as _;
use strum::{EnumString, IntoStaticStr};

use super::MachineInventory;
use crate::names::{annotation, kind};

/// `baremetal.cluster.io/approval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, EnumString)]
pub enum Approval {
    /// Its token admitted the host; the same as no annotation.
    #[default]
    Automatic,
    /// The host waits for an operator.
    Pending,
    /// An operator admitted the host.
    Approved,
    /// An operator shut the host out.
    Revoked,
}

/// `baremetal.alauda.io/allocation-state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, EnumString)]
pub enum AllocationState {
    /// No machine claims the host.
    Available,
    /// Claimed; no plan, or the plan was applied.
    Allocated,
    /// A clean plan is in flight.
    Preparing,
    /// A reprovision plan is in flight.
    Reprovisioning,
    /// A plan failed, or the owner is missing.
    Unavailable,
}

/// The owner annotations: which machine holds an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Kind of the infrastructure machine.
    pub kind: String,
    /// Name of the infrastructure machine.
    pub baremetal_machine: String,
    /// UID of the infrastructure machine, where it is known.
    pub uid: Option<String>,
    /// Name of the Machine.
    pub machine: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// Name of the pool.
    pub pool: String,
    /// Generation of the newest plan when the claim was made.
    pub generation: u64,
}

impl MachineInventory {
    /// The version of the agent that an operator asks for.
    pub fn wanted_agent(&self) -> Option<&str> {
        let wanted = self.annotations().get(annotation::AGENT_VERSION)?;
        Some(wanted.as_str()).filter(|wanted| !wanted.is_empty())
    }

    /// The claim, when the owner annotations hold one.
    pub fn claim(&self) -> Option<Claim> {
        let text = |key| self.annotations().get(key).cloned().unwrap_or_default();
        let baremetal_machine = text(annotation::OWNER_BAREMETAL_MACHINE);
        let owner_kind = self.annotations().get(annotation::OWNER_KIND).cloned();
        (!baremetal_machine.is_empty()).then(|| Claim {
            kind: owner_kind.unwrap_or_else(|| kind::BAREMETAL_MACHINE.to_owned()),
            baremetal_machine,
            uid: self.annotations().get(annotation::OWNER_UID).cloned(),
            machine: text(annotation::OWNER_MACHINE),
            cluster: text(annotation::OWNER_CLUSTER),
            pool: text(annotation::POOL),
            generation: text(annotation::CLAIM_GENERATION).parse().unwrap_or(0),
        })
    }

    /// The allocation state; absent and unknown text count as `Available`.
    pub fn allocation_state(&self) -> AllocationState {
        self.annotations()
            .get(annotation::ALLOCATION_STATE)
            .and_then(|text| text.parse().ok())
            .unwrap_or(AllocationState::Available)
    }

    /// Whether the host is admitted; unknown text counts as `Pending`.
    pub fn approval(&self) -> Approval {
        let text = self.annotations().get(annotation::APPROVAL);
        text.map_or(Approval::Automatic, |text| text.parse().unwrap_or(Approval::Pending))
    }
}
