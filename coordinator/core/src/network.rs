//! The network of a host: the reported one, the intended one, and the differences.
//!
//! `spec.observedNetwork` is set at the first registration and replayed by every plan, unless
//! `spec.network` takes precedence. Addresses and routes that DHCP and routers assigned are not
//! replayed, because their lease may go to another host.

mod bond;
mod connections;
mod drift;
mod error;
mod explicit;
mod ip_groups;
mod keyfile;
mod model;
mod observed;
mod openstack;
mod render_config;
mod render_keyfiles;
mod single_hosts;
mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_api::network::{NetworkTemplate, ObservedNetwork};
use coordinator_api::registration::MachineRegistration;
use ipnet::IpNet;
use proto::balancer::is_interface_name;
use proto::plan::Secret;
use serde::Serialize;

use connections::Translation;
pub use drift::describe_drift;
pub use error::NetworkError;
pub(crate) use explicit::is_empty;
pub use single_hosts::{SingleHost, TooManyHosts, render_single_hosts, single_host};
pub use wire::{Observation, check_size, parse_observed};

/// The network of a host in two equivalent languages (decision 24).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// network-config version 2, for images whose network cloud-init configures.
    pub network_config: Option<String>,
    /// Keyfiles by file name without `.nmconnection`, for images with `NetworkManager`, which
    /// ignore network-config. Empty if the network is given as network-config.
    pub connections: BTreeMap<String, Secret>,
    /// The `network_data.json` from which the network was rendered, for programs on the host.
    pub network_data: Option<Secret>,
}

/// The network of a host: `spec.network` unless empty, else `spec.observedNetwork`. If both are
/// empty, the image decides.
pub fn host_network(spec: &MachineInventorySpec) -> Result<HostNetwork, NetworkError> {
    let observed = spec.observed_network.as_ref();
    let template = spec.network.as_ref();
    let explicit = template.map(|template| explicit::explicit_network(template, observed)).transpose()?;
    match (explicit.flatten(), observed) {
        (Some(network), _) => Ok(network),
        (None, Some(observed)) => replay_observed(observed),
        (None, None) => Ok(HostNetwork::default()),
    }
}

/// True if `spec.network` takes precedence over the report.
pub(crate) fn is_explicit(spec: &MachineInventorySpec) -> bool {
    let config = spec.network.as_ref().and_then(|template| template.config.as_ref());
    config.is_some_and(|config| !is_empty(config))
}

/// The network of an explicit template for hosts without inventory; `None` if it is empty.
pub fn template_network(template: &NetworkTemplate) -> Result<Option<HostNetwork>, NetworkError> {
    explicit::explicit_network(template, None)
}

/// The network of live systems, as the seed ISO has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LiveNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    network_config: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    connections: BTreeMap<String, String>,
}

/// The network of `OpenStack`'s `network_data.json`, for a host with the `observed` network.
pub fn network_data(text: &str, observed: Option<&ObservedNetwork>) -> Result<HostNetwork, NetworkError> {
    let network = openstack::parse_network_data(text, observed)?;
    let network = render_network(&network, BTreeMap::new(), &[], |_| true)?;
    Ok(HostNetwork { network_data: Some(Secret::new(text.as_bytes().to_vec())), ..network })
}

/// The network of the live systems of a registration. `None` if the registration has none, or if
/// an address differs from host to host.
pub fn live_network(registration: &MachineRegistration) -> Option<LiveNetwork> {
    let network = registration.spec.config.as_ref()?.network.as_ref()?;
    LiveNetwork::of_host(template_network(&network.template()).ok()??)
}

impl LiveNetwork {
    /// `None` if the network is empty.
    fn of_host(network: HostNetwork) -> Option<Self> {
        let HostNetwork { network_config, connections, network_data: _ } = network;
        let connections: BTreeMap<_, _> = connections
            .into_iter()
            .map(|(name, content)| (name, String::from_utf8_lossy(content.expose()).into_owned()))
            .collect();
        let is_empty = network_config.is_none() && connections.is_empty();
        (!is_empty).then_some(Self { network_config, connections })
    }
}

/// Keyfiles take precedence for their interfaces, because an operator wrote them. Of the other
/// interfaces, cards with assigned addresses are replayed. Interfaces with static addresses are
/// not: an imported report does not tell them from interfaces of containers.
fn replay_observed(observed: &ObservedNetwork) -> Result<HostNetwork, NetworkError> {
    if observed.connections.is_empty() {
        let network = observed::parse_network(observed)?;
        return render_network(&network, BTreeMap::new(), &[], |_| true);
    }
    let Translation { mut network, untranslated } =
        connections::translate_connections(&observed.connections, Some(observed))?;
    let written: Vec<_> = network.devices.keys().cloned().collect();
    let is_written = |name: &str| written.iter().any(|known| known == name);
    let reported = observed.interfaces.iter().filter(|given| {
        let is_assigned = given.address_sources().is_any();
        given.is_card() && given.master_name().is_none() && is_assigned && !is_written(&given.name)
    });
    let reported = ObservedNetwork { interfaces: reported.cloned().collect(), ..ObservedNetwork::default() };
    network.devices.extend(observed::parse_network(&reported)?.devices);
    render_network(&network, observed.connections.clone(), &untranslated, |name| !is_written(name))
}

/// Renders both languages. The given `connections` stay unchanged; the keyfiles of devices that
/// are `rendered` are added to them.
fn render_network(
    network: &model::Network,
    mut connections: BTreeMap<String, String>,
    untranslated: &[String],
    is_rendered: impl Fn(&str) -> bool,
) -> Result<HostNetwork, NetworkError> {
    for (name, text) in render_keyfiles::render_keyfiles(network, is_rendered) {
        connections.entry(name).or_insert(text);
    }
    let is_empty = network.devices.is_empty();
    let network_config =
        if is_empty { None } else { Some(render_config::render_config(network, untranslated)?) };
    let connections = connections.into_iter().map(|(name, text)| (name, Secret::new(text.into_bytes())));
    Ok(HostNetwork { network_config, connections: connections.collect(), network_data: None })
}

fn parse_net(place: &str, text: &str) -> Result<IpNet, NetworkError> {
    text.parse().map_err(|_| bad_value(place, text, "address with a prefix length"))
}

fn parse_address(place: &str, text: &str) -> Result<IpAddr, NetworkError> {
    text.parse().map_err(|_| bad_value(place, text, "IP address"))
}

fn parse_destination(place: &str, text: &str) -> Result<IpNet, NetworkError> {
    Ok(parse_net(place, text)?.trunc())
}

/// Six octets in lower case. `None` for an absent address and for zeros, because no interface is
/// found by them.
fn parse_mac(place: &str, text: Option<&str>) -> Result<Option<String>, NetworkError> {
    let text = text.unwrap_or("");
    let mac = text.trim().to_ascii_lowercase().replace('-', ":");
    if mac.is_empty() || mac == "00:00:00:00:00:00" {
        return Ok(None);
    }
    if is_mac(&mac) { Ok(Some(mac)) } else { Err(bad_value(place, text, "MAC address of six octets")) }
}

/// Six octets in hexadecimal digits, separated by colons or dashes.
pub(crate) fn is_mac(text: &str) -> bool {
    let octets: Vec<_> = text.split([':', '-']).collect();
    octets.len() == 6
        && octets.iter().all(|octet| octet.len() == 2 && octet.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn parse_vlan_id(place: &str, text: &str) -> Result<i64, NetworkError> {
    let id = text.parse().ok().filter(|id| (1..=4094).contains(id));
    id.ok_or_else(|| bad_value(place, text, "VLAN id (1 to 4094)"))
}

fn check_name(name: &str) -> Result<(), NetworkError> {
    let wanted = "name of an interface (1 to 15 of a-z A-Z 0-9 - _ . : @)";
    if is_interface_name(name) { Ok(()) } else { Err(bad_value("interfaces", name, wanted)) }
}

fn check_domain(domain: &str) -> Result<(), NetworkError> {
    let is_valid = (1..=253).contains(&domain.len())
        && domain.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_valid { Ok(()) } else { Err(bad_value("searchDomains", domain, "domain")) }
}

/// Addresses that identify no host: link-local, loopback, multicast and unspecified ones.
pub(crate) fn is_special(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    link_local || address.is_loopback() || address.is_multicast() || address.is_unspecified()
}

fn bad_value(place: &str, value: &str, wanted: &'static str) -> NetworkError {
    let value = value.chars().take(64).collect();
    NetworkError::Value { place: place.to_owned(), value, wanted }
}

fn missing_value(interface: &str, role: &'static str, missing: &str) -> NetworkError {
    NetworkError::InterfaceMissing { interface: interface.to_owned(), role, missing: missing.to_owned() }
}

fn interface_path(name: &str) -> String {
    format!("interface {name}")
}
