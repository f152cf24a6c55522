//! `MachineInventory`: the long-lived record of one host.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{EnumString, IntoStaticStr};

use crate::hardware::HardwareStatus;
use crate::names::annotation;
use crate::network::{NetworkTemplate, ObservedNetwork};

/// The long-lived record of one host: its identity, its network, its plan.
/// Never deleted by the coordinator.
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
    /// Accepted for compatibility, not used.
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
    /// Managed data disks: not supported. A host with them is given to no machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub storage: Option<Value>,
}

/// Rule of the definition that keeps an identity from being changed.
pub(crate) const IDENTITY_RULE: &str = "!has(oldSelf.spec) || !has(oldSelf.spec.tpmHash) || (has(self.spec) && has(self.spec.tpmHash) && (self.spec.tpmHash == oldSelf.spec.tpmHash || (has(oldSelf.status) && has(oldSelf.status.host) && has(oldSelf.status.host.install) && oldSelf.status.host.install.state in ['Registered', 'Waiting', 'Installing', 'Failed'] && !has(oldSelf.status.host.carried))))";
/// What it says where it is broken.
pub(crate) const IDENTITY_MESSAGE: &str = "tpmHash is the identity of the host and never changes once it is installed: delete the MachineInventory and register the host again";

/// What the coordinator knows of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineInventoryStatus {
    /// Ready, Approved, Installed, `IdentityVerified`, `NetworkDrift`. Projected from the other fields; never read.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The newest plan and its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,
    /// Ours: what the host reported about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStatus>,
    /// Ours: the network that was reported last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_network: Option<ObservedNetwork>,
    /// Kept as it is: written by another operator, never by this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub observed_storage: Option<Value>,
    /// Kept as it is: written by another operator, never by this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub storage: Option<Value>,
}

/// The newest plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanStatus {
    /// The Secret that holds the plan record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ObjectReference>,
    /// SHA-256 of the bytes of the plan record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Absent while the plan is in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PlanState>,
    /// Ours: name of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Ours: `clean` or `reprovision`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<PlanType>,
    /// Ours: number of the plan; announces it to the streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Ours: why the plan failed or cannot be sent; a condition reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ours: cause and next action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Ours: the step that runs, at most one update a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepStatus>,
    /// Ours: when the plan was announced to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced: Option<Time>,
    /// Ours: when the host reported the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// The step of a plan that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StepStatus {
    /// Name of the step.
    pub name: String,
    /// Counted from one.
    pub attempt: u32,
    /// Why the attempt before failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}

/// What a plan is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, IntoStaticStr, EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PlanType {
    /// Removes the node from the host.
    Clean,
    /// Makes the host a node.
    Reprovision,
    /// Not written by the coordinator.
    Custom,
}

/// The result of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
pub enum PlanState {
    /// Succeeded and verified.
    Applied,
    /// Failed; not retried automatically.
    Failed,
}

/// What the host reported about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// The stream of the installed system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// The image that runs.
    pub image: String,
    /// active, passive, recovery or live.
    pub boot_mode: String,
    /// Number of the snapshot that runs, where elemental reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<i64>,
    /// Name of the host as it runs.
    pub hostname: String,
    /// Global addresses.
    pub addresses: Vec<String>,
    /// Version of the agent.
    pub agent_version: String,
    /// Processors, memory, disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareStatus>,
    /// What the host carries; absent until the installed system attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<CarriedStatus>,
    /// The install as it was reported last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallStatus>,
    /// Its part in holding the address of its cluster's internal endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerStatus>,
    /// Boot id of the live system that registered last. The installed system
    /// is one of another boot.
    #[serde(rename = "liveBootID", skip_serializing_if = "Option::is_none")]
    pub live_boot_id: Option<String>,
    /// SMBIOS UUID of the host at its last registration.
    #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// By which settings the host reaches the coordinator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorStatus>,
    /// The agent that an operator asked for last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_update: Option<AgentUpdateStatus>,
}

/// How far a host is with the agent of the annotation
/// `baremetal.cluster.io/agent-version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentUpdateStatus {
    /// The version that was asked for.
    pub version: String,
    /// How far the host is. `status.host.agentVersion` says what runs.
    pub state: AgentUpdateState,
    /// Why it does not run, and the next action.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How far a host is with another agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentUpdateState {
    /// It is announced when a plan has ended, or other hosts have theirs.
    Waiting,
    /// It was announced to the host.
    Sent,
    /// The host gave it up, and runs the former one.
    Failed,
    /// It cannot be announced.
    Unavailable,
}

/// The URL, token and authorities by which a host reaches the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorStatus {
    /// SHA-256 of those by which it attached; equal on hosts that have the same.
    pub checksum: String,
    /// How far the host is.
    pub state: CoordinatorSettingsState,
    /// Why it does not take newer ones.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How far a host is with the newest settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CoordinatorSettingsState {
    /// It attached by them.
    Current,
    /// They were sent to it.
    Announced,
    /// It went back to its former ones.
    Refused,
}

/// One stream of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// The coordinator process that serves it.
    pub replica: String,
    /// `/proc/sys/kernel/random/boot_id` of the host.
    pub boot_id: String,
    /// When it was opened.
    pub since: Time,
    /// When it ended; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// The plan and node that a host reports to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CarriedStatus {
    /// The newest plan of its journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<CarriedPlan>,
    /// The node that is on its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<CarriedNode>,
    /// Generation of its load balancer's duty.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_generation: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A host's part in its cluster's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// What the host is to do.
    pub duty: LoadBalancerDuty,
    /// How far it is; absent until it reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<LoadBalancerReport>,
}

/// What a host does for its cluster's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerDuty {
    /// Rises with each change.
    pub generation: i64,
    /// Name of the `BaremetalCluster`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The address that one member holds; empty for a host without a duty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Port of the address and of the API servers.
    pub port: i32,
    /// VRRP id.
    pub vrid: i32,
    /// The interface; empty: the one that routes to the address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// Addresses of the members, in the order in which they take over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Which of the members the host is, from zero.
    pub position: i32,
    /// It holds the address until its API server answered for the first time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holds_first: bool,
}

/// How far a host is with its duty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerReport {
    /// Generation of the duty.
    pub generation: i64,
    /// The interface on which it takes part; empty while it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// It holds the address.
    pub is_holder: bool,
    /// Connections are spread over all members.
    pub spreads: bool,
    /// Why it does not take part, or not in full, and the next action.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The newest plan of a host's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CarriedPlan {
    /// Name of the plan.
    pub id: String,
    /// Number of the plan.
    pub generation: i64,
    /// SHA-256 of the plan record.
    pub checksum: String,
    /// Kind of the plan.
    #[serde(rename = "type")]
    pub kind: PlanType,
    /// Result of the plan; absent while it is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PlanState>,
}

/// The node on a host's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CarriedNode {
    /// Empty for a node that the agent did not make.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Value of the label `metal3.io/uuid`.
    pub uuid: String,
}

/// Progress of the install.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallStatus {
    /// State of the install.
    pub state: InstallState,
    /// Device that the system is installed to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// Image that is installed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Cause and next action.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// States of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstallState {
    /// Registered, nothing reported yet.
    Registered,
    /// No disk could be chosen; an operator has to name it.
    Waiting,
    /// The system is being written.
    Installing,
    /// The system is on the disk.
    Installed,
    /// The install failed.
    Failed,
    /// A live system found an installed system and did not change the disk.
    LiveBootAfterInstall,
}

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
    #[must_use]
    pub fn wanted_agent(&self) -> Option<&str> {
        let wanted = self.annotations().get(annotation::AGENT_VERSION)?;
        Some(wanted.as_str()).filter(|wanted| !wanted.is_empty())
    }

    /// The claim, when the owner annotations hold one.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        let text = |key| self.annotations().get(key).cloned().unwrap_or_default();
        let baremetal_machine = text(annotation::OWNER_BAREMETAL_MACHINE);
        let kind = self.annotations().get(annotation::OWNER_KIND).cloned();
        (!baremetal_machine.is_empty()).then(|| Claim {
            kind: kind.unwrap_or_else(|| "BaremetalMachine".to_owned()),
            baremetal_machine,
            uid: self.annotations().get(annotation::OWNER_UID).cloned(),
            machine: text(annotation::OWNER_MACHINE),
            cluster: text(annotation::OWNER_CLUSTER),
            pool: text(annotation::POOL),
            generation: text(annotation::CLAIM_GENERATION).parse().unwrap_or(0),
        })
    }

    /// The allocation state; absent and unknown text count as `Available`.
    #[must_use]
    pub fn allocation_state(&self) -> AllocationState {
        self.annotations()
            .get(annotation::ALLOCATION_STATE)
            .and_then(|text| text.parse().ok())
            .unwrap_or(AllocationState::Available)
    }

    /// Whether the host is admitted; unknown text counts as `Pending`.
    #[must_use]
    pub fn approval(&self) -> Approval {
        let text = self.annotations().get(annotation::APPROVAL);
        text.map_or(Approval::Automatic, |text| text.parse().unwrap_or(Approval::Pending))
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
