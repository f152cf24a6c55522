//! `BaremetalMachineTemplate` and `BaremetalClusterTemplate`.
//!
//! Their specs never change: an admission policy says so and not the schema, which
//! cannot tell the dry run of Cluster API's topology from a change.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::BaremetalClusterSpec;
use crate::machine::BaremetalMachineSpec;

/// What Cluster API clones machines from.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "BaremetalMachineTemplate",
    shortname = "bmmt",
    namespaced,
    status = "BaremetalMachineTemplateStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.template.spec.machineInventoryPoolRef.name"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct BaremetalMachineTemplateSpec {
    /// The template.
    pub template: Template,
}

/// What a node of this template would have, for autoscalers that begin with none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BaremetalMachineTemplateStatus {
    /// `cpu` in threads and `memory` in bytes: the least that any host of the pool has.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Of the hosts of the pool, where they are alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
}

/// What kind of machine a node runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// `amd64`, `arm64`, `ppc64le` or `s390x`.
    pub architecture: String,
    /// `linux`.
    pub operating_system: String,
}

/// The template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Labels and annotations of the clones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the clones.
    pub spec: BaremetalMachineSpec,
}

/// Labels and annotations of the clones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What Cluster API clones the clusters of a `ClusterClass` from.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "BaremetalClusterTemplate",
    shortname = "bmct",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct BaremetalClusterTemplateSpec {
    /// The template.
    pub template: ClusterTemplate,
}

/// The template of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterTemplate {
    /// Labels and annotations of the clones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the clones.
    #[serde(default)]
    pub spec: BaremetalClusterSpec,
}
