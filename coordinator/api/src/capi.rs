//! Kinds of Cluster API, reduced to the fields that are read. v1beta1 and v1beta2 share
//! these fields, so that either version can be served.

use crate::names::kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, GroupVersionKind, Object};
use serde::{Deserialize, Serialize};

/// Group of Cluster API.
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
    /// The bootstrap data.
    pub bootstrap: Bootstrap,
    /// Kubernetes version, key of the image catalog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The infrastructure machine.
    pub infrastructure_ref: InfrastructureRef,
    /// Required failure domain of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// Status of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The Node, after Cluster API has found it.
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

/// The bootstrap data of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bootstrap {
    /// Secret with the keys `value` and `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
    /// Configuration from which a bootstrap provider renders the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<InfrastructureRef>,
}

/// Spec of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Reconciliation of the Cluster and all its objects is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The infrastructure cluster.
    #[serde(rename = "infrastructureRef", skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<InfrastructureRef>,
    /// The endpoint, which an operator or the control plane provider may set. Without one, host and port
    /// are absent or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ClusterEndpoint>,
    /// The object that manages the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<InfrastructureRef>,
}

/// The endpoint of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterEndpoint {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: i32,
}

impl ClusterSpec {
    /// The endpoint, once it is known.
    pub fn endpoint(&self) -> Option<&ClusterEndpoint> {
        self.control_plane_endpoint
            .as_ref()
            .filter(|endpoint| !endpoint.host.is_empty() && endpoint.port != 0)
    }
}

/// Status of a Cluster, in the form of either version.
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

/// Steps of the initialization that are done once and never undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInitialization {
    /// The infrastructure of the cluster is provisioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The API server of the cluster has answered Cluster API once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

impl ClusterStatus {
    /// Cluster API considers the infrastructure of the cluster provisioned.
    pub fn is_infrastructure_provisioned(&self) -> bool {
        let new = self.initialization.as_ref().and_then(|done| done.infrastructure_provisioned);
        new.or(self.infrastructure_ready) == Some(true)
    }

    /// The API server of the cluster has answered once.
    pub fn is_control_plane_initialized(&self) -> bool {
        let new = self.initialization.as_ref().and_then(|done| done.control_plane_initialized);
        new.or(self.control_plane_ready) == Some(true)
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

/// Tells whether an owner is an object of Cluster API of `kind`. Other groups have kinds of the same names.
pub fn is_owner(reference: &OwnerReference, kind: &str) -> bool {
    let group = reference.api_version.split_once('/').map(|(group, _)| group);
    reference.kind == kind && group == Some(GROUP)
}
