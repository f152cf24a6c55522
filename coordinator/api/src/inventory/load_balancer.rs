//! The duty of a control-plane host, in `status.host.loadBalancer`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Part of a control-plane host in holding the endpoint of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// The newest duty of the host.
    pub duty: LoadBalancerDuty,
    /// The last report of the host. Absent: the host has not reported yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<LoadBalancerReport>,
}

/// Duty of a host for the endpoint of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerDuty {
    /// Number of the duty, which rises with each change.
    pub generation: i64,
    /// Name of the `BaremetalCluster`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The address that one member holds; empty for a host without a duty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Port of the address and of the API servers.
    pub port: i32,
    /// VRRP id.
    pub vrid: i32,
    /// The interface of the address. Empty: the interface that routes to the address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// Addresses of the members in the order of their precedence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Position of the host among the members, from zero.
    pub position: i32,
    /// The host holds the address until its API server answered for the first time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holds_first: bool,
}

/// Report of a host about its duty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerReport {
    /// Generation of the duty.
    pub generation: i64,
    /// The interface of the address. Empty: the host is no active member.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// The host holds the address.
    pub is_holder: bool,
    /// The host spreads connections over all members.
    pub spreads: bool,
    /// Why the host is no active member, or not fully, with the next action.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}
