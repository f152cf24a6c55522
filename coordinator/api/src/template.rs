//! `BaremetalMachineTemplate` and `BaremetalClusterTemplate`.
//!
//! Their specs never change. An admission policy rejects changes, because the schema
//! cannot distinguish the dry run of Cluster API's topology from a change.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::BaremetalClusterSpec;
use crate::machine::BaremetalMachineSpec;

/// The template from which Cluster API clones machines.
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

/// Resources of a node of this template, for autoscalers that start without nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BaremetalMachineTemplateStatus {
    /// `cpu` in threads and `memory` in bytes: the least of all hosts of the pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Architecture and system, if all hosts of the pool have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
}

/// Architecture and operating system of a node.
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

/// The template from which Cluster API clones the clusters of a `ClusterClass`.
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
