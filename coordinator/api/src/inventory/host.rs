//! What a host reported about itself, in `status.host`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoadBalancerStatus, PlanState, PlanType};
use crate::hardware::HardwareStatus;

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
    /// The TPM of the host when that live system registered; absent where the
    /// identity is a software key. The installed system shows that it was reset since.
    #[serde(rename = "liveTPM", skip_serializing_if = "Option::is_none")]
    pub live_tpm: Option<LiveTpm>,
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

/// What a TPM showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveTpm {
    /// Name of the attestation key, hexadecimal.
    pub attestation_key: String,
    /// How often the TPM had been reset, as by each boot.
    pub reset_count: u32,
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
    /// Kind and name of the object that held the host when the node was made, as `BaremetalMachine/m-1`.
    /// Empty where an agent or a coordinator of an earlier release made it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
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
    /// Cause and next action; attempt and start of an install that runs.
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
