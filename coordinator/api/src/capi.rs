//! What is read of Cluster API's own kinds: a few fields that v1beta1 and
//! v1beta2 share, so that either version serves.

use crate::names::kind;
use kube::core::{ApiResource, GroupVersionKind, Object};
use serde::{Deserialize, Serialize};

/// Cluster API's group.
pub const GROUP: &str = "cluster.x-k8s.io";
/// Versions that can be read, in order of preference. v1beta1 ends around April 2027.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A Cluster API Machine.
pub type Machine = Object<MachineSpec, MachineStatus>;
/// A Cluster API Cluster.
pub type Cluster = Object<ClusterSpec, ClusterStatus>;

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
    /// Where the machine has to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// Status of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The Node, once Cluster API has found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeRef>,
}

/// A Node of the workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRef {
    /// Name of the Node.
    pub name: String,
}

/// An object that a Machine or Cluster names, in the same namespace.
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
    /// What a bootstrap provider makes the data from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<InfrastructureRef>,
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
    /// What manages the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<InfrastructureRef>,
}

/// Status of a Cluster, in the words of either version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// v1beta2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    /// v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ready: Option<bool>,
    /// v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ready: Option<bool>,
}

/// What has once been there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInitialization {
    /// The infrastructure of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// Its API server has answered Cluster API once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

impl ClusterStatus {
    /// Whether Cluster API takes the infrastructure of the cluster as provisioned.
    pub fn is_infrastructure_provisioned(&self) -> bool {
        let new = self.initialization.as_ref().and_then(|done| done.infrastructure_provisioned);
        new.or(self.infrastructure_ready).unwrap_or_default()
    }

    /// Whether the API server of the cluster has answered once.
    pub fn is_control_plane_initialized(&self) -> bool {
        let new = self.initialization.as_ref().and_then(|done| done.control_plane_initialized);
        new.or(self.control_plane_ready).unwrap_or_default()
    }
}

fn api_resource(version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind))
}

/// The API resource of Machine at `version`.
pub fn machine(version: &str) -> ApiResource {
    api_resource(version, kind::MACHINE)
}

/// The API resource of Cluster at `version`.
pub fn cluster_resource(version: &str) -> ApiResource {
    api_resource(version, kind::CLUSTER)
}
