//! Reports of a host, in `status.host`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoadBalancerStatus, PlanState, PlanType};
use crate::hardware::HardwareStatus;

/// Reports of the host about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// The stream of the installed system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionStatus>,
    /// The running image.
    pub image: String,
    /// active, passive, recovery or live.
    pub boot_mode: String,
    /// Number of the running snapshot, if elemental reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<i64>,
    /// Current host name.
    pub hostname: String,
    /// Global addresses.
    pub addresses: Vec<String>,
    /// Why the agent cannot write its state, and what to do. Absent: it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_failure: Option<String>,
    /// Items that a former node left in the kernel. The host is free after a reboot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_in_kernel: Vec<String>,
    /// Paths that the system keeps over a reboot, each with all below it. Empty: unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_paths: Vec<String>,
    /// Data of tenants that no clean removes: directories outside of those of a node, and
    /// disks with content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    /// Version of the agent.
    pub agent_version: String,
    /// Processors, memory, disks, and what the system lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareStatus>,
    /// The plan and node that the host carries. Absent: the installed system has not
    /// attached yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<CarriedStatus>,
    /// The last report about the install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallStatus>,
    /// Part of the host in holding the internal endpoint of its cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerStatus>,
    /// Boot id of the live system that registered last. The installed system has another
    /// boot id.
    #[serde(rename = "liveBootID", skip_serializing_if = "Option::is_none")]
    pub live_boot_id: Option<String>,
    /// The TPM of the host when that live system registered. The installed system proves
    /// that the TPM was reset since then. Absent: the identity is a software key.
    #[serde(rename = "liveTPM", skip_serializing_if = "Option::is_none")]
    pub live_tpm: Option<LiveTpm>,
    /// The key of the host's certificates. Every key that was certified before it is
    /// refused. Absent: the host has not used a certificate that names the time of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certified_key: Option<CertifiedKey>,
    /// Labels that the registration would give the host now. The inventory does not get them,
    /// because a plan was written for the host before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stale_labels: BTreeMap<String, String>,
    /// SMBIOS UUID of the host at its last registration.
    #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// Settings by which the host reaches the coordinator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorStatus>,
    /// State of the agent version that an operator requested last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_update: Option<AgentUpdateStatus>,
}

/// A key that has a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertifiedKey {
    /// Lower-case hexadecimal SHA-256 of the public key in PKIX DER.
    pub hash: String,
    /// When the key got its first certificate; renewals keep the time.
    pub since: Time,
}

/// Quoted properties of a TPM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveTpm {
    /// Name of the attestation key, hexadecimal.
    pub attestation_key: String,
    /// Number of resets of the TPM; each boot is one.
    pub reset_count: u32,
    /// The agent proves its boot at each renewal of a certificate of the installed system.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proves_renewals: bool,
}

/// Progress of a host towards the agent version of the annotation
/// `baremetal.cluster.io/agent-version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentUpdateStatus {
    /// The requested version.
    pub version: String,
    /// State of the update. `status.host.agentVersion` is the running version.
    pub state: AgentUpdateState,
    /// Why the version does not run, with the next action.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// State of the update of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentUpdateState {
    /// The version is announced after a plan has ended, or other hosts have been updated.
    Waiting,
    /// The version was announced to the host.
    Sent,
    /// The host runs the former version because the update failed.
    Failed,
    /// The version cannot be announced.
    Unavailable,
}

/// The URL and authorities by which a host reaches the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorStatus {
    /// SHA-256 of the settings by which the host attached, without its own token.
    pub checksum: String,
    /// State of the newest settings.
    pub state: CoordinatorSettingsState,
    /// Why the host does not use the newest settings.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// State of the newest settings on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CoordinatorSettingsState {
    /// The host attached by the newest settings.
    Current,
    /// The newest settings were sent to the host.
    Announced,
    /// The host returned to its former settings.
    Refused,
}

/// A stream of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStatus {
    /// The coordinator process that serves the stream.
    pub replica: String,
    /// `/proc/sys/kernel/random/boot_id` of the host.
    pub boot_id: String,
    /// Time when the stream was opened.
    pub since: Time,
    /// Time when the stream ended. Absent: the stream is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
}

/// The plan and node that a host reports to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CarriedStatus {
    /// The newest plan of the host's journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<CarriedPlan>,
    /// The node on the host's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<CarriedNode>,
    /// Generation of the host's duty for an endpoint.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_balancer_generation: i64,
    /// The host's journal, if it cannot be read. The host refuses every plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_journal: Option<LostJournal>,
}

/// A journal that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostJournal {
    /// The cause.
    pub message: String,
    /// Lower-case hexadecimal SHA-256 of the file, or `unreadable`.
    pub checksum: String,
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
    /// Result of the plan. Absent: the plan is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PlanState>,
}

/// The node on a host's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CarriedNode {
    /// providerID of the node. Empty: the agent did not create the node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Value of the label `metal3.io/uuid`.
    pub uuid: String,
    /// Kind and name of the object that held the host when the node was created, for
    /// example `BaremetalMachine/m-1`. Empty: an agent or a coordinator of an earlier
    /// release created the node.
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
    /// Cause and next action of a failure; attempt and start of a running install.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Why the firmware did not take the boot order; empty if it did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_order_refused: String,
}

/// States of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstallState {
    /// The host is registered and has not reported an install yet.
    Registered,
    /// No disk can be chosen; an operator has to name one.
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
