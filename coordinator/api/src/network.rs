//! `spec.observedNetwork` and `spec.network`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The network that a host had when it registered from the live system. Every
/// reprovision replays it. It is written once; later reports go to
/// `status.observedNetwork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedNetwork {
    /// Interfaces of the host, except interfaces that containers and tunnels create.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<ObservedInterface>,
    /// Routes of both families that are not implied by an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ObservedRoute>,
    /// Addresses of resolvers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Search domains for short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
    /// `NetworkManager` keyfiles by file name without `.nmconnection`. A keyfile
    /// takes precedence over the report for its interface.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<String, String>,
    /// Ours: parts of the report that no plan replays, each with its cause. They are named by
    /// the condition `NetworkIncomplete`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_replayed: Vec<String>,
}

/// An interface of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedInterface {
    /// Kernel name.
    pub name: String,
    /// Current MAC address, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Ours: burnt-in MAC address, because members of a bond share the current one. Absent:
    /// the interface has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_mac: Option<String>,
    /// MTU in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
    /// Global addresses in CIDR notation, of both families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Ours: the part of `addresses` that DHCP or a router assigned; never replayed.
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

/// Sources that assign addresses to an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressSources {
    /// IPv4 comes from DHCP.
    pub dhcp4: bool,
    /// IPv6 comes from DHCP.
    pub dhcp6: bool,
    /// IPv6 comes from router advertisements.
    pub accept_ra: bool,
}

impl AddressSources {
    /// Any address of the interface may be assigned.
    pub fn is_any(self) -> bool {
        self.dhcp4 || self.assigns_ipv6()
    }

    /// An IPv6 address of the interface may be assigned.
    pub fn assigns_ipv6(self) -> bool {
        self.dhcp6 || self.accept_ra
    }
}

impl ObservedInterface {
    /// The interface is a network card, which has no kind. Imported inventories write an
    /// empty one.
    pub fn is_card(&self) -> bool {
        self.kind.as_deref().is_none_or(str::is_empty)
    }

    /// The bond or bridge of a member. Imported inventories write an empty name.
    pub fn master_name(&self) -> Option<&str> {
        self.master.as_deref().filter(|name| !name.is_empty())
    }

    /// The MAC address by which the card is found: the burnt-in one if it is known.
    pub fn card_mac(&self) -> Option<&str> {
        self.permanent_mac.as_deref().or(self.mac.as_deref())
    }

    /// Sources that assign the addresses of this interface.
    pub fn address_sources(&self) -> AddressSources {
        let Self { dhcp4, dhcp6, accept_ra, .. } = *self;
        AddressSources { dhcp4, dhcp6, accept_ra }
    }
}

/// Parameters of a bond, with the kernel's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedBond {
    /// `802.3ad`, `active-backup`, …
    pub mode: String,
    /// Interval of the link checks in milliseconds.
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
    /// Milliseconds before a link counts as up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_delay: Option<i64>,
    /// Milliseconds before a link counts as down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_delay: Option<i64>,
    /// `better` or `failure`: when the preferred member becomes active again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_reselect: Option<String>,
    /// `bandwidth` or `count`: choice of the aggregator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ad_select: Option<String>,
    /// Number of active members that the bond needs to be up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_links: Option<i64>,
    /// Milliseconds between two ARP requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arp_interval: Option<i64>,
    /// Addresses that are asked for by ARP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arp_ip_targets: Vec<String>,
    /// `active`, `backup` or `all`: members whose ARP answers are checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arp_validate: Option<String>,
    /// `all`: every target has to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arp_all_targets: Option<String>,
    /// `active` or `follow`: the MAC address after a failover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_over_mac: Option<String>,
    /// Number of announcements after a failover. Absent: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gratuitous_arp: Option<i64>,
    /// Number of IGMP reports after a failover. Absent: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend_igmp: Option<i64>,
    /// Number of packets that a member sends before the next member's turn. Absent: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_member: Option<i64>,
    /// Seconds between two learning packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn_packet_interval: Option<i64>,
    /// Inactive members receive frames.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_members_active: bool,
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

/// A route of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedRoute {
    /// CIDR; the word `default` is read as the IPv4 default route.
    pub destination: String,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Outgoing interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Metric of the route, a number; the route with the lowest metric is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,
    /// Ours: DHCP or a router installed it; never replayed. Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
    /// Ours: the gateway is reached on the link, also if it is in no subnet of the interface.
    /// Absent: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_link: bool,
}

/// Format of `spec.network.config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Configurator {
    /// `config` is network-config version 2, or absent.
    #[default]
    None,
    /// `config` is input of nm-configurator, which is rejected.
    Nmc,
    /// `config` is input of nmstate, which is rejected.
    Nmstate,
    /// `config` holds `NetworkManager` keyfiles by name.
    Nmconnections,
}

/// An explicit network, which takes precedence over the observed one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkTemplate {
    /// Format of `config`.
    pub configurator: Configurator,
    /// Values of the placeholders `{name}` in `config`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ip_addresses: BTreeMap<String, String>,
    /// The configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_value")]
    pub config: Option<Value>,
}

/// An explicit network for the hosts of a registration and for their live systems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistrationNetwork {
    /// Format of `config`.
    pub configurator: Configurator,
    /// Rejected, because no address is claimed from a pool. An operator writes the
    /// values of the placeholders `{name}` in `config` to `spec.network.ipAddresses` of
    /// each inventory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::any_object")]
    pub ip_addresses: BTreeMap<String, Value>,
    /// The configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_value")]
    pub config: Option<Value>,
}

impl RegistrationNetwork {
    /// The template of one host. It has no values of placeholders, because a pool is no
    /// address.
    pub fn template(&self) -> NetworkTemplate {
        NetworkTemplate {
            configurator: self.configurator,
            ip_addresses: BTreeMap::new(),
            config: self.config.clone(),
        }
    }
}
