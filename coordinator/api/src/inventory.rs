//! `MachineInventory`: the long-lived record of one host.

mod annotations;
mod host;
mod key_class;
mod load_balancer;
mod plan;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::network::{NetworkTemplate, ObservedNetwork};

pub use annotations::{AllocationState, Approval, Claim};
pub use host::{
    AgentUpdateState, AgentUpdateStatus, CarriedNode, CarriedPlan, CarriedStatus, CertifiedKey,
    CoordinatorSettingsState, CoordinatorStatus, HostStatus, InstallState, InstallStatus, LiveTpm,
    LostJournal, SessionStatus,
};
pub use key_class::KeyClass;
pub use load_balancer::{LoadBalancerDuty, LoadBalancerReport, LoadBalancerStatus};
pub use plan::{PlanState, PlanStatus, PlanType, StepStatus};

/// The long-lived record of one host: its identity, its network, its plan. The
/// coordinator never deletes it.
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
    // `attr` takes no `serde`. Objects of the elemental operator may have no spec.
    attr = "cfg_attr(all(), serde(default))",
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
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        priority = 1
    ),
    printcolumn(name = "Agent", type_ = "string", json_path = ".status.host.agentVersion", priority = 1),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.host.image", priority = 1),
    printcolumn(
        name = "Identity",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='IdentityVerified')].reason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MachineInventorySpec {
    /// SHA-256 of the public part of the host's identity key in PKIX DER.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm_hash: Option<String>,
    /// The field has no effect and is named by the condition `FieldsIgnored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_hash: Option<String>,
    /// An explicit network, which takes precedence over `observedNetwork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkTemplate>,
    /// The network at registration, which every reprovision replays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_network: Option<ObservedNetwork>,
    /// The field has no effect and is named by `FieldsIgnored`, because no address is
    /// claimed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub ip_address_claims: BTreeMap<String, Value>,
    /// Pools of `config.network.ipAddresses` of the registration. The field has no effect
    /// and is named by `FieldsIgnored`, because no address is claimed from them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub ip_address_pools: BTreeMap<String, Value>,
    /// Managed data disks, which are not supported. No machine gets a host with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub storage: Option<Value>,
}

/// Rule of the definition that rejects a change of the identity.
pub(crate) const IDENTITY_RULE: &str = "!has(oldSelf.spec) || !has(oldSelf.spec.tpmHash) || (has(self.spec) && has(self.spec.tpmHash) && (self.spec.tpmHash == oldSelf.spec.tpmHash || (has(oldSelf.status) && has(oldSelf.status.host) && has(oldSelf.status.host.install) && oldSelf.status.host.install.state in ['Registered', 'Waiting', 'Installing', 'Failed'] && !has(oldSelf.status.host.carried))))";
/// Message of [`IDENTITY_RULE`].
pub(crate) const IDENTITY_MESSAGE: &str = "tpmHash is the identity of the host and never changes once it is installed: delete the MachineInventory and register the host again";

/// State of the host as the coordinator knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineInventoryStatus {
    /// Ready, Paused, Approved, Installed, `IdentityVerified`, `NetworkDrift`, `NetworkIncomplete`,
    /// `LabelsStale`, `FieldsIgnored`, and one for each request or failure that is shown while it lasts.
    /// Conditions are projections of the other fields and never inputs of a decision.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The newest plan and its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// Ours: `id` of the last plan of an operator, so that it runs only once even if plans
    /// of machines followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_custom_plan: Option<String>,
    /// Ours: reports of the host about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStatus>,
    /// Ours: the newest report of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_network: Option<ObservedNetwork>,
    /// Written by another operator and kept unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub observed_storage: Option<Value>,
    /// Written by another operator and kept unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub storage: Option<Value>,
}

impl MachineInventory {
    /// The conditions; empty before the first status.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    /// The plan of the status.
    pub fn plan(&self) -> Option<&PlanStatus> {
        self.status.as_ref().and_then(|status| status.plan.as_ref())
    }

    /// The host's journal, if the host states that it cannot read it.
    pub fn lost_journal(&self) -> Option<&LostJournal> {
        self.status.as_ref()?.host.as_ref()?.carried.as_ref()?.lost_journal.as_ref()
    }
}
