//! `spec.observedNetwork` and `spec.network`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The network that a host had when it registered from the live system, and
/// that every reprovision replays. Written once; later reports go to
/// `status.observedNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedNetwork {
    /// Interfaces of the host, without those that software makes for itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<ObservedInterface>,
    /// Routes of both families that are not implied by an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ObservedRoute>,
    /// Addresses of resolvers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Domains that short names are looked up in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
    /// `NetworkManager` keyfiles by file name without `.nmconnection`; they
    /// decide for their interfaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<String, String>,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedInterface {
    /// Kernel name.
    pub name: String,
    /// Current MAC address, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Ours: burnt-in MAC address; members of a bond share the current one. Absent: the
    /// interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_mac: Option<String>,
    /// Largest packet, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// Global addresses in CIDR notation, of both families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Ours: those of `addresses` that DHCP or a router assigned; never replayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dynamic_addresses: Vec<String>,
    /// Empty for plain ethernet; bond, vlan or bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The bond or bridge that this interface is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Ours: IPv4 comes from DHCP. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhcp4: bool,
    /// Ours: IPv6 comes from DHCP. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhcp6: bool,
    /// Ours: IPv6 comes from router advertisements. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_ra: bool,
    /// Ours: parameters of a bond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<ObservedBond>,
    /// Ours: parameters of a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<ObservedVlan>,
}

/// Parameters of a bond, with the kernel's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedBond {
    /// `802.3ad`, `active-backup`, …
    pub mode: String,
    /// Milliseconds between checks of the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miimon: Option<i64>,
    /// `slow` or `fast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<String>,
    /// `layer2`, `layer3+4`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_hash_policy: Option<String>,
    /// Preferred member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
}

/// Parameters of a VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedVlan {
    /// Id of the VLAN, 1 to 4094.
    pub id: i64,
    /// Name of the parent interface.
    pub link: String,
}

/// One route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedRoute {
    /// CIDR; the word `default` is read as the IPv4 default route.
    pub destination: String,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Interface that the route leaves by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Preference of the route, a number: lower is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,
    /// Ours: DHCP or a router installed it; never replayed. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
}

/// How `spec.network.config` is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Configurator {
    /// network-config version 2, or no explicit network.
    #[default]
    None,
    /// Input of nm-configurator: refused.
    Nmc,
    /// Input of nmstate: refused.
    Nmstate,
    /// `NetworkManager` keyfiles by name.
    Nmconnections,
}

/// An explicit network; wins over the observed one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkTemplate {
    /// How `config` is to be read.
    pub configurator: Configurator,
    /// Values for `{name}` in `config`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ip_addresses: BTreeMap<String, String>,
    /// The configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_value")]
    pub config: Option<Value>,
}

/// An explicit network for the hosts of a registration, their live systems
/// included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistrationNetwork {
    /// How `config` is to be read.
    pub configurator: Configurator,
    /// Refused: no address is claimed from a pool. An operator writes the
    /// values of `{name}` in `config` to `spec.network.ipAddresses` of each
    /// inventory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub ip_addresses: BTreeMap<String, Value>,
    /// The configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_value")]
    pub config: Option<Value>,
}

impl RegistrationNetwork {
    /// The same for one host. A pool is no address.
    pub fn template(&self) -> NetworkTemplate {
        NetworkTemplate {
            configurator: self.configurator,
            ip_addresses: BTreeMap::new(),
            config: self.config.clone(),
        }
    }
}
