//! Translates the kernel's messages into those of the contract, and chooses the reported parts.
//!
//! Hardware interfaces are reported, and bonds, VLANs and bridges above them. Loopback, links of
//! containers and tunnels, link-local, tentative and temporary addresses, and the kernel's own
//! connected routes are not reported, because each of them would be wrong if replayed as
//! configuration.

mod bonds;
mod links;
mod peers;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol, RouteType,
};
use proto::v1alpha1::{Bond, Interface, ObservedNetwork, Route, Vlan};

use super::dump::Dump;
use crate::state::before_node::MAIN_TABLE;
use links::{Kind, Link, parse_link, select_links};

/// Sorts interfaces by name, and routes by family, destination and metric.
pub fn translate_dump(dump: &Dump) -> ObservedNetwork {
    let links = select_links(dump.links.iter().filter_map(parse_link).collect());
    let names: HashMap<u32, &str> = links.iter().map(|link| (link.index, link.name.as_str())).collect();
    let addresses: Vec<_> = dump.addresses.iter().filter_map(parse_address).collect();
    let mut routes: Vec<_> = dump.routes.iter().flat_map(parse_route).collect();
    let peers: Vec<_> = dump.routes.iter().filter_map(peers::parse_peer).collect();
    for route in &mut routes {
        route.on_link |= route.gateway.is_some_and(|gateway| peers.contains(&(route.link, gateway)));
    }
    routes.retain(|route| names.contains_key(&route.link));
    routes.sort_by_key(|route| (route.destination.0.is_ipv6(), route.destination, route.metric, route.link));
    let mut interfaces: Vec<_> = links
        .iter()
        .map(|link| {
            let own: Vec<_> = addresses.iter().filter(|address| address.link == link.index).collect();
            let own_routes: Vec<_> = routes.iter().filter(|route| route.link == link.index).collect();
            translate_interface(link, &names, &own, &own_routes)
        })
        .collect();
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    ObservedNetwork {
        interfaces,
        routes: routes.iter().map(|route| translate_route(route, &names)).collect(),
        ..ObservedNetwork::default()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) link: u32,
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
    permanent: bool,
    advertised: bool,
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.ip, self.prefix)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRoute {
    /// 0 for a route that drops packets.
    pub(crate) link: u32,
    pub(crate) destination: (IpAddr, u8),
    pub(crate) gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    metric: u32,
    pub(crate) protocol: RouteProtocol,
    pub(crate) table: u32,
    pub(crate) kind: RouteType,
    /// The gateway needs no subnet of an address.
    on_link: bool,
}

/// Kernel indices of the reported links.
pub fn list_own_links(dump: &Dump) -> Vec<u32> {
    let links = select_links(dump.links.iter().filter_map(parse_link).collect());
    links.iter().map(|link| link.index).collect()
}

/// Links with carrier and without an address, for which DHCP may still be at work. A link below
/// another one needs no address.
pub fn list_unaddressed(dump: &Dump) -> Vec<String> {
    let links = select_links(dump.links.iter().filter_map(parse_link).collect());
    let addresses: Vec<_> = dump.addresses.iter().filter_map(parse_address).collect();
    let parents: Vec<_> = links
        .iter()
        .filter_map(|link| if let Kind::Vlan { parent, .. } = link.kind { Some(parent) } else { None })
        .collect();
    links
        .iter()
        .filter(|link| link.carries && link.master.is_none() && !parents.contains(&link.index))
        .filter(|link| !addresses.iter().any(|address| address.link == link.index))
        .map(|link| link.name.clone())
        .collect()
}

pub(crate) fn parse_address(message: &AddressMessage) -> Option<Address> {
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    let (mut local, mut peer, mut advertised) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => peer = Some(*address),
            AddressAttribute::Flags(all) => flags = *all,
            AddressAttribute::Protocol(AddressProtocol::RouterAnnouncement) => advertised = true,
            _ => {}
        }
    }
    let address = local.or(peer)?;
    // The flag "secondary" of IPv4 means "temporary" for IPv6.
    let temporary = address.is_ipv6() && flags.contains(AddressFlags::Secondary);
    let unproven = flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed);
    let global = matches!(message.header.scope, AddressScope::Universe | AddressScope::Site);
    (global && !temporary && !unproven && !link_local(address)).then_some(Address {
        link: message.header.index,
        ip: address,
        prefix: message.header.prefix_len,
        permanent: flags.contains(AddressFlags::Permanent),
        advertised,
    })
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_loopback(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_loopback(),
    }
}

fn parse_route(message: &RouteMessage) -> Vec<FoundRoute> {
    let mut routes = parse_any_route(message);
    routes.retain(|route| {
        route.table == MAIN_TABLE && route.kind == RouteType::Unicast && is_configured(route.protocol)
    });
    routes
}

/// A route of any table and protocol, once for each of its next hops.
pub(crate) fn parse_any_route(message: &RouteMessage) -> Vec<FoundRoute> {
    let header = &message.header;
    let any = match header.address_family {
        AddressFamily::Inet => IpAddr::from([0u8; 4]),
        AddressFamily::Inet6 => IpAddr::from([0u8; 16]),
        _ => return Vec::new(),
    };
    let mut route = FoundRoute {
        link: 0,
        destination: (any, header.destination_prefix_length),
        gateway: None,
        source: None,
        metric: 0,
        protocol: header.protocol,
        table: u32::from(header.table),
        kind: header.kind,
        on_link: header.flags.contains(RouteFlags::Onlink),
    };
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => route.destination.0 = parse_route_address(to).unwrap_or(any),
            RouteAttribute::Gateway(via) => route.gateway = parse_route_address(via),
            RouteAttribute::PrefSource(source) => route.source = parse_route_address(source),
            RouteAttribute::Oif(link) => route.link = *link,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::MultiPath(next) => hops.extend(next.iter().map(|hop| {
                let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Gateway(via) => parse_route_address(via),
                    _ => None,
                });
                (hop.interface_index, gateway, hop.flags.contains(RouteNextHopFlags::Onlink))
            })),
            _ => {}
        }
    }
    if hops.is_empty() {
        return vec![route];
    }
    hops.into_iter().map(|(link, gateway, on_link)| FoundRoute { link, gateway, on_link, ..route }).collect()
}

/// An operator, DHCP or a router advertisement made the route. Routing daemons, as those of a CNI plugin
/// in a cluster, have protocols of their own, and their routes are no configuration of the host.
fn is_configured(protocol: RouteProtocol) -> bool {
    matches!(protocol, RouteProtocol::Static | RouteProtocol::Boot | RouteProtocol::Dhcp | RouteProtocol::Ra)
}

fn parse_route_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

pub(crate) fn is_dynamic(address: &Address, routes: &[&FoundRoute]) -> bool {
    // The kernel calls an address with an infinite lease permanent, but not the route that came
    // with the lease.
    let mut leases = routes.iter().filter(|route| route.protocol == RouteProtocol::Dhcp);
    !address.permanent || address.advertised || leases.any(|route| route.source == Some(address.ip))
}

fn translate_interface(
    link: &Link,
    names: &HashMap<u32, &str>,
    addresses: &[&Address],
    routes: &[&FoundRoute],
) -> Interface {
    let leased: Vec<_> = addresses.iter().filter(|address| is_dynamic(address, routes)).collect();
    let learnt_by = |v6: bool, protocol: RouteProtocol| {
        routes.iter().any(|route| route.destination.0.is_ipv6() == v6 && route.protocol == protocol)
    };
    let (kind, bond, vlan) = match &link.kind {
        Kind::Card => ("", None, None),
        Kind::Bridge => ("bridge", None, None),
        Kind::Bond(bond, primary) => {
            let primary = name_of(*primary, names);
            ("bond", Some(Bond { primary, ..(**bond).clone() }), None)
        }
        Kind::Vlan { id, parent } => {
            let vlan = Vlan { id: u32::from(*id), link: name_of(Some(*parent), names) };
            ("vlan", None, Some(vlan))
        }
    };
    Interface {
        name: link.name.clone(),
        mac: link.mac.clone(),
        permanent_mac: link.permanent_mac.clone(),
        mtu: link.mtu,
        addresses: addresses.iter().map(ToString::to_string).collect(),
        dynamic_addresses: leased.iter().map(ToString::to_string).collect(),
        kind: kind.to_owned(),
        master: name_of(link.master, names),
        dhcp4: leased.iter().any(|a| a.ip.is_ipv4()) || learnt_by(false, RouteProtocol::Dhcp),
        // DHCPv6 assigns single addresses, and router advertisements announce prefixes.
        dhcp6: leased.iter().any(|a| a.ip.is_ipv6() && a.prefix == 128),
        accept_ra: leased.iter().any(|a| a.ip.is_ipv6() && a.prefix < 128)
            || learnt_by(true, RouteProtocol::Ra),
        bond,
        vlan,
    }
}

/// The name of a reported link; empty for other links.
fn name_of(index: Option<u32>, names: &HashMap<u32, &str>) -> String {
    index.and_then(|index| names.get(&index)).map_or("", |name| *name).to_owned()
}

fn translate_route(route: &FoundRoute, names: &HashMap<u32, &str>) -> Route {
    Route {
        destination: format!("{}/{}", route.destination.0, route.destination.1),
        gateway: route.gateway.map_or_else(String::new, |gateway| gateway.to_string()),
        interface: name_of(Some(route.link), names),
        metric: route.metric,
        dynamic: matches!(route.protocol, RouteProtocol::Dhcp | RouteProtocol::Ra),
        on_link: route.on_link,
    }
}

#[cfg(test)]
mod tests;
