//! `BaremetalCluster`: the endpoint of one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Initialization;

/// The endpoint of one cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "BaremetalCluster",
    shortname = "bmc",
    namespaced,
    status = "BaremetalClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.controlPlaneEndpoint.host"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(oldSelf.controlPlaneEndpoint) || (has(self.controlPlaneEndpoint) && self.controlPlaneEndpoint == oldSelf.controlPlaneEndpoint)").message("controlPlaneEndpoint never changes once it is set"))]
#[x_kube(validation = Rule::new("!has(oldSelf.controlPlaneLoadBalancer) || (has(self.controlPlaneLoadBalancer) && self.controlPlaneLoadBalancer.host == oldSelf.controlPlaneLoadBalancer.host && self.controlPlaneLoadBalancer.port == oldSelf.controlPlaneLoadBalancer.port && self.controlPlaneLoadBalancer.type == oldSelf.controlPlaneLoadBalancer.type)").message("host, port and type of controlPlaneLoadBalancer never change once they are set: the nodes know the endpoint; vrid may change"))]
#[x_kube(validation = Rule::new("!has(self.controlPlaneLoadBalancer) || has(oldSelf.controlPlaneLoadBalancer) || !has(oldSelf.controlPlaneEndpoint) || (self.controlPlaneLoadBalancer.host == oldSelf.controlPlaneEndpoint.host && self.controlPlaneLoadBalancer.port == oldSelf.controlPlaneEndpoint.port)").message("a controlPlaneLoadBalancer that is added later has host and port of controlPlaneEndpoint, which the nodes use"))]
pub struct BaremetalClusterSpec {
    /// Address and port of the cluster's API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// The load balancer of that endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_load_balancer: Option<LoadBalancer>,
    /// Network of the cluster, for example `kube-ovn`. The field has no effect and is
    /// named by the condition `FieldsIgnored`. Absent: no network is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    /// Interface of the control-plane hosts that holds the address of an internal
    /// endpoint, unless the member of the pool names one. Absent: the interface that
    /// routes to the address. With type External the field has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_device: Option<String>,
}

/// A host and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// DNS name or IP address.
    #[schemars(length(min = 1, max = 512))]
    pub host: String,
    /// TCP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// The load balancer of the control-plane endpoint.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// DNS name or IP address. With type Internal it is an unused address in the
    /// network of the control-plane hosts.
    #[schemars(length(min = 1))]
    pub host: String,
    /// TCP port; with type Internal also the port of the API servers.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Type of the load balancer: the control-plane hosts themselves (`Internal`), or a
    /// load balancer outside the cluster (`External`).
    #[serde(default, rename = "type")]
    pub kind: LoadBalancerType,
    /// VRRP id, 1 to 255, unique in the broadcast domain of the control plane. Absent, or
    /// 0: 51. With type External the field has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub vrid: Option<i32>,
}

/// Type of a load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancerType {
    /// The control-plane hosts hold the address.
    #[default]
    Internal,
    /// A load balancer outside the cluster.
    External,
}

/// State of the cluster's infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BaremetalClusterStatus {
    /// Ready, Paused, `EndpointReady`; with an internal endpoint also
    /// `LoadBalancerReady`, `NetworkDeviceReady`, `NetworkConfigValid`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Cluster API v1beta1: the infrastructure is provisioned.
    pub ready: bool,
    /// Cluster API v1beta2: the infrastructure is provisioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Failure domains of the hosts in the pools of the Cluster: a list if Cluster is
    /// served at v1beta2, a map by name if Cluster is served at v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_value")]
    pub failure_domains: Option<Value>,
}
