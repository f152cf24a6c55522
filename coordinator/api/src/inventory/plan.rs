//! The newest plan of a host, in `status.plan`.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

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
    /// Ours: SHA-256 of the bootstrap data in the plan, for the status of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_hash: Option<String>,
    /// Ours: parts of the bootstrap data that a reboot takes away, for the condition of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<String>,
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
    /// Ours: kind and name of the machine whose node the plan makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Ours: why the plan failed or cannot be sent; a condition reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Ours: why the plan failed or cannot be sent. A status of an older release has
    /// the next action here too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Ours: the next action of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_action: Option<String>,
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
