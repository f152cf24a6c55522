//! `Metal3DataClaim` and `Metal3Data` at v1beta2.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reference;
use crate::metal3::SecretRef;

/// A claim for the data of one machine.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3DataClaim",
    plural = "metal3dataclaims",
    namespaced,
    status = "Metal3DataClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Error", type_ = "string", json_path = ".status.errorMessage")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.template == oldSelf.template").message("template is immutable"))]
pub struct Metal3DataClaimSpec {
    /// The `Metal3DataTemplate` in the same namespace.
    pub template: Reference,
}

/// The outcome of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataClaimStatus {
    /// The `Metal3Data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_data: Option<Reference>,
    /// Why the claim has no data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// The data of one machine. Its name is derived from template and index, so that an index
/// is allocated only once.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3Data",
    plural = "metal3datas",
    namespaced,
    status = "Metal3DataStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Error", type_ = "string", json_path = ".status.errorMessage")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.index == oldSelf.index && self.template == oldSelf.template && self.claim == oldSelf.claim").message("index, template and claim are immutable"))]
pub struct Metal3DataSpec {
    /// Index in the template.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub index: i64,
    /// The Secret with the meta-data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretRef>,
    /// The Secret with the network data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretRef>,
    /// The claim.
    pub claim: Reference,
    /// The template.
    pub template: Reference,
}

/// State of the rendered Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataStatus {
    /// All Secrets exist.
    pub ready: bool,
    /// Why a Secret is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}
