//! The network of a host: what it reported, what it is to have, and how the
//! two differ.
//!
//! `spec.observedNetwork` is set at the first registration and replayed by
//! every plan; `spec.network` wins. Addresses and routes that DHCP and routers
//! assigned are never frozen: the lease of a frozen address could be given to
//! another host.

mod connection_ip;
mod connections;
mod drift;
mod error;
mod explicit;
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
use coordinator_api::network::{NetworkTemplate, ObservedInterface, ObservedNetwork};
use coordinator_api::registration::MachineRegistration;
use ipnet::IpNet;
use proto::plan::Secret;
use serde::Serialize;

use connections::Translation;
pub use drift::describe_drift;
pub use error::NetworkError;
pub use single_hosts::{SingleHost, TooManyHosts, render_single_hosts, single_host};
pub use wire::{Observation, parse_observed};

/// The network of a host, in two languages that say the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// network-config version 2, for images whose network cloud-init
    /// configures.
    pub network_config: Option<String>,
    /// Keyfiles by file name without `.nmconnection`, for images with
    /// `NetworkManager`, which take them and not the other. Empty where
    /// network-config alone was given.
    pub connections: BTreeMap<String, Secret>,
    /// The `network_data.json` that the other two were made of, for programs on
    /// the host that read it.
    pub network_data: Option<Secret>,
}

/// The network of a host: `spec.network` unless empty, else
/// `spec.observedNetwork`. Empty when neither says anything: the image decides.
///
/// # Errors
/// [`NetworkError`], which names the interface and the next action.
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

/// The network of an explicit template, for hosts that nothing is known of.
pub fn template_network(template: &NetworkTemplate) -> Result<HostNetwork, NetworkError> {
    Ok(explicit::explicit_network(template, None)?.unwrap_or_default())
}

/// The network of live systems, in the words of the seed ISO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LiveNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    network_config: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    connections: BTreeMap<String, String>,
}

/// The network of `OpenStack`'s `network_data.json`, for a host whose network was
/// `observed`.
///
/// # Errors
/// [`NetworkError`], which names the place and the next action.
pub fn network_data(text: &str, observed: Option<&ObservedNetwork>) -> Result<HostNetwork, NetworkError> {
    let network = openstack::parse_network_data(text, observed)?;
    let network = render_network(&network, BTreeMap::new(), &[], |_| true)?;
    Ok(HostNetwork { network_data: Some(Secret::new(text.as_bytes().to_vec())), ..network })
}

/// What a registration says of the network of each of its hosts: they boot
/// with it before anything is known of them. `None` where an address is still
/// to be filled in, and where it says nothing.
pub fn live_network(registration: &MachineRegistration) -> Option<LiveNetwork> {
    let network = registration.spec.config.as_ref()?.network.as_ref()?;
    LiveNetwork::of_host(template_network(&network.template()).ok()?)
}

impl LiveNetwork {
    /// `None` where nothing is said.
    fn of_host(network: HostNetwork) -> Option<Self> {
        let HostNetwork { network_config, connections, network_data: _ } = network;
        let text = |content: Secret| String::from_utf8_lossy(content.expose()).into_owned();
        let connections: BTreeMap<_, _> =
            connections.into_iter().map(|(name, content)| (name, text(content))).collect();
        let is_empty = network_config.is_none() && connections.is_empty();
        (!is_empty).then_some(Self { network_config, connections })
    }
}

/// Keyfiles are what an operator wrote, and decide for their interfaces. A
/// report decides for the others, as far as it says how they are configured:
/// imported ones do not, and list what containers made.
fn replay_observed(observed: &ObservedNetwork) -> Result<HostNetwork, NetworkError> {
    if observed.connections.is_empty() {
        let network = observed::parse_network(observed)?;
        return render_network(&network, BTreeMap::new(), &[], |_| true);
    }
    let Translation { mut network, untranslated } =
        connections::translate_connections(&observed.connections, Some(observed))?;
    let written: Vec<_> = network.devices.keys().cloned().collect();
    let is_written = |name: &str| written.iter().any(|known| known == name);
    let is_reported = |given: &&ObservedInterface| {
        let plain = given.kind.as_deref().unwrap_or_default().is_empty() && given.master.is_none();
        plain && (given.dhcp4 || given.dhcp6 || given.accept_ra) && !is_written(&given.name)
    };
    let reported = ObservedNetwork {
        interfaces: observed.interfaces.iter().filter(is_reported).cloned().collect(),
        ..ObservedNetwork::default()
    };
    network.devices.extend(observed::parse_network(&reported)?.devices);
    render_network(&network, observed.connections.clone(), &untranslated, |name| !is_written(name))
}

/// Both languages; `connections` are kept as they are, those of devices that
/// are `rendered` are added.
fn render_network(
    network: &model::Network,
    mut connections: BTreeMap<String, String>,
    untranslated: &[String],
    rendered: impl Fn(&str) -> bool,
) -> Result<HostNetwork, NetworkError> {
    for (name, text) in render_keyfiles::render_keyfiles(network, rendered) {
        connections.entry(name).or_insert(text);
    }
    let is_empty = network.devices.is_empty();
    let network_config =
        if is_empty { None } else { Some(render_config::render_config(network, untranslated)?) };
    let connections = connections.into_iter().map(|(name, text)| (name, Secret::new(text.into_bytes())));
    Ok(HostNetwork { network_config, connections: connections.collect(), network_data: None })
}

/// An address with its prefix, or why not.
fn parse_net(place: &str, text: &str) -> Result<IpNet, NetworkError> {
    text.parse().map_err(|_| bad_value(place, text, "address with a prefix length"))
}

fn parse_address(place: &str, text: &str) -> Result<IpAddr, NetworkError> {
    text.parse().map_err(|_| bad_value(place, text, "IP address"))
}

fn parse_destination(place: &str, text: &str) -> Result<IpNet, NetworkError> {
    Ok(parse_net(place, text)?.trunc())
}

/// Six octets, lower case; `None` for nothing and for zeros, by which no
/// interface is found.
fn parse_mac(place: &str, text: &str) -> Result<Option<String>, NetworkError> {
    let mac = text.trim().to_ascii_lowercase().replace('-', ":");
    if mac.is_empty() || mac == "00:00:00:00:00:00" {
        return Ok(None);
    }
    let octet = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if mac.split(':').count() != 6 || !mac.split(':').all(octet) {
        return Err(bad_value(place, text, "MAC address of six octets"));
    }
    Ok(Some(mac))
}

/// What the kernel takes as a name and YAML as a plain key.
fn check_name(name: &str) -> Result<(), NetworkError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    let fine = (1..=15).contains(&name.len()) && name.chars().all(allowed) && name != "." && name != "..";
    if fine {
        Ok(())
    } else {
        Err(bad_value("interfaces", name, "name of an interface (1 to 15 of a-z A-Z 0-9 - _ . : @)"))
    }
}

fn check_domain(domain: &str) -> Result<(), NetworkError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fine = (1..=253).contains(&domain.len()) && domain.chars().all(allowed);
    if fine { Ok(()) } else { Err(bad_value("searchDomains", domain, "domain")) }
}

/// Addresses that are the same on every link, or no address of a host at all.
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
