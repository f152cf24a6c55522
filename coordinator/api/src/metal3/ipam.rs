//! `IPPool`, `IPClaim`, `IPAddress` of `ipam.metal3.io`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IP_ADDRESS, NETWORK, ObjectRef, ip_rules};

/// A pool of addresses for claims.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ipam.metal3.io",
    version = "v1alpha1",
    kind = "IPPool",
    plural = "ippools",
    shortname = "ipp",
    shortname = "ippool",
    shortname = "m3ipp",
    shortname = "m3ippool",
    shortname = "m3ippools",
    shortname = "metal3ipp",
    shortname = "metal3ippool",
    shortname = "metal3ippools",
    category = "cluster-api",
    namespaced,
    status = "IPPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.namePrefix == oldSelf.namePrefix").message("namePrefix cannot be modified"))]
#[x_kube(validation = Rule::new("(has(self.allocationStrategy) ? self.allocationStrategy : 'sequential') == (has(oldSelf.allocationStrategy) ? oldSelf.allocationStrategy : 'sequential')").message("allocationStrategy cannot be modified after creation"))]
#[x_kube(validation = Rule::new(ip_rules::RANDOM).message("each range needs end or subnet, because allocationStrategy is random"))]
#[x_kube(validation = Rule::new(ip_rules::POOL_PREFIX).message("prefix is longer than an IPv4 address"))]
pub struct IPPoolSpec {
    /// The Cluster that the pool belongs to.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Ranges in the order of their use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub pools: Vec<AddressRange>,
    /// Choice of a free address for a claim.
    #[serde(default)]
    pub allocation_strategy: AllocationStrategy,
    /// Reserved addresses by the names of their claims.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "addresses_by_name")]
    pub pre_allocations: BTreeMap<String, String>,
    /// Prefix length of ranges without their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub prefix: Option<i32>,
    /// Gateway of ranges without their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = IP_ADDRESS))]
    pub gateway: Option<String>,
    /// DNS servers of ranges without their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = IP_ADDRESS)))]
    pub dns_servers: Vec<String>,
    /// Prefix of the names of `IPAddress` objects.
    #[schemars(length(min = 1))]
    pub name_prefix: String,
}

fn addresses_by_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let address = schemars::json_schema!({ "type": "string", "pattern": IP_ADDRESS });
    schemars::json_schema!({ "type": "object", "additionalProperties": address })
}

/// A range of addresses.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.start) || has(self.end) || has(self.subnet)").message("at least one of start, end and subnet is required"))]
#[x_kube(validation = Rule::new(ip_rules::BEGINS).message("start or subnet is required"))]
#[x_kube(validation = Rule::new(ip_rules::ORDER).message("start is above end, or of another family"))]
#[x_kube(validation = Rule::new(ip_rules::FAMILY).message("start and end have the family of subnet"))]
#[x_kube(validation = Rule::new(ip_rules::SUBNET).message("the range is empty: start is outside of subnet, or subnet has no address for it"))]
#[x_kube(validation = Rule::new(ip_rules::PREFIX).message("prefix is longer than an IPv4 address"))]
pub struct AddressRange {
    /// First address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = IP_ADDRESS))]
    pub start: Option<String>,
    /// Last address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = IP_ADDRESS))]
    pub end: Option<String>,
    /// Network that contains all addresses. Without `start`, the range begins one above the
    /// address of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = NETWORK))]
    pub subnet: Option<String>,
    /// Prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub prefix: Option<i32>,
    /// Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = IP_ADDRESS))]
    pub gateway: Option<String>,
    /// DNS servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = IP_ADDRESS)))]
    pub dns_servers: Vec<String>,
}

/// Choice of a free address for a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllocationStrategy {
    /// The lowest free address of the first range with one.
    #[default]
    Sequential,
    /// A free address that is derived from the name of the claim.
    Random,
}

/// Addresses in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IPPoolStatus {
    /// Time of the last change of `indexes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Addresses by the names of their claims.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub indexes: BTreeMap<String, String>,
    /// Ours: Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A claim for one address of a pool.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ipam.metal3.io",
    version = "v1alpha1",
    kind = "IPClaim",
    plural = "ipclaims",
    shortname = "ipc",
    shortname = "ipclaim",
    shortname = "m3ipc",
    shortname = "m3ipclaim",
    shortname = "m3ipclaims",
    shortname = "metal3ipc",
    shortname = "metal3ipclaim",
    shortname = "metal3ipclaims",
    category = "cluster-api",
    namespaced,
    status = "IPClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool.name"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Error", type_ = "string", json_path = ".status.errorMessage")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.pool == oldSelf.pool").message("pool cannot be modified"))]
pub struct IPClaimSpec {
    /// The `IPPool` in the same namespace.
    pub pool: ObjectRef,
}

/// The outcome of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IPClaimStatus {
    /// The `IPAddress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<ObjectRef>,
    /// Why the claim has no address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

/// An address in use. Its name is derived from the address, so that the address is
/// allocated only once.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ipam.metal3.io",
    version = "v1alpha1",
    kind = "IPAddress",
    plural = "ipaddresses",
    shortname = "ipa",
    shortname = "ipaddress",
    shortname = "m3ipa",
    shortname = "m3ipaddress",
    shortname = "m3ipaddresses",
    shortname = "metal3ipa",
    shortname = "metal3ipaddress",
    shortname = "metal3ipaddresses",
    category = "cluster-api",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".spec.claim.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.address == oldSelf.address && self.pool == oldSelf.pool && self.claim == oldSelf.claim").message("address, pool and claim cannot be modified"))]
pub struct IPAddressSpec {
    /// The claim that holds the address.
    pub claim: ObjectRef,
    /// The pool of the address.
    pub pool: ObjectRef,
    /// Prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub prefix: Option<i32>,
    /// Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = IP_ADDRESS))]
    pub gateway: Option<String>,
    /// The address.
    #[schemars(regex(pattern = IP_ADDRESS))]
    pub address: String,
    /// DNS servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = IP_ADDRESS)))]
    pub dns_servers: Vec<String>,
}
