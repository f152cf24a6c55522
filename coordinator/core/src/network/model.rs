//! The network that a host is to have, as devices that are known to work
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use coordinator_api::network::{ObservedBond, ObservedInterface, ObservedNetwork, ObservedRoute};
use ipnet::IpNet;

use super::{
    NetworkError, bad_value, check_domain, check_name, interface_path, is_special, missing_value,
    parse_address, parse_destination, parse_mac, parse_net,
};

/// Default MTU of Ethernet.
const DEFAULT_MTU: i64 = 1500;

/// Everything that is configured, by name.
pub(super) struct Network {
    pub(super) devices: BTreeMap<String, Device>,
}

pub(super) struct Device {
    pub(super) kind: Kind,
    /// Static ones only.
    pub(super) addresses: Vec<IpNet>,
    pub(super) dhcp4: bool,
    pub(super) dhcp6: bool,
    pub(super) accept_ra: bool,
    pub(super) mtu: Option<i64>,
    pub(super) routes: Vec<Route>,
    pub(super) dns_servers: Vec<IpAddr>,
    pub(super) search_domains: Vec<String>,
}

pub(super) enum Kind {
    Ethernet { mac: String },
    Bond { mac: Option<String>, members: Vec<String>, parameters: ObservedBond },
    Bridge { mac: Option<String>, members: Vec<String> },
    Vlan { id: i64, link: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) destination: IpNet,
    pub(super) gateway: Option<IpAddr>,
    pub(super) metric: Option<i64>,
}

impl Network {
    /// Reads and checks an observed network.
    pub(super) fn parse_observed(observed: &ObservedNetwork) -> Result<Self, NetworkError> {
        let mut found: BTreeMap<&str, &ObservedInterface> = BTreeMap::new();
        for given in &observed.interfaces {
            check_name(&given.name)?;
            if found.insert(&given.name, given).is_some() {
                return Err(NetworkError::Duplicate {
                    place: "interfaces".into(),
                    value: given.name.clone(),
                });
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
        let mut network = Self { devices };
        network.drop_unused();
        network.check_uniqueness()?;
        network.check_mtus(&found)?;
        network.place_resolvers(observed)?;
        Ok(network)
    }

    /// An interface without configuration that no other device uses is left to
    /// the image: naming it would make the boot wait for its link.
    fn drop_unused(&mut self) {
        let used: BTreeSet<String> = self
            .devices
            .values()
            .flat_map(|device| match &device.kind {
                Kind::Ethernet { .. } => Vec::new(),
                Kind::Bond { members, .. } | Kind::Bridge { members, .. } => members.clone(),
                Kind::Vlan { link, .. } => vec![link.clone()],
            })
            .collect();
        self.devices.retain(|name, device| device.is_configured() || used.contains(name));
    }

    fn check_uniqueness(&self) -> Result<(), NetworkError> {
        let mut seen = BTreeSet::new();
        for (name, device) in &self.devices {
            let mac = match &device.kind {
                Kind::Ethernet { mac } if mac.is_empty() => {
                    return Err(NetworkError::MacMissing { interface: name.clone() });
                }
                Kind::Ethernet { mac } => Some(mac.clone()),
                Kind::Bond { .. } | Kind::Bridge { .. } | Kind::Vlan { .. } => None,
            };
            let addresses = device.addresses.iter().map(|address| address.addr().to_string());
            for value in mac.into_iter().chain(addresses) {
                if !seen.insert(value.clone()) {
                    return Err(NetworkError::Duplicate { place: interface_path(name), value });
                }
            }
        }
        Ok(())
    }

    fn check_mtus(&self, found: &BTreeMap<&str, &ObservedInterface>) -> Result<(), NetworkError> {
        for (name, device) in &self.devices {
            let Kind::Vlan { link, .. } = &device.kind else { continue };
            let mtu = |name: &str| found.get(name).and_then(|given| given.mtu).unwrap_or(DEFAULT_MTU);
            if mtu(name) > mtu(link) {
                return Err(NetworkError::Mtu {
                    interface: name.clone(),
                    mtu: mtu(name),
                    parent: link.clone(),
                    parent_mtu: mtu(link),
                });
            }
        }
        Ok(())
    }

    /// Resolvers are the host's, network-config has them per device: they go
    /// to the one with the static default route, else to the first that has
    /// something static. Which of them came from DHCP is unknown: an additional
    /// one does no harm, a missing one does. Where all addresses come from
    /// DHCP, the resolvers do too.
    fn place_resolvers(&mut self, observed: &ObservedNetwork) -> Result<(), NetworkError> {
        let servers = observed.dns_servers.iter().map(|server| parse_address("dnsServers", server));
        let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
        servers.retain(|server| !server.is_loopback());
        observed.search_domains.iter().try_for_each(|domain| check_domain(domain))?;
        let has_default =
            |device: &Device| device.routes.iter().any(|route| route.destination.prefix_len() == 0);
        let chosen = self
            .devices
            .iter()
            .find(|(_, device)| has_default(device))
            .or_else(|| self.devices.iter().find(|(_, device)| !device.addresses.is_empty()))
            .map(|(name, _)| name.clone());
        if let Some(device) = chosen.and_then(|name| self.devices.get_mut(&name)) {
            device.dns_servers = servers;
            device.search_domains.clone_from(&observed.search_domains);
        }
        Ok(())
    }
}

impl Device {
    fn is_configured(&self) -> bool {
        let card = matches!(self.kind, Kind::Ethernet { .. });
        let dynamic = self.dhcp4 || self.dhcp6 || self.accept_ra;
        !card || dynamic || !self.addresses.is_empty() || !self.routes.is_empty()
    }
}

/// One interface as a device; `None` for kinds that software makes for itself.
fn parse_device(
    given: &ObservedInterface,
    found: &BTreeMap<&str, &ObservedInterface>,
    routes: Vec<Route>,
) -> Result<Option<Device>, NetworkError> {
    let Some(kind) = parse_kind(given, found)? else { return Ok(None) };
    let device = if has_master(given) {
        check_master(given, found)?;
        Device {
            kind,
            addresses: Vec::new(),
            dhcp4: false,
            dhcp6: false,
            accept_ra: false,
            mtu: pinned_mtu(given),
            routes: Vec::new(),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
        }
    } else {
        Device {
            kind,
            addresses: static_addresses(given)?,
            dhcp4: given.dhcp4,
            dhcp6: given.dhcp6,
            accept_ra: given.accept_ra,
            mtu: pinned_mtu(given),
            routes: check_routes(given, routes)?,
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
        }
    };
    Ok(Some(device))
}

fn has_master(given: &ObservedInterface) -> bool {
    given.master.as_deref().is_some_and(|master| !master.is_empty())
}

fn check_master(
    given: &ObservedInterface,
    found: &BTreeMap<&str, &ObservedInterface>,
) -> Result<(), NetworkError> {
    let master = given.master.as_deref().unwrap_or_default();
    let kind = found.get(master).and_then(|master| master.kind.as_deref());
    if matches!(kind, Some("bond" | "bridge")) {
        return Ok(());
    }
    Err(missing_value(&given.name, "master", master))
}

fn parse_kind(
    given: &ObservedInterface,
    found: &BTreeMap<&str, &ObservedInterface>,
) -> Result<Option<Kind>, NetworkError> {
    let place = interface_path(&given.name);
    let mac = |text: &Option<String>| parse_mac(&place, text.as_deref().unwrap_or_default());
    Ok(Some(match given.kind.as_deref().unwrap_or_default() {
        // An empty MAC is refused only once the interface is known to be used.
        "" => Kind::Ethernet { mac: mac(&given.permanent_mac)?.or(mac(&given.mac)?).unwrap_or_default() },
        "bond" => {
            let members = parse_members(given, found)?;
            let parameters = given.bond.clone().unwrap_or_default();
            if let Some(primary) = parameters.primary.as_ref().filter(|primary| !members.contains(primary)) {
                return Err(missing_value(&given.name, "primary", primary));
            }
            Kind::Bond { mac: mac(&given.mac)?, members, parameters }
        }
        "bridge" => Kind::Bridge { mac: mac(&given.mac)?, members: parse_members(given, found)? },
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

fn parse_members(
    given: &ObservedInterface,
    found: &BTreeMap<&str, &ObservedInterface>,
) -> Result<Vec<String>, NetworkError> {
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
    found: &BTreeMap<&str, &ObservedInterface>,
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
        let routes = routes.entry(name.to_owned()).or_default();
        let special = route.destination.prefix_len() > 0 && is_special(route.destination.addr());
        if !special && !routes.contains(&route) {
            routes.push(route);
        }
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
    Ok(Route { destination, gateway, metric: given.metric.filter(|metric| *metric > 0) })
}

/// The interface that has an address beside the gateway.
fn reaching_interface<'a>(route: &Route, found: &BTreeMap<&'a str, &ObservedInterface>) -> Option<&'a str> {
    let gateway = route.gateway?;
    let beside = |address: &String| address.parse::<IpNet>().is_ok_and(|net| net.contains(&gateway));
    found.iter().find(|(_, given)| given.addresses.iter().any(beside)).map(|(name, _)| *name)
}

/// Leaves out what addresses imply, and refuses what could never carry a
/// packet: cloud-init would drop such a route without a word.
fn check_routes(given: &ObservedInterface, routes: Vec<Route>) -> Result<Vec<Route>, NetworkError> {
    let addresses = given.addresses.iter().map(|address| parse_net(&interface_path(&given.name), address));
    let subnets = addresses.map(|net| Ok(net?.trunc())).collect::<Result<Vec<_>, NetworkError>>()?;
    let on_link: Vec<_> =
        routes.iter().filter(|route| route.gateway.is_none()).map(|route| route.destination).collect();
    let mut kept = Vec::new();
    for route in routes {
        let Some(gateway) = route.gateway else {
            if !subnets.contains(&route.destination) {
                kept.push(route);
            }
            continue;
        };
        let destination = route.destination;
        if gateway.is_ipv4() != destination.addr().is_ipv4() {
            return Err(NetworkError::Family { interface: given.name.clone(), destination, gateway });
        }
        let beside = |net: &IpNet| net.prefix_len() > 0 && net.contains(&gateway);
        if !subnets.iter().any(beside) && !on_link.iter().any(beside) && !is_special(gateway) {
            return Err(NetworkError::GatewayUnreachable { interface: given.name.clone(), gateway });
        }
        kept.push(route);
    }
    Ok(kept)
}
