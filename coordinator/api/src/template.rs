//! `BaremetalMachineTemplate` and `BaremetalClusterTemplate`.
//!
//! Their specs never change: an admission policy says so and not the schema, which
//! cannot tell the dry run of Cluster API's topology from a change.

use std::collections::BTreeMap;

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
