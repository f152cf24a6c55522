//! Meta-data of a `Metal3DataTemplate` at v1beta2.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metal3::data_template::{
    Key, KeyAnnotation, KeyIndex, KeyInterface, KeyLabel, KeyObject, KeyPool, KeyValue,
};

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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses_from_pool: Vec<KeyPool>,
    /// Prefix lengths of pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefixes_from_pool: Vec<KeyPool>,
    /// Gateways of pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways_from_pool: Vec<KeyPool>,
    /// DNS servers of pools, separated by commas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.all(item, !has(item.apiGroup) || item.apiGroup in ['', 'ipam.metal3.io'])",
        "message": "pools of other providers have no DNS servers",
    }]))]
    pub dns_servers_from_pool: Vec<KeyPool>,
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
