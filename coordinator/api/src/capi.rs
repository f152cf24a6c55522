//! What is read of Cluster API's own kinds: a few fields that v1beta1 and
//! v1beta2 share, so that either version serves.

use kube::core::{ApiResource, GroupVersionKind, Object};
use serde::{Deserialize, Serialize};

/// Cluster API's group.
pub const GROUP: &str = "cluster.x-k8s.io";
/// Versions that can be read, in order of preference. v1beta1 ends around April 2027.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A Cluster API Machine.
pub type Machine = Object<MachineSpec, Unread>;
/// A Cluster API Cluster.
pub type Cluster = Object<ClusterSpec, Unread>;

/// A field whose content is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {}

/// Spec of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// Name of the Cluster.
    pub cluster_name: String,
    /// Where the bootstrap data is.
    pub bootstrap: Bootstrap,
    /// Kubernetes version, key of the image catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The infrastructure machine.
    pub infrastructure_ref: InfrastructureRef,
    /// Failure domain that the machine is to be in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// The infrastructure object of a Machine or Cluster, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InfrastructureRef {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Where the bootstrap data is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bootstrap {
    /// Secret with the keys `value` and `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// Spec of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Reconciliation of the whole tree is switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The infrastructure cluster.
    #[serde(rename = "infrastructureRef", skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<InfrastructureRef>,
}

fn api_resource(version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind))
}

/// The API resource of Machine at `version`.
#[must_use]
pub fn machine(version: &str) -> ApiResource {
    api_resource(version, "Machine")
}

/// The API resource of Cluster at `version`.
#[must_use]
pub fn cluster_resource(version: &str) -> ApiResource {
    api_resource(version, "Cluster")
}
