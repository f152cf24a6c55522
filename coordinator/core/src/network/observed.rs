//! An observed network as devices.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::network::{ObservedInterface, ObservedNetwork, ObservedRoute};
use ipnet::IpNet;

use super::model::{DEFAULT_MTU, Device, Kind, Network, Route, check_routes};
use super::{
    NetworkError, bad_value, check_domain, check_name, interface_path, is_special, missing_value,
    parse_address, parse_destination, parse_mac, parse_net,
};

/// What the kernel gives to a route that says none. cloud-init's renderer for
/// `NetworkManager` ends with an error at a default route that says one before
/// it has come to an address of the family.
const IPV6_METRIC: i64 = 1024;

type Found<'a> = BTreeMap<&'a str, &'a ObservedInterface>;

/// Reads and checks the interfaces, routes and resolvers.
pub(super) fn parse_network(observed: &ObservedNetwork) -> Result<Network, NetworkError> {
    let mut found = Found::new();
    for given in &observed.interfaces {
        check_name(&given.name)?;
        if found.insert(&given.name, given).is_some() {
            return Err(NetworkError::Duplicate { place: "interfaces".into(), value: given.name.clone() });
        }
    }
    let mut routes = parse_routes(observed, &found)?;
    let mut devices = BTreeMap::new();
    for (name, given) in &found {
        let routes = routes.remove(*name).unwrap_or_default();
        if let Some(device) = parse_device(given, &found, routes)? {
            devices.insert((*name).to_owned(), device);
        }
    }
    let mut network = Network { devices };
    network.drop_unused();
    check_macs(&network)?;
    network.check_lower_devices()?;
    network.check_uniqueness()?;
    network.check_mtus(|name| found.get(name).and_then(|given| given.mtu).unwrap_or(DEFAULT_MTU))?;
    place_resolvers(&mut network, observed)?;
    Ok(network)
}

/// Names of hardware may change with a kernel, so a report has to say more.
fn check_macs(network: &Network) -> Result<(), NetworkError> {
    let mut devices = network.devices.iter();
    match devices.find(|(_, device)| matches!(device.kind, Kind::Ethernet { mac: None })) {
        Some((name, _)) => Err(NetworkError::MacMissing { interface: name.clone() }),
        None => Ok(()),
    }
}

/// Resolvers are the host's, network-config has them per device: they go
/// to the one with the static default route, else to the first that has
/// something static. Which of them came from DHCP is unknown: an additional
/// one does no harm, a missing one does. Where all addresses come from
/// DHCP, the resolvers do too.
fn place_resolvers(network: &mut Network, observed: &ObservedNetwork) -> Result<(), NetworkError> {
    let servers = observed.dns_servers.iter().map(|server| parse_address("dnsServers", server));
    let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
    servers.retain(|server| !server.is_loopback());
    observed.search_domains.iter().try_for_each(|domain| check_domain(domain))?;
    let has_default = |device: &Device| device.routes.iter().any(|route| route.destination.prefix_len() == 0);
    let chosen = network
        .devices
        .iter()
        .find(|(_, device)| has_default(device))
        .or_else(|| network.devices.iter().find(|(_, device)| !device.addresses.is_empty()))
        .map(|(name, _)| name.clone());
    if let Some(device) = chosen.and_then(|name| network.devices.get_mut(&name)) {
        device.dns_servers = servers;
        device.search_domains.clone_from(&observed.search_domains);
    }
    Ok(())
}

/// One interface as a device; `None` for kinds that software makes for itself.
fn parse_device(
    given: &ObservedInterface,
    found: &Found<'_>,
    routes: Vec<Route>,
) -> Result<Option<Device>, NetworkError> {
    let Some(kind) = parse_kind(given, found)? else { return Ok(None) };
    let mut device = Device { mtu: pinned_mtu(given), ..Device::new(kind) };
    if has_master(given) {
        check_master(given, found)?;
        return Ok(Some(device));
    }
    device.addresses = static_addresses(given)?;
    device.dhcp4 = given.dhcp4;
    device.dhcp6 = given.dhcp6;
    device.accept_ra = given.accept_ra;
    let place = interface_path(&given.name);
    let addresses = given.addresses.iter().map(|address| parse_net(&place, address));
    let subnets = addresses.map(|net| Ok(net?.trunc())).collect::<Result<Vec<_>, NetworkError>>()?;
    device.routes = check_routes(&given.name, [Some(&subnets); 2], routes)?;
    Ok(Some(device))
}

fn has_master(given: &ObservedInterface) -> bool {
    given.master.as_deref().is_some_and(|master| !master.is_empty())
}

fn check_master(given: &ObservedInterface, found: &Found<'_>) -> Result<(), NetworkError> {
    let master = given.master.as_deref().unwrap_or_default();
    let kind = found.get(master).and_then(|master| master.kind.as_deref());
    if matches!(kind, Some("bond" | "bridge")) {
        return Ok(());
    }
    Err(missing_value(&given.name, "master", master))
}

fn parse_kind(given: &ObservedInterface, found: &Found<'_>) -> Result<Option<Kind>, NetworkError> {
    let place = interface_path(&given.name);
    let mac = |text: &Option<String>| parse_mac(&place, text.as_deref().unwrap_or_default());
    Ok(Some(match given.kind.as_deref().unwrap_or_default() {
        // A missing MAC is refused only once the interface is known to be used.
        "" => Kind::Ethernet { mac: mac(&given.permanent_mac)?.or(mac(&given.mac)?) },
        "bond" => {
            let members = parse_members(given, found)?;
            let parameters = given.bond.clone().unwrap_or_default();
            if let Some(primary) = parameters.primary.as_ref().filter(|primary| !members.contains(primary)) {
                return Err(missing_value(&given.name, "primary", primary));
            }
            Kind::Bond { mac: mac(&given.mac)?, members, parameters }
        }
        "bridge" => Kind::Bridge { mac: mac(&given.mac)?, members: parse_members(given, found)?, stp: None },
        "vlan" => {
            let vlan =
                given.vlan.as_ref().ok_or_else(|| missing_value(&given.name, "parent", "(not named)"))?;
            if !(1..=4094).contains(&vlan.id) {
                return Err(bad_value(&place, &vlan.id.to_string(), "VLAN id (1 to 4094)"));
            }
            if vlan.link == given.name || !found.contains_key(vlan.link.as_str()) {
                return Err(missing_value(&given.name, "parent", &vlan.link));
            }
            Kind::Vlan { id: vlan.id, link: vlan.link.clone() }
        }
        _ => return Ok(None),
    }))
}

fn parse_members(given: &ObservedInterface, found: &Found<'_>) -> Result<Vec<String>, NetworkError> {
    let is_member = |other: &&&ObservedInterface| other.master.as_deref() == Some(given.name.as_str());
    let members: Vec<_> = found.values().filter(is_member).map(|member| member.name.clone()).collect();
    // A bond needs a hardware interface; a bridge may wait for one.
    if members.is_empty() && given.kind.as_deref() == Some("bond") {
        return Err(missing_value(&given.name, "member", "(none names it as master)"));
    }
    Ok(members)
}

fn static_addresses(given: &ObservedInterface) -> Result<Vec<IpNet>, NetworkError> {
    let place = interface_path(&given.name);
    let parse = |address: &String| parse_net(&place, address);
    let dynamic = given.dynamic_addresses.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let mut addresses = given.addresses.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    addresses.retain(|address| !dynamic.contains(address) && !is_special(address.addr()));
    Ok(addresses)
}

/// An MTU that DHCP or a router may have set is not pinned.
fn pinned_mtu(given: &ObservedInterface) -> Option<i64> {
    let dynamic = (given.dhcp4 || given.dhcp6 || given.accept_ra) && !has_master(given);
    given.mtu.filter(|mtu| !dynamic && *mtu != DEFAULT_MTU && *mtu > 0)
}

/// Static routes by the interface that they leave by.
fn parse_routes(
    observed: &ObservedNetwork,
    found: &Found<'_>,
) -> Result<BTreeMap<String, Vec<Route>>, NetworkError> {
    let mut routes: BTreeMap<String, Vec<Route>> = BTreeMap::new();
    for given in observed.routes.iter().filter(|route| !route.dynamic) {
        let route = parse_route(given)?;
        let named = given.interface.as_deref().filter(|name| !name.is_empty());
        let name = match named {
            Some(name) => found.contains_key(name).then_some(name),
            None => reaching_interface(&route, found),
        };
        let name = name.ok_or(NetworkError::RouteWithoutInterface { destination: route.destination })?;
        routes.entry(name.to_owned()).or_default().push(route);
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
    let is_said = |metric: &i64| *metric > 0 && !(destination.addr().is_ipv6() && *metric == IPV6_METRIC);
    Ok(Route { destination, gateway, metric: given.metric.filter(is_said) })
}

/// The interface that has an address beside the gateway.
fn reaching_interface<'a>(route: &Route, found: &BTreeMap<&'a str, &ObservedInterface>) -> Option<&'a str> {
    let gateway = route.gateway?;
    let beside = |address: &String| address.parse::<IpNet>().is_ok_and(|net| net.contains(&gateway));
    found.iter().find(|(_, given)| given.addresses.iter().any(beside)).map(|(name, _)| *name)
}
