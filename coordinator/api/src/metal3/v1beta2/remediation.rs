//! `Metal3Remediation` and its template at v1beta2.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TemplateMetadata;
use crate::metal3::remediation::{
    Metal3RemediationStatus, Metal3RemediationTemplateStatus, RemediationType, default_retry_limit,
};

/// The remediation of an unhealthy machine, whose Machine is in the owner reference.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3Remediation",
    plural = "metal3remediations",
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemediationStrategy {
    /// `Reboot`: the agent of the host reboots it.
    #[serde(default, rename = "type")]
    pub kind: RemediationType,
    /// Number of retries before the machine is replaced.
    #[serde(default = "default_retry_limit")]
    #[schemars(range(min = 1))]
    pub retry_limit: i32,
    /// Seconds of an attempt within which the node has to become healthy, at least 100.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 100))]
    pub timeout_seconds: i32,
}

impl Default for RemediationStrategy {
    fn default() -> Self {
        Self {
            kind: RemediationType::Reboot,
            retry_limit: default_retry_limit(),
            timeout_seconds: default_timeout(),
        }
    }
}

/// The default of CAPM3.
const fn default_timeout() -> i32 {
    600
}

/// The template from which a `MachineHealthCheck` clones remediations.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3RemediationTemplate",
    plural = "metal3remediationtemplates",
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
    pub metadata: Option<TemplateMetadata>,
    /// Spec of each remediation.
    pub spec: Metal3RemediationSpec,
}
