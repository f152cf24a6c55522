//! Annotations of a `MachineInventory`: approval, allocation, claim, wanted agent.

use kube::ResourceExt as _;
use strum::{EnumString, IntoStaticStr};

use super::MachineInventory;
use crate::names::{annotation, kind};

/// `baremetal.cluster.io/approval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, EnumString)]
pub enum Approval {
    /// The token admitted the host; the same as no annotation.
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
    /// A machine claims the host, and no plan is in flight.
    Allocated,
    /// A clean plan is in flight.
    Preparing,
    /// A reprovision plan is in flight.
    Reprovisioning,
    /// A plan failed, or the owner is missing.
    Unavailable,
}

/// The owner annotations, which name the machine that holds an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Kind of the infrastructure machine.
    pub kind: String,
    /// Name of the infrastructure machine.
    pub baremetal_machine: String,
    /// UID of the infrastructure machine, if known.
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

    /// Checksum of the journal that the host states to be unreadable, if an operator has it removed.
    pub fn forgotten_journal(&self) -> Option<&str> {
        let named = self.annotations().get(annotation::FORGET_JOURNAL)?;
        self.lost_journal().filter(|lost| lost.checksum == *named).map(|lost| lost.checksum.as_str())
    }

    /// The claim, if the owner annotations name a machine.
    pub fn claim(&self) -> Option<Claim> {
        let text = |key| self.annotations().get(key).map_or("", String::as_str);
        let baremetal_machine = text(annotation::OWNER_BAREMETAL_MACHINE);
        let owner_kind = self.annotations().get(annotation::OWNER_KIND);
        (!baremetal_machine.is_empty()).then(|| Claim {
            kind: owner_kind.map_or(kind::BAREMETAL_MACHINE, String::as_str).to_owned(),
            baremetal_machine: baremetal_machine.to_owned(),
            uid: self.annotations().get(annotation::OWNER_UID).cloned(),
            machine: text(annotation::OWNER_MACHINE).to_owned(),
            cluster: text(annotation::OWNER_CLUSTER).to_owned(),
            pool: text(annotation::POOL).to_owned(),
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

    /// The approval of the host; unknown text counts as `Pending`.
    pub fn approval(&self) -> Approval {
        let text = self.annotations().get(annotation::APPROVAL);
        text.map_or(Approval::Automatic, |text| text.parse().unwrap_or(Approval::Pending))
    }
}
