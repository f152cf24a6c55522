//! `Metal3Cluster` and `Metal3ClusterTemplate` at v1beta2.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Deprecated, TemplateMetadata};
use crate::machine::Initialization;
use crate::metal3::cluster::ApiEndpoint;

/// The endpoint of one cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3Cluster",
    plural = "metal3clusters",
    namespaced,
    status = "Metal3ClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Provisioned", type_ = "string", json_path = ".status.initialization.provisioned"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.controlPlaneEndpoint.host"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
// The rule is not on the endpoint itself, because a default has to fulfil all rules of its type.
#[x_kube(validation = Rule::new("self.controlPlaneEndpoint.host != ''").message("controlPlaneEndpoint.host is required"))]
pub struct Metal3ClusterSpec {
    /// Address and port of the cluster's API server.
    #[serde(default)]
    pub control_plane_endpoint: ApiEndpoint,
    /// A cloud provider sets the providerIDs of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider_enabled: Option<bool>,
    /// Failure domains, for Cluster API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
}

/// The template from which topologies of Cluster API clone clusters.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Metal3ClusterTemplate",
    plural = "metal3clustertemplates",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct Metal3ClusterTemplateSpec {
    /// The cluster.
    pub template: ClusterResource,
}

/// A cluster without a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterResource {
    /// Labels and annotations of the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of each cluster.
    pub spec: Metal3ClusterSpec,
}

/// A failure domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name of the domain.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The domain takes control-plane machines.
    #[serde(default)]
    pub control_plane: bool,
    /// Attributes for operators.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// State of the cluster's infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3ClusterStatus {
    /// Ready, Paused, `BaremetalInfrastructureReady`.
    pub conditions: Vec<Condition>,
    /// Not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// The infrastructure is provisioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Failure domains of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_domains: Vec<FailureDomain>,
    /// Status in the form of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
}
