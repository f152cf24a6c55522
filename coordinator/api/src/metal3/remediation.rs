//! `Metal3Remediation` and its template. A `MachineHealthCheck` of Cluster API creates
//! remediations for unhealthy nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::Duration;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The remediation of an unhealthy machine, whose Machine is in the owner reference.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3Remediation",
    plural = "metal3remediations",
    shortname = "m3r",
    shortname = "m3remediation",
    category = "cluster-api",
    namespaced,
    status = "Metal3RemediationStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Retry limit", type_ = "string", json_path = ".spec.strategy.retryLimit"),
    printcolumn(name = "Retry count", type_ = "string", json_path = ".status.retryCount"),
    printcolumn(name = "Last Remediated", type_ = "string", json_path = ".status.lastRemediated"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.strategy.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
pub struct Metal3RemediationSpec {
    /// Strategy for the host.
    #[serde(default)]
    pub strategy: RemediationStrategy,
}

/// Strategy for the host of an unhealthy machine.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.timeout) || duration(self.timeout) == duration('0s') || duration(self.timeout) >= duration('100s')").message("min duration is 100s"))]
pub struct RemediationStrategy {
    /// `Reboot`: the agent of the host reboots it.
    #[serde(default, rename = "type")]
    pub kind: RemediationType,
    /// Number of retries before the machine is replaced.
    #[serde(default = "default_retry_limit")]
    #[schemars(range(min = 1))]
    pub retry_limit: i32,
    /// Time of an attempt within which the node has to become healthy, as a Go duration of
    /// at least `100s`. Absent, or `0s`: ten minutes.
    #[serde(default = "default_timeout")]
    pub timeout: Option<Duration>,
}

/// Types of strategies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RemediationType {
    /// The host is rebooted.
    #[default]
    Reboot,
}

impl Default for RemediationStrategy {
    fn default() -> Self {
        Self { kind: RemediationType::Reboot, retry_limit: default_retry_limit(), timeout: default_timeout() }
    }
}

pub(crate) const fn default_retry_limit() -> i32 {
    1
}

/// The default of CAPM3.
#[allow(clippy::unnecessary_wraps, reason = "the default of an optional field")]
fn default_timeout() -> Option<Duration> {
    Some(std::time::Duration::from_mins(10).into())
}

/// Progress of a remediation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3RemediationStatus {
    /// `Running`, `Waiting`, `Deleting machine` or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Number of retries so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// Start of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_remediated: Option<Time>,
    /// Ours: Ready and Paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Phase of a remediation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The host is being rebooted.
    Running,
    /// The host has rebooted, and the node has to become healthy.
    Waiting,
    /// The owner of the Machine replaces it.
    #[serde(rename = "Deleting machine")]
    Deleting,
    /// Nothing is done because the host is switched off on purpose.
    Failed,
}

/// The template from which a `MachineHealthCheck` clones remediations.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3RemediationTemplate",
    plural = "metal3remediationtemplates",
    shortname = "m3rt",
    shortname = "m3remediationtemplate",
    shortname = "m3remediationtemplates",
    shortname = "metal3rt",
    category = "cluster-api",
    namespaced,
    status = "Metal3RemediationTemplateStatus",
    derive = "Default",
    derive = "PartialEq"
)]
pub struct Metal3RemediationTemplateSpec {
    /// The remediation.
    pub template: RemediationResource,
}

/// A remediation without a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemediationResource {
    /// Labels and annotations of the remediations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub metadata: Option<serde_json::Value>,
    /// Spec of each remediation.
    pub spec: Metal3RemediationSpec,
}

/// The status of CAPM3, which is not written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Metal3RemediationTemplateStatus {
    /// Not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Metal3RemediationStatus>,
}
