//! Network data of a `Metal3DataTemplate`: devices, addresses, routes, DNS servers.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{FromAnnotation, POOL_KIND};
use crate::metal3::IP_ADDRESS;

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

/// A network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ethernet {
    /// Kind of the card. It has no effect, as in cloud-init: every kind is a network card.
    #[serde(rename = "type")]
    #[schemars(schema_with = "ethernet_type")]
    pub kind: String,
    /// Name within this document.
    pub id: String,
    /// Name on the host.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15), regex(pattern = r"^[a-zA-Z][a-zA-Z0-9._-]*$"))]
    pub name: Option<String>,
    /// MTU in bytes.
    #[serde(default = "default_mtu")]
    #[schemars(range(min = 68, max = 9000))]
    pub mtu: i64,
    /// MAC address by which the card is found.
    pub mac_address: MacAddress,
}

fn ethernet_type(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let kinds = ["bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif", "phy"];
    schemars::json_schema!({ "type": "string", "enum": kinds })
}

pub(crate) fn bond_mode(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let modes =
        ["balance-rr", "active-backup", "balance-xor", "broadcast", "balance-tlb", "balance-alb", "802.3ad"];
    schemars::json_schema!({ "type": "string", "enum": modes })
}

fn hash_policy(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["", "layer2", "layer3+4", "layer2+3"] })
}

fn bond_parameters(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "x-kubernetes-int-or-string": true },
    })
}

pub(crate) fn default_mtu() -> i64 {
    1500
}

/// A MAC address; the first source that is set counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MacAddress {
    /// The address.
    #[serde(deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// Name of an interface of the host.
    #[serde(deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub from_host_interface: Option<String>,
    /// An annotation with the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_annotation: Option<FromAnnotation>,
}

/// A bond.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.parameters) || self.parameters.all(key, key in ['miimon', 'lacp_rate', 'primary'])").message("parameters may be miimon, lacp_rate and primary"))]
pub struct Bond {
    /// Mode.
    #[schemars(schema_with = "bond_mode")]
    pub bond_mode: String,
    /// Hash policy of balance-xor and 802.3ad.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "hash_policy")]
    pub bond_xmit_hash_policy: Option<String>,
    /// Name within this document.
    pub id: String,
    /// Name on the host.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bond_parameters")]
    pub parameters: BTreeMap<String, Value>,
    /// Ids of the members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bond_links: Vec<String>,
}

/// A VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vlan {
    /// Id of the VLAN.
    #[serde(rename = "vlanID")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan_id: i64,
    /// Name within this document.
    pub id: String,
    /// Name on the host.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15), regex(pattern = r"^[a-zA-Z][a-zA-Z0-9._-]*$"))]
    pub name: Option<String>,
    /// MTU in bytes.
    #[serde(default = "default_mtu")]
    #[schemars(range(min = 68, max = 9000))]
    pub mtu: i64,
    /// MAC address in `network_data.json`. The device itself has the address of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
    /// Id of the link below.
    pub vlan_link: String,
}

/// Addresses by family and source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Networks {
    /// Static IPv4 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ipv4_networks::<StaticNetwork>")]
    pub ipv4: Vec<StaticNetwork>,
    /// Static IPv6 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6: Vec<StaticNetwork>,
    /// IPv4 addresses from DHCP.
    #[serde(rename = "ipv4DHCP", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "ipv4_networks::<DynamicNetwork>")]
    pub ipv4_dhcp: Vec<DynamicNetwork>,
    /// IPv6 addresses from DHCP.
    #[serde(rename = "ipv6DHCP", skip_serializing_if = "Vec::is_empty")]
    pub ipv6_dhcp: Vec<DynamicNetwork>,
    /// IPv6 addresses from router advertisements.
    #[serde(rename = "ipv6SLAAC", skip_serializing_if = "Vec::is_empty")]
    pub ipv6_slaac: Vec<DynamicNetwork>,
}

/// The schema of networks whose routes have IPv4 prefixes.
fn ipv4_networks<N: JsonSchema>(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = Vec::<N>::json_schema(generator);
    if let Some(longest) = schema.pointer_mut("/items/properties/routes/items/properties/prefix/maximum") {
        *longest = 32.into();
    }
    schema
}

/// An address of a pool on a link.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.ipAddressFromIPPool) && self.ipAddressFromIPPool != '' || has(self.fromPoolRef) && self.fromPoolRef.name != '' || has(self.fromPoolAnnotation)").message("one of ipAddressFromIPPool, fromPoolRef and fromPoolAnnotation is required"))]
pub struct StaticNetwork {
    /// Name within this document.
    pub id: String,
    /// Id of the link.
    pub link: String,
    /// Name of the `IPPool`.
    #[serde(
        default,
        rename = "ipAddressFromIPPool",
        deserialize_with = "crate::metal3::filled",
        skip_serializing_if = "Option::is_none"
    )]
    pub ip_address_from_ip_pool: Option<String>,
    /// The pool, which takes precedence over the name.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub from_pool_ref: Option<PoolRef>,
    /// An annotation with the name of the pool, which takes precedence over both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_pool_annotation: Option<FromAnnotation>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteSpec>,
}

/// A link whose address is assigned by the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DynamicNetwork {
    /// Name within this document.
    pub id: String,
    /// Id of the link.
    pub link: String,
    /// Routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteSpec>,
}

/// A pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(POOL_KIND).message("a pool of Metal3 is an IPPool: name apiGroup for the pool of another provider"))]
pub struct PoolRef {
    /// Name of the pool.
    pub name: String,
    /// Group of the pool. Absent: `ipam.metal3.io`. Pools of other groups are claimed by `IPAddressClaim`s.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the pool. Absent: `IPPool`.
    #[serde(default, deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// Reads a reference without a name as absent, as [`crate::metal3::filled`] does with texts.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PoolRef>, D::Error> {
    let reference = Option::<PoolRef>::deserialize(deserializer)?;
    Ok(reference.filter(|reference| !reference.name.is_empty()))
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteSpec {
    /// Address of the network.
    #[schemars(regex(pattern = IP_ADDRESS))]
    pub network: String,
    /// Prefix length.
    #[serde(default)]
    #[schemars(range(min = 0, max = 128))]
    pub prefix: i32,
    /// Next hop.
    #[serde(default)]
    pub gateway: Gateway,
    /// DNS servers.
    #[serde(default)]
    pub services: Services,
}

/// A gateway; the first source that is set counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// The address.
    #[serde(deserialize_with = "crate::metal3::filled", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = IP_ADDRESS))]
    pub string: Option<String>,
    /// An annotation with the name of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_pool_annotation: Option<FromAnnotation>,
    /// A pool.
    #[serde(deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub from_pool_ref: Option<PoolRef>,
    /// Name of the `IPPool`.
    #[serde(
        rename = "fromIPPool",
        deserialize_with = "crate::metal3::filled",
        skip_serializing_if = "Option::is_none"
    )]
    pub from_ip_pool: Option<String>,
}

/// DNS servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Services {
    /// Addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = IP_ADDRESS)))]
    pub dns: Vec<String>,
    /// Name of the `IPPool` whose DNS servers are added.
    #[serde(
        rename = "dnsFromIPPool",
        deserialize_with = "crate::metal3::filled",
        skip_serializing_if = "Option::is_none"
    )]
    pub dns_from_ip_pool: Option<String>,
}
