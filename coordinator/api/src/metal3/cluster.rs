//! `Metal3Cluster`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Initialization;

/// The endpoint of one cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3Cluster",
    plural = "metal3clusters",
    shortname = "m3c",
    shortname = "m3cluster",
    shortname = "m3clusters",
    shortname = "metal3c",
    category = "cluster-api",
    namespaced,
    status = "Metal3ClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.controlPlaneEndpoint.host"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.cloudProviderEnabled) || !has(self.noCloudProvider) || self.cloudProviderEnabled != self.noCloudProvider").message("cloudProviderEnabled conflicts the value of noCloudProvider"))]
// The rule is not on the endpoint itself, because a default has to fulfil all rules of its type.
#[x_kube(validation = Rule::new("self.controlPlaneEndpoint.host != ''").message("controlPlaneEndpoint.host is required"))]
pub struct Metal3ClusterSpec {
    /// Address and port of the cluster's API server.
    #[serde(default)]
    pub control_plane_endpoint: ApiEndpoint,
    /// A cloud provider sets the providerIDs of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider_enabled: Option<bool>,
    /// The older, inverse form of `cloudProviderEnabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_cloud_provider: Option<bool>,
    /// Failure domains by name, for Cluster API.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failure_domains: BTreeMap<String, FailureDomain>,
}

/// The template from which topologies of Cluster API clone clusters.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Metal3ClusterTemplate",
    plural = "metal3clustertemplates",
    shortname = "m3ct",
    category = "cluster-api",
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
    #[schemars(schema_with = "crate::schema::any_object")]
    pub metadata: Option<serde_json::Value>,
    /// Spec of each cluster.
    pub spec: Metal3ClusterSpec,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiEndpoint {
    /// DNS name or IP address.
    #[serde(default)]
    pub host: String,
    /// TCP port.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

impl Default for ApiEndpoint {
    fn default() -> Self {
        Self { host: String::new(), port: default_port() }
    }
}

fn default_port() -> i32 {
    6443
}

/// A failure domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureDomain {
    /// The domain takes control-plane machines.
    pub control_plane: bool,
    /// Attributes for operators.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// A failure domain, with its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedFailureDomain {
    /// Its name.
    pub name: String,
    /// The domain takes control-plane machines.
    pub control_plane: bool,
    /// Attributes for operators.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// State of the cluster's infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3ClusterStatus {
    /// Ready, Paused, `BaremetalInfrastructureReady`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Cluster API v1beta1.
    pub ready: bool,
    /// Cluster API v1beta2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Never written, because Cluster API treats it as terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Never written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Failure domains of the spec: a list for Cluster API v1beta2, a map for v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_value")]
    pub failure_domains: Option<serde_json::Value>,
}
