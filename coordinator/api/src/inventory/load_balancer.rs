//! A host's part in its cluster's load balancer, in `status.host.loadBalancer`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A host's part in its cluster's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// What the host is to do.
    pub duty: LoadBalancerDuty,
    /// How far it is; absent until it reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<LoadBalancerReport>,
}

/// What a host does for its cluster's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerDuty {
    /// Rises with each change.
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
    /// The interface; empty: the one that routes to the address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// Addresses of the members, in the order in which they take over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Which of the members the host is, from zero.
    pub position: i32,
    /// It holds the address until its API server answered for the first time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holds_first: bool,
}

/// How far a host is with its duty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerReport {
    /// Generation of the duty.
    pub generation: i64,
    /// The interface on which it takes part; empty while it does not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// It holds the address.
    pub is_holder: bool,
    /// Connections are spread over all members.
    pub spreads: bool,
    /// Why it does not take part, or not in full, and the next action.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}
