//! Claims of Cluster API on addresses. Cluster API installs the definitions, and
//! converts claims of its older version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Finalizer of an `IPAddress`: held until its claim is deleted.
pub const ADDRESS_FINALIZER: &str = "ipam.cluster.x-k8s.io/protect-address";
/// Finalizer of an `IPAddressClaim` on an `IPPool`: held until its address is released.
pub const CLAIM_FINALIZER: &str = "ipam.metal3.io/ipaddressclaim";

/// Asks for one address of a pool.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "IPAddressClaim",
    plural = "ipaddressclaims",
    namespaced,
    status = "IPAddressClaimStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressClaimSpec {
    /// Name of the Cluster that the claim belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The pool, of whichever provider.
    pub pool_ref: PoolRef,
}

/// A pool of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolRef {
    /// Group of its kind.
    pub api_group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// The outcome of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressClaimStatus {
    /// The `IPAddress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_ref: Option<NameRef>,
    /// Ready, and conditions of other writers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The name of an object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NameRef {
    /// Its name.
    pub name: String,
}

/// The address of a claim; it has the name of the claim.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "IPAddress",
    plural = "ipaddresses",
    namespaced,
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressSpec {
    /// The claim.
    pub claim_ref: NameRef,
    /// The pool.
    pub pool_ref: PoolRef,
    /// The address.
    pub address: String,
    /// Prefix length of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<i32>,
    /// Gateway of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}
