//! `BaremetalMachineTemplate`.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::BaremetalMachineSpec;

/// What Cluster API clones machines from.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[x_kube(validation = Rule::new("self.template.spec == oldSelf.template.spec").message("templates never change: make a new one and point the MachineDeployment to it"))]
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
