//! The devices of an observed network.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::network::{ObservedInterface, ObservedNetwork, ObservedRoute};
use ipnet::IpNet;

use super::model::{DEFAULT_MTU, Device, Kind, Network, Route, check_routes};
use super::{
    NetworkError, check_domain, check_name, interface_path, is_special, missing_value, parse_address,
    parse_destination, parse_mac, parse_net, parse_vlan_id,
};

/// Metric that the kernel gives to an IPv6 route without one. It is left out, because
/// cloud-init's renderer for `NetworkManager` fails at a default route with a metric that
/// precedes the first address of its family.
const IPV6_METRIC: i64 = 1024;

type Found<'a> = BTreeMap<&'a str, &'a ObservedInterface>;

/// Reads and checks interfaces, routes and resolvers.
pub(super) fn parse_network(observed: &ObservedNetwork) -> Result<Network, NetworkError> {
    let mut found = Found::new();
    for given in &observed.interfaces {
        check_name(&given.name)?;
        if found.insert(&given.name, given).is_some() {
            return Err(NetworkError::Duplicate { place: "interfaces".into(), value: given.name.clone() });
        }
    }
    let routes = parse_routes(observed, &found)?;
    let mut network = Network::default();
    for (name, given) in &found {
        let own = routes.iter().filter(|(interface, _)| interface == name).map(|(_, route)| *route);
        if let Some(device) = parse_device(given, &found, own.collect())? {
            network.devices.insert((*name).to_owned(), device);
        }
    }
    network.drop_unused();
    check_macs(&network)?;
    network.check()?;
    place_resolvers(&mut network, observed)?;
    Ok(network)
}

/// A kernel may change the names of cards, so that a name alone identifies none.
fn check_macs(network: &Network) -> Result<(), NetworkError> {
    let mut devices = network.devices.iter();
    match devices.find(|(_, device)| matches!(device.kind, Kind::Ethernet { mac: None })) {
        Some((name, _)) => Err(NetworkError::MacMissing { interface: name.clone() }),
        None => Ok(()),
    }
}

/// Assigns the resolvers of the host to one device, because network-config has them per
/// device: the device with the static default route, else the first one with a static
/// address. Resolvers that came from DHCP are unknown and therefore kept: a superfluous
/// resolver does no harm, a missing one does. If all addresses come from DHCP, so do the
/// resolvers.
fn place_resolvers(network: &mut Network, observed: &ObservedNetwork) -> Result<(), NetworkError> {
    let servers = observed.dns_servers.iter().map(|server| parse_address("dnsServers", server));
    let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
    servers.retain(|server| !server.is_loopback());
    observed.search_domains.iter().try_for_each(|domain| check_domain(domain))?;
    let mut devices = network.devices.values_mut();
    let mut fallback = None;
    let default = devices.find_map(|device| {
        if device.routes.iter().any(|route| route.destination.prefix_len() == 0) {
            return Some(device);
        }
        if fallback.is_none() && !device.addresses.is_empty() {
            fallback = Some(device);
        }
        None
    });
    if let Some(device) = default.or(fallback) {
        device.dns_servers = servers;
        device.search_domains.clone_from(&observed.search_domains);
    }
    Ok(())
}

/// The device of one interface; `None` for an interface that software creates by itself.
fn parse_device(
    given: &ObservedInterface,
    found: &Found<'_>,
    routes: Vec<Route>,
) -> Result<Option<Device>, NetworkError> {
    let Some(kind) = parse_kind(given, found)? else { return Ok(None) };
    let mut device = Device::new(kind);
    device.mtu = given.mtu.filter(|mtu| *mtu != DEFAULT_MTU && *mtu > 0);
    if let Some(master) = given.master_name() {
        let kind = found.get(master).and_then(|master| master.kind.as_deref());
        let is_member = matches!(kind, Some("bond" | "bridge"));
        return if is_member { Ok(Some(device)) } else { Err(missing_value(&given.name, "master", master)) };
    }
    device.sources = given.address_sources();
    let place = interface_path(&given.name);
    let dynamic = parse_nets(&place, &given.dynamic_addresses)?;
    device.addresses = parse_nets(&place, &given.addresses)?;
    let subnets: Vec<_> = device.addresses.iter().map(IpNet::trunc).collect();
    device.addresses.retain(|address| !dynamic.contains(address) && !is_special(address.addr()));
    device.routes = check_routes(&given.name, &[Some(subnets.clone()), Some(subnets)], routes)?;
    Ok(Some(device))
}

fn parse_nets(place: &str, addresses: &[String]) -> Result<Vec<IpNet>, NetworkError> {
    addresses.iter().map(|address| parse_net(place, address)).collect()
}

fn parse_kind(given: &ObservedInterface, found: &Found<'_>) -> Result<Option<Kind>, NetworkError> {
    let place = interface_path(&given.name);
    if given.is_card() {
        let permanent = parse_mac(&place, given.permanent_mac.as_deref())?;
        // A card without MAC address is refused only if it is used.
        let mac = permanent.or(parse_mac(&place, given.mac.as_deref())?);
        return Ok(Some(Kind::Ethernet { mac }));
    }
    let kind = match given.kind.as_deref() {
        Some("bond") => {
            let members = list_members(given, found);
            if members.is_empty() {
                return Err(missing_value(&given.name, "member", "(none names it as master)"));
            }
            let parameters = given.bond.clone().unwrap_or_default();
            if let Some(primary) = parameters.primary.as_ref().filter(|primary| !members.contains(primary)) {
                return Err(missing_value(&given.name, "primary", primary));
            }
            let mac = parse_mac(&place, given.mac.as_deref())?;
            Kind::Bond { mac, members, parameters: Box::new(parameters) }
        }
        // A bridge may wait for its members.
        Some("bridge") => Kind::Bridge {
            mac: parse_mac(&place, given.mac.as_deref())?,
            members: list_members(given, found),
            stp: None,
        },
        Some("vlan") => {
            let vlan = given.vlan.as_ref();
            let vlan = vlan.ok_or_else(|| missing_value(&given.name, "parent", "(not named)"))?;
            let id = parse_vlan_id(&place, &vlan.id.to_string())?;
            if vlan.link == given.name || !found.contains_key(vlan.link.as_str()) {
                return Err(missing_value(&given.name, "parent", &vlan.link));
            }
            Kind::Vlan { id, link: vlan.link.clone() }
        }
        _ => return Ok(None),
    };
    Ok(Some(kind))
}

fn list_members(given: &ObservedInterface, found: &Found<'_>) -> Vec<String> {
    let members = found.values().filter(|other| other.master.as_deref() == Some(given.name.as_str()));
    members.map(|member| member.name.clone()).collect()
}

/// Static routes with their outgoing interfaces.
fn parse_routes<'a>(
    observed: &ObservedNetwork,
    found: &Found<'a>,
) -> Result<Vec<(&'a str, Route)>, NetworkError> {
    let mut routes = Vec::new();
    for given in observed.routes.iter().filter(|route| !route.dynamic) {
        let route = parse_route(given)?;
        let name = match given.interface.as_deref() {
            Some("") | None => find_interface(&route, found),
            Some(name) => found.get_key_value(name).map(|(name, _)| *name),
        };
        let name = name.ok_or(NetworkError::RouteWithoutInterface { destination: route.destination })?;
        routes.push((name, route));
    }
    Ok(routes)
}

fn parse_route(given: &ObservedRoute) -> Result<Route, NetworkError> {
    let text = given.gateway.as_deref().filter(|gateway| !gateway.is_empty());
    let gateway = text.map(|gateway| parse_address("routes", gateway)).transpose()?;
    let destination = match (given.destination.as_str(), gateway) {
        ("default", Some(IpAddr::V6(_))) => "::/0",
        ("default", Some(IpAddr::V4(_)) | None) => "0.0.0.0/0",
        (destination, _) => destination,
    };
    let destination = parse_destination("routes", destination)?;
    let is_ipv6 = destination.addr().is_ipv6();
    let metric = given.metric.filter(|metric| *metric > 0 && !(is_ipv6 && *metric == IPV6_METRIC));
    Ok(Route { destination, gateway, metric, on_link: given.on_link })
}

/// The interface with an address in the subnet of the gateway.
fn find_interface<'a>(route: &Route, found: &Found<'a>) -> Option<&'a str> {
    let gateway = route.gateway?;
    let (name, _) = found.iter().find(|(_, given)| {
        let nets = given.addresses.iter().filter_map(|address| address.parse::<IpNet>().ok());
        nets.into_iter().any(|net| net.contains(&gateway))
    })?;
    Some(name)
}
