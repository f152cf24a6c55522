//! `MachineInventory`: the long-lived record of one host.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{EnumString, IntoStaticStr};

use crate::names::annotation;
use crate::network::{NetworkTemplate, ObservedNetwork};

/// The long-lived record of one host: who it is, what network it has, which
/// plan it works on. Never deleted by the coordinator.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "elemental.cattle.io",
    version = "v1beta1",
    kind = "MachineInventory",
    plural = "machineinventories",
    namespaced,
    status = "MachineInventoryStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".metadata.annotations.baremetal\\.alauda\\.io/allocation-state"
    ),
    printcolumn(
        name = "Owner",
        type_ = "string",
        json_path = ".metadata.annotations.baremetal\\.alauda\\.io/owner-machine"
    ),
    printcolumn(name = "Plan", type_ = "string", json_path = ".status.plan.state"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.host.image"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.tpmHash) || (has(self.tpmHash) && self.tpmHash == oldSelf.tpmHash)").message("tpmHash is the identity of the host and never changes: delete the MachineInventory and register the host again"))]
pub struct MachineInventorySpec {
    /// SHA-256 of the public part of the host's identity key in PKIX DER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm_hash: Option<String>,
    /// Accepted and ignored: an identity that is only a name is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_hash: Option<String>,
    /// An explicit network; wins over `observedNetwork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkTemplate>,
    /// The network at registration; replayed by every reprovision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_network: Option<ObservedNetwork>,
    /// Accepted and ignored: address pools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub ip_address_claims: BTreeMap<String, Value>,
    /// Pools of the registration's `config.network.ipAddresses`; otherwise
    /// ignored, nothing is claimed from them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub ip_address_pools: BTreeMap<String, Value>,
    /// Accepted and ignored: managed data disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub storage: Option<Value>,
}

/// What the coordinator knows of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineInventoryStatus {
    /// Ready, Installed, `NetworkDrift`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The newest plan and what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// Ours: the system as it was last reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStatus>,
    /// Ours: the network as it was last reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_network: Option<ObservedNetwork>,
}

/// The newest plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanStatus {
    /// The one Secret that holds plans for this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ObjectReference>,
    /// SHA-256 of the raw bytes of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Absent while the host works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PlanState>,
    /// Ours: name of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Ours: number of the plan; announces it to the streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Ours: UID of the `BaremetalMachine` that the plan is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Ours: why it failed, and the next action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
pub enum PlanState {
    /// Proven done.
    Applied,
    /// Not done, and not tried again by itself.
    Failed,
}

/// The system as it was last reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// IMAGE of `/etc/os-release`.
    pub image: String,
    /// active, passive, recovery or live.
    pub boot_mode: String,
    /// Name of the host as it runs.
    pub hostname: String,
    /// Global addresses.
    pub addresses: Vec<String>,
    /// Version of the agent.
    pub agent_version: String,
    /// Newest plan generation in the host's journal: a coordinator restored
    /// from an old backup continues from here and never goes back.
    pub generation: i64,
}

/// `baremetal.alauda.io/allocation-state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, EnumString)]
pub enum AllocationState {
    /// Free.
    Available,
    /// Claimed, no plan yet.
    Allocated,
    /// A clean plan runs.
    Preparing,
    /// A reprovision plan runs, or ran.
    Reprovisioning,
    /// A plan failed; a person looks.
    Unavailable,
}

/// Who holds an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the `BaremetalMachine`.
    pub baremetal_machine: String,
    /// UID of the `BaremetalMachine`.
    pub uid: String,
    /// Name of the Machine.
    pub machine: String,
    /// Name of the Cluster.
    pub cluster: String,
    /// Name of the pool.
    pub pool: String,
}

impl MachineInventory {
    /// The claim, when the owner annotations hold one.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let text = |key| self.annotations().get(key).cloned().unwrap_or_default();
        let baremetal_machine = text(annotation::OWNER_BAREMETAL_MACHINE);
        (!baremetal_machine.is_empty()).then(|| Claim {
            baremetal_machine,
            uid: text(annotation::OWNER_UID),
            machine: text(annotation::OWNER_MACHINE),
            cluster: text(annotation::OWNER_CLUSTER),
            pool: text(annotation::POOL),
        })
    }

    /// The allocation state; absent and unknown text count as `Available`,
    /// as people who write it by hand expect.
    #[must_use]
    pub fn allocation_state(&self) -> AllocationState {
        self.annotations()
            .get(annotation::ALLOCATION_STATE)
            .and_then(|text| text.parse().ok())
            .unwrap_or(AllocationState::Available)
    }

    /// The conditions, empty before the first status.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    /// The plan of the status.
    #[must_use]
    pub fn plan(&self) -> Option<&PlanStatus> {
        self.status.as_ref().and_then(|status| status.plan.as_ref())
    }
}
