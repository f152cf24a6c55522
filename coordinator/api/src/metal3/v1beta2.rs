//! The kinds of Cluster API Provider Metal3 at v1beta2, for clients. The coordinator itself reads and
//! stores v1beta1; `coordinator-core` converts between the versions.
//!
//! No list is a map by its keys, unlike in that project: objects that are valid at v1beta1 may have
//! two items with one key, and server-side apply refuses such lists. Defaults are those of v1beta1,
//! because the API server adds the defaults of v1beta1 to what it reads from its storage.

pub mod cluster;
pub mod data;
pub mod data_template;
pub mod machine;
pub mod remediation;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResourceExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The definitions of this version, each to be merged with that of v1beta1.
pub fn crds() -> [CustomResourceDefinition; 9] {
    [
        cluster::Metal3Cluster::crd(),
        cluster::Metal3ClusterTemplate::crd(),
        machine::Metal3Machine::crd(),
        machine::Metal3MachineTemplate::crd(),
        data_template::Metal3DataTemplate::crd(),
        data::Metal3DataClaim::crd(),
        data::Metal3Data::crd(),
        remediation::Metal3Remediation::crd(),
        remediation::Metal3RemediationTemplate::crd(),
    ]
}

/// A reference to an object; its kind follows from the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the object. Absent: the namespace of the referring object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Labels and annotations of objects that are cloned from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TemplateMetadata {
    /// Labels of each object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of each object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Status in the form of older versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Deprecated {
    /// Status in the form of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<DeprecatedV1Beta1>,
}

/// Status in the form of v1beta1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeprecatedV1Beta1 {
    /// Conditions of CAPM3 in the form of Cluster API v1beta1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<FormerCondition>,
    /// Never written, because Cluster API treats it as terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
}

/// A condition in the form of Cluster API v1beta1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FormerCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Severity of a condition that is not `True`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Time of the last change of the status.
    pub last_transition_time: Time,
    /// Reason in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Explanation for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
