//! From an agent's message to the object's field.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use coordinator_api::network::{
    ObservedBond, ObservedInterface, ObservedNetwork, ObservedRoute, ObservedVlan,
};
use ipnet::IpNet;
use proto::{limits, v1alpha1 as wire};

use super::connections::check_connection;
use super::{
    NetworkError, bad_value, check_domain, check_name, interface_path, is_special, missing_value,
    parse_address, parse_destination, parse_mac, parse_net,
};

/// Resolvers and search domains of one host; resolvers look at far fewer.
const NAMES: usize = 32;
/// `NetworkManager` keyfiles of one host, bytes.
const CONNECTIONS_BYTES: usize = 256 * 1024;
/// Addresses of one interface.
const ADDRESSES: usize = 256;
/// Causes of what was left out, for one report.
const DROPPED: usize = 16;

/// A network as an agent reported it, in canonical form: lower-case MACs, no
/// link-local address, no resolver that is only a local stub.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    pub network: ObservedNetwork,
    /// What was left out: it could not be replayed. The network is not the
    /// identity of a host, and no reason to refuse it.
    pub dropped: Vec<NetworkError>,
}

/// Parses what an agent reported.
pub fn parse_observed(network: wire::ObservedNetwork) -> Observation {
    let mut dropped = Dropped(vec![]);
    let mut interfaces = parse_interfaces(network.interfaces, &mut dropped);
    drop_dangling(&mut interfaces, &mut dropped);
    let names: BTreeSet<_> = interfaces.iter().map(|interface| interface.name.clone()).collect();
    let routes = dropped.keep_bounded("routes", network.routes, limits::ROUTES);
    let routes = dropped.keep_valid(routes.iter().map(|route| parse_route(route, &names)));
    let servers = dropped.keep_bounded("dnsServers", network.dns_servers, NAMES);
    let servers = dropped.keep_valid(servers.iter().map(|server| parse_address("dnsServers", server)));
    let domains = dropped.keep_bounded("searchDomains", network.search_domains, NAMES);
    let domains = domains.into_iter().map(|domain| check_domain(&domain).map(|()| domain));
    let search_domains = dropped.keep_valid(domains);
    let network = ObservedNetwork {
        interfaces,
        routes,
        dns_servers: servers
            .into_iter()
            .filter(|server| !server.is_loopback())
            .map(|server| server.to_string())
            .collect(),
        search_domains,
        connections: bounded_connections(network.connections, &mut dropped),
    };
    Observation { network, dropped: dropped.0 }
}

/// What is left out, up to a bound.
struct Dropped(Vec<NetworkError>);

impl Dropped {
    fn push_error(&mut self, error: NetworkError) {
        if self.0.len() < DROPPED {
            self.0.push(error);
        }
    }

    fn keep_valid<T>(&mut self, parsed: impl Iterator<Item = Result<T, NetworkError>>) -> Vec<T> {
        parsed.filter_map(|parsed| parsed.map_err(|error| self.push_error(error)).ok()).collect()
    }

    fn keep_bounded<T>(&mut self, what: &'static str, mut list: Vec<T>, max: usize) -> Vec<T> {
        if list.len() > max {
            self.push_error(NetworkError::TooMany { what, count: list.len(), max });
            list.truncate(max);
        }
        list
    }
}

fn parse_interfaces(given: Vec<wire::Interface>, dropped: &mut Dropped) -> Vec<ObservedInterface> {
    let mut names = BTreeSet::new();
    let mut interfaces = vec![];
    for interface in dropped.keep_bounded("interfaces", given, limits::INTERFACES) {
        let name = interface.name.clone();
        let parsed = parse_interface(interface, dropped);
        if names.contains(&name) {
            dropped.push_error(NetworkError::Duplicate { place: "interfaces".into(), value: name });
            continue;
        }
        match parsed {
            Ok(parsed) => {
                names.insert(name);
                interfaces.push(parsed);
            }
            Err(error) => dropped.push_error(error),
        }
    }
    interfaces
}

/// Drops VLANs whose parent was dropped, and names of masters that were.
fn drop_dangling(interfaces: &mut Vec<ObservedInterface>, dropped: &mut Dropped) {
    loop {
        let names: BTreeSet<_> = interfaces.iter().map(|interface| interface.name.clone()).collect();
        let before = interfaces.len();
        interfaces.retain(|given| {
            let link = given.vlan.as_ref().map(|vlan| &vlan.link).filter(|link| !names.contains(*link));
            if let Some(link) = link {
                dropped.push_error(missing_value(&given.name, "parent", link));
            }
            link.is_none()
        });
        for given in interfaces.iter_mut() {
            if let Some(master) = given.master.take_if(|master| !names.contains(master)) {
                dropped.push_error(missing_value(&given.name, "master", &master));
            }
        }
        if interfaces.len() == before {
            return;
        }
    }
}

/// Whole keyfiles that can be read, as many as fit.
fn bounded_connections(
    connections: HashMap<String, String>,
    dropped: &mut Dropped,
) -> BTreeMap<String, String> {
    let connections: BTreeMap<_, _> = connections.into_iter().collect();
    let mut bytes = 0;
    let mut kept = BTreeMap::new();
    for (name, text) in connections {
        bytes += name.len() + text.len();
        if bytes > CONNECTIONS_BYTES {
            let what = "bytes of connections";
            dropped.push_error(NetworkError::TooMany { what, count: bytes, max: CONNECTIONS_BYTES });
            break;
        }
        match check_connection(&name, &text) {
            Ok(()) => drop(kept.insert(name, text)),
            Err(error) => dropped.push_error(error),
        }
    }
    kept
}

fn parse_interface(given: wire::Interface, dropped: &mut Dropped) -> Result<ObservedInterface, NetworkError> {
    check_name(&given.name)?;
    let place = interface_path(&given.name);
    let addresses = parse_addresses(&place, given.addresses, dropped);
    let mut dynamic_addresses = parse_addresses(&place, given.dynamic_addresses, dropped);
    dynamic_addresses.retain(|address| addresses.contains(address));
    if !["", "bond", "vlan", "bridge"].contains(&given.kind.as_str()) {
        return Err(bad_value(&place, &given.kind, "kind (bond, vlan, bridge or nothing)"));
    }
    if !given.master.is_empty() {
        check_name(&given.master)?;
    }
    Ok(ObservedInterface {
        mac: parse_mac(&place, &given.mac)?,
        permanent_mac: parse_mac(&place, &given.permanent_mac)?,
        mtu: optional_number(given.mtu),
        addresses,
        dynamic_addresses,
        kind: optional_text(given.kind),
        master: optional_text(given.master),
        dhcp4: given.dhcp4,
        dhcp6: given.dhcp6,
        accept_ra: given.accept_ra,
        bond: given.bond.map(|bond| parse_bond(&place, bond)).transpose()?,
        vlan: given.vlan.map(|vlan| parse_vlan(&place, vlan)).transpose()?,
        name: given.name,
    })
}

/// An address that is none is left out alone.
fn parse_addresses(place: &str, given: Vec<String>, dropped: &mut Dropped) -> Vec<String> {
    let given = dropped.keep_bounded("addresses of an interface", given, ADDRESSES);
    let mut addresses = vec![];
    for net in dropped.keep_valid(given.iter().map(|address| parse_net(place, address))) {
        let text = net.to_string();
        if !is_special(net.addr()) && !addresses.contains(&text) {
            addresses.push(text);
        }
    }
    addresses
}

fn parse_bond(place: &str, bond: wire::Bond) -> Result<ObservedBond, NetworkError> {
    let word = |text: &str| text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_graphic());
    for value in [&bond.mode, &bond.lacp_rate, &bond.transmit_hash_policy] {
        if !word(value) {
            return Err(bad_value(place, value, "parameter of a bond"));
        }
    }
    if !bond.primary.is_empty() {
        check_name(&bond.primary)?;
    }
    Ok(ObservedBond {
        mode: bond.mode,
        miimon: optional_number(bond.miimon),
        lacp_rate: optional_text(bond.lacp_rate),
        transmit_hash_policy: optional_text(bond.transmit_hash_policy),
        primary: optional_text(bond.primary),
    })
}

fn parse_vlan(place: &str, vlan: wire::Vlan) -> Result<ObservedVlan, NetworkError> {
    check_name(&vlan.link)?;
    if !(1..=4094).contains(&vlan.id) {
        return Err(bad_value(place, &vlan.id.to_string(), "VLAN id (1 to 4094)"));
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
        metric: optional_number(route.metric),
        dynamic: route.dynamic,
    })
}

/// The wire has no absent text.
fn optional_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The wire has no absent number.
fn optional_number(number: u32) -> Option<i64> {
    (number != 0).then(|| i64::from(number))
}
