//! The network of a host: what it reported, what it is to have, and how the
//! two differ.
//!
//! `spec.observedNetwork` is set at the first registration and replayed by
//! every plan; `spec.network` wins. Addresses and routes that DHCP and routers
//! assigned are never frozen: the lease of a frozen address could be given to
//! another host.

mod drift;
mod explicit;
mod model;
mod render;
mod wire;

use std::net::IpAddr;

use coordinator_api::inventory::MachineInventorySpec;
use coordinator_api::network::ObservedNetwork;
use ipnet::IpNet;

pub use drift::describe_drift;
pub use wire::{Observation, parse_observed};

/// Why a network cannot be taken or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// More than the contract allows.
    #[error("{what}: {count} were sent, {max} are allowed: use an agent of the coordinator's version")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// See [`proto::limits`].
        max: usize,
    },
    /// A value that is not what its field holds.
    #[error("{place}: {value:?} is no {wanted}: correct it in spec.observedNetwork, or set spec.network")]
    Value {
        /// The interface, or the list.
        place: String,
        /// As it came, cut to 64 characters.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A value occurs twice.
    #[error(
        "{place}: {value} occurs twice: remove one of them from spec.observedNetwork, or set spec.network"
    )]
    Duplicate {
        /// The interface, or the list.
        place: String,
        /// What.
        value: String,
    },
    /// An interface names one that is not there.
    #[error(
        "interface {interface}: its {role} {missing} is not there: add it to spec.observedNetwork, or set spec.network"
    )]
    InterfaceMissing {
        /// Who names it.
        interface: String,
        /// Parent, master, member or primary.
        role: &'static str,
        /// Who is named.
        missing: String,
    },
    /// An interface without the address that it is found by.
    #[error(
        "interface {interface}: it has no MAC address, so that no configuration can find it: add permanentMAC to spec.observedNetwork, or set spec.network"
    )]
    MacMissing {
        /// Which.
        interface: String,
    },
    /// A frame of the VLAN would not fit its parent.
    #[error(
        "interface {interface}: its MTU {mtu} is above {parent_mtu} of its parent {parent}: lower it in spec.observedNetwork, or raise the parent's"
    )]
    Mtu {
        /// The VLAN.
        interface: String,
        /// Of the VLAN.
        mtu: i64,
        /// Its parent.
        parent: String,
        /// Of the parent.
        parent_mtu: i64,
    },
    /// Destination and gateway are not both IPv4 or both IPv6.
    #[error(
        "interface {interface}: the route to {destination} has a gateway of the other family, {gateway}: correct it in spec.observedNetwork, or set spec.network"
    )]
    Family {
        /// Where the route leaves.
        interface: String,
        /// Of the route.
        destination: IpNet,
        /// Of the route.
        gateway: IpAddr,
    },
    /// No address of the interface shares a subnet with the gateway.
    #[error(
        "interface {interface}: gateway {gateway} is outside every subnet of its addresses: add an address or a route that reaches it to spec.observedNetwork, or set spec.network (on-link: true works only where cloud-init renders by netplan)"
    )]
    GatewayUnreachable {
        /// Where the route leaves.
        interface: String,
        /// Of the route.
        gateway: IpAddr,
    },
    /// A route that leaves by no interface, or by one that is not there.
    #[error(
        "the route to {destination} leaves by no interface of the host: name one in spec.observedNetwork, or set spec.network"
    )]
    RouteWithoutInterface {
        /// Of the route.
        destination: IpNet,
    },
    /// An explicit network in a language that is not spoken here.
    #[error(
        "spec.network.configurator {configurator} cannot be rendered: set it to none and give network-config version 2 in spec.network.config, or remove spec.network to replay the observed network"
    )]
    Configurator {
        /// Its name.
        configurator: &'static str,
    },
    /// An explicit network that is no network-config version 2.
    #[error(
        "spec.network.config is no network-config version 2: give a map with version: 2 (netplan's own form, or below network:), or remove spec.network to replay the observed network"
    )]
    NotVersion2,
    /// A `{name}` without a value.
    #[error("spec.network.config names {{{name}}}, and spec.network.ipAddresses has no such key: add it")]
    Placeholder {
        /// Between the braces.
        name: String,
    },
    /// Cannot be written as YAML.
    #[error("the network-config cannot be written ({0}): simplify spec.network.config")]
    Render(String),
}

/// network-config version 2 of a host: `spec.network` unless empty,
/// else `spec.observedNetwork`. `None` when neither does: the image decides.
///
/// # Errors
/// [`NetworkError`], which names the interface and the next action.
pub fn network_config(spec: &MachineInventorySpec) -> Result<Option<String>, NetworkError> {
    let explicit = spec.network.as_ref().map(explicit::explicit_config).transpose()?.flatten();
    match (explicit, &spec.observed_network) {
        (Some(config), _) => Ok(Some(config)),
        (None, Some(observed)) => replay_observed(observed),
        (None, None) => Ok(None),
    }
}

fn replay_observed(observed: &ObservedNetwork) -> Result<Option<String>, NetworkError> {
    let network = model::Network::parse_observed(observed)?;
    if network.devices.is_empty() {
        return Ok(None);
    }
    render::render_yaml(&network).map(Some)
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
fn is_special(address: IpAddr) -> bool {
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
