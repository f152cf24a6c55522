//! From an agent's message to the object's field.

use std::collections::BTreeSet;

use coordinator_api::network::{
    ObservedBond, ObservedInterface, ObservedNetwork, ObservedRoute, ObservedVlan,
};
use ipnet::IpNet;
use proto::{limits, v1alpha1 as wire};

use super::{
    NetworkError, bad, check_domain, check_name, interface, is_special, parse_address, parse_destination,
    parse_mac, parse_net,
};

/// Resolvers and search domains of one host; resolvers look at far fewer.
const NAMES: usize = 32;
/// `NetworkManager` keyfiles of one host, bytes.
const CONNECTIONS_BYTES: usize = 256 * 1024;
/// Addresses of one interface.
const ADDRESSES: usize = 256;

/// What an agent reported, checked and in canonical form: lower-case MACs, no
/// link-local address, no resolver that is only a local stub.
///
/// # Errors
/// [`NetworkError`] when a bound is exceeded or a value is none of its field.
pub fn observed(network: wire::ObservedNetwork) -> Result<ObservedNetwork, NetworkError> {
    bound("interfaces", network.interfaces.len(), limits::INTERFACES)?;
    bound("routes", network.routes.len(), limits::ROUTES)?;
    bound("dnsServers", network.dns_servers.len(), NAMES)?;
    bound("searchDomains", network.search_domains.len(), NAMES)?;
    let bytes = network.connections.iter().map(|(name, text)| name.len() + text.len()).sum();
    bound("bytes of connections", bytes, CONNECTIONS_BYTES)?;
    let mut names = BTreeSet::new();
    for interface in &network.interfaces {
        if !names.insert(interface.name.clone()) {
            return Err(NetworkError::Duplicate {
                place: "interfaces".into(),
                value: interface.name.clone(),
            });
        }
    }
    let mut dns_servers = Vec::new();
    for server in &network.dns_servers {
        let address = parse_address("dnsServers", server)?;
        if !address.is_loopback() {
            dns_servers.push(address.to_string());
        }
    }
    network.search_domains.iter().try_for_each(|domain| check_domain(domain))?;
    Ok(ObservedNetwork {
        interfaces: network.interfaces.into_iter().map(parse_interface).collect::<Result<_, _>>()?,
        routes: network.routes.iter().map(|route| parse_route(route, &names)).collect::<Result<_, _>>()?,
        dns_servers,
        search_domains: network.search_domains,
        connections: network.connections.into_iter().collect(),
    })
}

fn bound(what: &'static str, count: usize, max: usize) -> Result<(), NetworkError> {
    if count <= max { Ok(()) } else { Err(NetworkError::TooMany { what, count, max }) }
}

fn parse_interface(given: wire::Interface) -> Result<ObservedInterface, NetworkError> {
    check_name(&given.name)?;
    let place = interface(&given.name);
    bound("addresses of an interface", given.addresses.len(), ADDRESSES)?;
    bound("addresses of an interface", given.dynamic_addresses.len(), ADDRESSES)?;
    let addresses = parse_addresses(&place, &given.addresses)?;
    let mut dynamic_addresses = parse_addresses(&place, &given.dynamic_addresses)?;
    dynamic_addresses.retain(|address| addresses.contains(address));
    if !["", "bond", "vlan", "bridge"].contains(&given.kind.as_str()) {
        return Err(bad(&place, &given.kind, "kind (bond, vlan, bridge or nothing)"));
    }
    if !given.master.is_empty() {
        check_name(&given.master)?;
    }
    Ok(ObservedInterface {
        mac: parse_mac(&place, &given.mac)?,
        permanent_mac: parse_mac(&place, &given.permanent_mac)?,
        mtu: number(given.mtu),
        addresses,
        dynamic_addresses,
        kind: text(given.kind),
        master: text(given.master),
        dhcp4: given.dhcp4,
        dhcp6: given.dhcp6,
        accept_ra: given.accept_ra,
        bond: given.bond.map(|bond| parse_bond(&place, bond)).transpose()?,
        vlan: given.vlan.map(|vlan| parse_vlan(&place, vlan)).transpose()?,
        name: given.name,
    })
}

fn parse_addresses(place: &str, addresses: &[String]) -> Result<Vec<String>, NetworkError> {
    let mut parsed: Vec<String> = Vec::new();
    for address in addresses {
        let net = parse_net(place, address)?;
        let text = net.to_string();
        if !is_special(net.addr()) && !parsed.contains(&text) {
            parsed.push(text);
        }
    }
    Ok(parsed)
}

fn parse_bond(place: &str, bond: wire::Bond) -> Result<ObservedBond, NetworkError> {
    let word = |text: &str| text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_graphic());
    for value in [&bond.mode, &bond.lacp_rate, &bond.transmit_hash_policy] {
        if !word(value) {
            return Err(bad(place, value, "parameter of a bond"));
        }
    }
    if !bond.primary.is_empty() {
        check_name(&bond.primary)?;
    }
    Ok(ObservedBond {
        mode: bond.mode,
        miimon: number(bond.miimon),
        lacp_rate: text(bond.lacp_rate),
        transmit_hash_policy: text(bond.transmit_hash_policy),
        primary: text(bond.primary),
    })
}

fn parse_vlan(place: &str, vlan: wire::Vlan) -> Result<ObservedVlan, NetworkError> {
    check_name(&vlan.link)?;
    if !(1..=4094).contains(&vlan.id) {
        return Err(bad(place, &vlan.id.to_string(), "VLAN id (1 to 4094)"));
    }
    Ok(ObservedVlan { id: i64::from(vlan.id), link: vlan.link })
}

fn parse_route(route: &wire::Route, names: &BTreeSet<String>) -> Result<ObservedRoute, NetworkError> {
    let destination: IpNet = parse_destination("routes", &route.destination)?;
    if !names.contains(&route.interface) {
        return Err(NetworkError::RouteWithoutInterface { destination });
    }
    let gateway = (!route.gateway.is_empty()).then(|| parse_address("routes", &route.gateway)).transpose()?;
    Ok(ObservedRoute {
        destination: destination.to_string(),
        gateway: gateway.map(|gateway| gateway.to_string()),
        interface: Some(route.interface.clone()),
        metric: number(route.metric),
        dynamic: route.dynamic,
    })
}

/// The wire has no absent text.
fn text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The wire has no absent number.
fn number(number: u32) -> Option<i64> {
    (number != 0).then(|| i64::from(number))
}
