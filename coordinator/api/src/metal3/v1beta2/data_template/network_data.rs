//! Network data of a `Metal3DataTemplate` at v1beta2.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::metal3::data_template::{Ethernet, MacAddress, Networks, Services, Vlan, bond_mode, default_mtu};

/// Network data in the form of `OpenStack`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NetworkDataSpec {
    /// Devices.
    pub links: Links,
    /// Addresses and routes of devices.
    pub networks: Networks,
    /// DNS servers of the host.
    pub services: Services,
}

/// Devices by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Links {
    /// Network cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ethernets: Vec<Ethernet>,
    /// Bonds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub bonds: Vec<Bond>,
    /// VLANs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
}

/// A bond.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.parameters) || self.parameters.all(item, item.name in ['miimon', 'lacp_rate', 'primary'])").message("parameters may be miimon, lacp_rate and primary"))]
pub struct Bond {
    /// Mode.
    #[schemars(schema_with = "bond_mode")]
    pub bond_mode: String,
    /// Hash policy of balance-xor and 802.3ad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "hash_policy")]
    pub bond_xmit_hash_policy: Option<String>,
    /// Name within this document.
    pub id: String,
    /// Name on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15), regex(pattern = r"^[a-zA-Z][a-zA-Z0-9._-]*$"))]
    pub name: Option<String>,
    /// MTU in bytes.
    #[serde(default = "default_mtu")]
    #[schemars(range(min = 68, max = 9000))]
    pub mtu: i64,
    /// MAC address of the bond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
    /// Further parameters without `bond_`: `miimon`, `lacp_rate`, `primary`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub parameters: Vec<BondParameter>,
    /// Ids of the members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bond_links: Vec<String>,
}

/// A parameter of a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BondParameter {
    /// Name of the parameter.
    #[schemars(length(max = 64))]
    pub name: String,
    /// Value of the parameter, a number or a text.
    #[schemars(schema_with = "parameter_value")]
    pub value: Value,
}

fn hash_policy(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["layer2", "layer3+4", "layer2+3"] })
}

fn parameter_value(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "x-kubernetes-int-or-string": true })
}
