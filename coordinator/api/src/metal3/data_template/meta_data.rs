//! Meta-data of a `Metal3DataTemplate`: keys and the sources of their values.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{POOL_KIND, Source};

/// Meta-data. Each item is one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetaDataSpec {
    /// Texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strings: Vec<KeyValue>,
    /// Names of objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub object_names: Vec<KeyObject>,
    /// The index of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<KeyIndex>,
    /// The namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Key>,
    /// Addresses of pools.
    #[serde(rename = "ipAddressesFromIPPool", skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses_from_ip_pool: Vec<KeyPool>,
    /// Prefix lengths of pools.
    #[serde(rename = "prefixesFromIPPool", skip_serializing_if = "Vec::is_empty")]
    pub prefixes_from_ip_pool: Vec<KeyPool>,
    /// Gateways of pools.
    #[serde(rename = "gatewaysFromIPPool", skip_serializing_if = "Vec::is_empty")]
    pub gateways_from_ip_pool: Vec<KeyPool>,
    /// DNS servers of pools, separated by commas.
    #[serde(rename = "dnsServersFromIPPool", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.all(item, !has(item.apiGroup) || item.apiGroup in ['', 'ipam.metal3.io'])",
        "message": "pools of other providers have no DNS servers",
    }]))]
    pub dns_servers_from_ip_pool: Vec<KeyPool>,
    /// MAC addresses of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from_host_interfaces: Vec<KeyInterface>,
    /// Labels of objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from_labels: Vec<KeyLabel>,
    /// Annotations of objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from_annotations: Vec<KeyAnnotation>,
}

/// A key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Key {
    /// Key in the meta-data.
    pub key: String,
}

/// A text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyValue {
    /// Key in the meta-data.
    pub key: String,
    /// The text.
    pub value: String,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyObject {
    /// Key in the meta-data.
    pub key: String,
    /// The object.
    pub object: Source,
}

/// A number that is derived from the index: `prefix`, then `offset` + `step` × index, then
/// `suffix`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyIndex {
    /// Key in the meta-data.
    pub key: String,
    /// Number to add.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub offset: i64,
    /// Factor of the index; 0 counts as 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub step: i64,
    /// Text before the number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Text after the number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suffix: String,
}

fn one() -> i64 {
    1
}

/// A value of an `IPPool`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(POOL_KIND).message("a pool of Metal3 is an IPPool: name apiGroup for the pool of another provider"))]
pub struct KeyPool {
    /// Key in the meta-data.
    pub key: String,
    /// Name of the pool.
    pub name: String,
    /// Group of the pool. Absent: `ipam.metal3.io`. Pools of other groups are claimed by `IPAddressClaim`s.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the pool. Absent: `IPPool`.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A MAC address of the host.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.interface) && self.interface != '') != (has(self.fromBootMAC) && self.fromBootMAC)").message("exactly one of interface and fromBootMAC is required"))]
pub struct KeyInterface {
    /// Key in the meta-data.
    pub key: String,
    /// Name of the interface.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// `spec.bootMACAddress` of the host.
    #[serde(default, rename = "fromBootMAC", skip_serializing_if = "std::ops::Not::not")]
    pub from_boot_mac: bool,
}

/// A label of an object; empty if the object does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyLabel {
    /// Key in the meta-data.
    pub key: String,
    /// The object.
    pub object: Source,
    /// Key of the label.
    pub label: String,
}

/// An annotation of an object; empty if the object does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyAnnotation {
    /// Key in the meta-data.
    pub key: String,
    /// The object.
    pub object: Source,
    /// Key of the annotation.
    pub annotation: String,
}
