//! `Metal3DataTemplate` at v1beta2.

mod meta_data;
mod network_data;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use meta_data::MetaDataSpec;
pub use network_data::{Bond, BondParameter, Links, NetworkDataSpec};

/// The template of each machine's data.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3DataTemplate",
    plural = "metal3datatemplates",
    namespaced,
    status = "Metal3DataTemplateStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.metaData) == has(oldSelf.metaData) && (!has(self.metaData) || self.metaData == oldSelf.metaData)").message("metaData is immutable"))]
#[x_kube(validation = Rule::new("has(self.networkData) == has(oldSelf.networkData) && (!has(self.networkData) || self.networkData == oldSelf.networkData)").message("networkData is immutable"))]
pub struct Metal3DataTemplateSpec {
    /// The Cluster that the template belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Meta-data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<MetaDataSpec>,
    /// Network data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NetworkDataSpec>,
}

/// Indexes in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataTemplateStatus {
    /// Time of the last change of `indexes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Indexes with the names of their claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<ClaimIndex>,
}

/// The index of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimIndex {
    /// Name of the claim.
    pub name: String,
    /// Index of the claim.
    pub index: i64,
}
