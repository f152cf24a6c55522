//! From the kernel's messages to the contract's: what is told and what is not.
//!
//! Told are network cards, and bonds, VLANs and bridges that stand on cards.
//! Loopback, links of containers and tunnels, link-local, tentative and
//! temporary addresses, and the kernel's own connected routes are not: replayed
//! as configuration each of them would be wrong.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope,
};
use netlink_packet_route::link::{
    BondLacpRate, InfoBond, InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkLayerType,
    LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use proto::v1alpha1::{Bond, Interface, ObservedNetwork, Route, Vlan};

use super::kernel::Dump;

/// Links that container runtimes and network plug-ins make.
const FOREIGN: [&str; 13] = [
    "cni", "cali", "docker", "br-", "veth", "flannel", "cilium", "lxc", "kube-", "virbr", "ovn",
    "ovs-", "genev",
];

/// Tells a dump: interfaces by name, routes by family, destination and metric.
#[must_use]
pub fn translate(dump: &Dump) -> ObservedNetwork {
    let links = kept(dump.links.iter().filter_map(parse_link).collect());
    let names: HashMap<u32, &str> = links.iter().map(|link| (link.index, link.name.as_str())).collect();
    let addresses: Vec<_> = dump.addresses.iter().filter_map(parse_address).collect();
    let mut routes: Vec<_> = dump.routes.iter().flat_map(parse_route).collect();
    routes.retain(|route| names.contains_key(&route.link));
    routes.sort_by_key(|route| (route.destination.0.is_ipv6(), route.destination, route.metric, route.link));
    let mut interfaces: Vec<_> = links
        .iter()
        .map(|link| {
            let own: Vec<_> = addresses.iter().filter(|address| address.link == link.index).collect();
            let own_routes: Vec<_> = routes.iter().filter(|route| route.link == link.index).collect();
            interface(link, &names, &own, &own_routes)
        })
        .collect();
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    ObservedNetwork {
        interfaces,
        routes: routes.iter().map(|route| told_route(route, &names)).collect(),
        ..ObservedNetwork::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Card,
    Bond(Bond, Option<u32>),
    Vlan { id: u16, parent: u32 },
    Bridge,
}

#[derive(Clone, Debug)]
struct Link {
    index: u32,
    name: String,
    mac: String,
    permanent_mac: String,
    mtu: u32,
    master: Option<u32>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    link: u32,
    address: IpAddr,
    prefix: u8,
    permanent: bool,
    advertised: bool,
}

#[derive(Clone, Copy, Debug)]
struct FoundRoute {
    link: u32,
    destination: (IpAddr, u8),
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    metric: u32,
    protocol: RouteProtocol,
}

fn mac(bytes: &[u8]) -> String {
    let octets: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    octets.join(":")
}

fn parse_link(message: &LinkMessage) -> Option<Link> {
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: String::new(),
        permanent_mac: String::new(),
        mtu: 0,
        master: None,
        kind: Kind::Card,
    };
    let mut parent = 0;
    let mut information: &[LinkInfo] = &[];
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = mac(bytes),
            LinkAttribute::PermAddress(bytes) => link.permanent_mac = mac(bytes),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::Link(index) => parent = *index,
            LinkAttribute::LinkInfo(info) => information = info,
            _ => {}
        }
    }
    link.kind = parse_kind(information, parent)?;
    (!FOREIGN.iter().any(|prefix| link.name.starts_with(prefix))).then_some(link)
}

fn parse_kind(information: &[LinkInfo], parent: u32) -> Option<Kind> {
    let data = information.iter().find_map(|info| match info {
        LinkInfo::Data(data) => Some(data),
        _ => None,
    });
    let kind = information.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match (kind, data) {
        (None, _) => Some(Kind::Card),
        (Some(InfoKind::Bridge), _) => Some(Kind::Bridge),
        (Some(InfoKind::Bond), Some(InfoData::Bond(data))) => Some(parse_bond(data)),
        (Some(InfoKind::Vlan), Some(InfoData::Vlan(data))) => data.iter().find_map(|part| match part {
            InfoVlan::Id(id) => Some(Kind::Vlan { id: *id, parent }),
            _ => None,
        }),
        _ => None,
    }
}

fn parse_bond(data: &[InfoBond]) -> Kind {
    let mut bond = Bond::default();
    let mut primary = None;
    for part in data {
        match part {
            InfoBond::Mode(mode) => bond.mode = mode.to_string(),
            InfoBond::MiiMon(milliseconds) => bond.miimon = *milliseconds,
            InfoBond::AdLacpRate(BondLacpRate::Fast) => bond.lacp_rate = "fast".to_owned(),
            InfoBond::AdLacpRate(BondLacpRate::Slow) => bond.lacp_rate = "slow".to_owned(),
            InfoBond::XmitHashPolicy(policy) => bond.transmit_hash_policy = policy.to_string(),
            InfoBond::Primary(index) => primary = Some(*index),
            _ => {}
        }
    }
    // The kernel prints these for every mode; they mean something to few.
    if bond.mode != "802.3ad" {
        bond.lacp_rate.clear();
    }
    if !matches!(bond.mode.as_str(), "802.3ad" | "balance-xor" | "balance-tlb") {
        bond.transmit_hash_policy.clear();
    }
    Kind::Bond(bond, primary)
}

/// Cards, and what stands on them: a bond or bridge without a kept member and
/// a VLAN without a kept parent belong to containers, or to nobody.
fn kept(links: Vec<Link>) -> Vec<Link> {
    let mut kept: HashSet<u32> = HashSet::new();
    loop {
        let before = kept.len();
        for link in &links {
            let stands = match &link.kind {
                Kind::Card => true,
                Kind::Bond(..) | Kind::Bridge => links
                    .iter()
                    .any(|member| member.master == Some(link.index) && kept.contains(&member.index)),
                Kind::Vlan { parent, .. } => kept.contains(parent),
            };
            if stands {
                kept.insert(link.index);
            }
        }
        if kept.len() == before {
            return links.into_iter().filter(|link| kept.contains(&link.index)).collect();
        }
    }
}

fn parse_address(message: &AddressMessage) -> Option<Address> {
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
    // The bit that says "secondary" for IPv4 says "temporary" for IPv6.
    let temporary = address.is_ipv6() && flags.contains(AddressFlags::Secondary);
    let unproven = flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed);
    let global = matches!(message.header.scope, AddressScope::Universe | AddressScope::Site);
    (global && !temporary && !unproven && !link_local(address)).then_some(Address {
        link: message.header.index,
        address,
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
    let header = &message.header;
    let any = match header.address_family {
        AddressFamily::Inet => IpAddr::from([0u8; 4]),
        AddressFamily::Inet6 => IpAddr::from([0u8; 16]),
        _ => return Vec::new(),
    };
    let ours = header.table == RouteHeader::RT_TABLE_MAIN
        && header.kind == RouteType::Unicast
        && !matches!(header.protocol, RouteProtocol::Kernel | RouteProtocol::IcmpRedirect);
    if !ours {
        return Vec::new();
    }
    let mut route = FoundRoute {
        link: 0,
        destination: (any, header.destination_prefix_length),
        gateway: None,
        source: None,
        metric: 0,
        protocol: header.protocol,
    };
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => route.destination.0 = address(to).unwrap_or(any),
            RouteAttribute::Gateway(via) => route.gateway = address(via),
            RouteAttribute::PrefSource(source) => route.source = address(source),
            RouteAttribute::Oif(link) => route.link = *link,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::MultiPath(next) => hops.extend(next.iter().map(|hop| {
                let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Gateway(via) => address(via),
                    _ => None,
                });
                (hop.interface_index, gateway)
            })),
            _ => {}
        }
    }
    if hops.is_empty() {
        return vec![route];
    }
    hops.into_iter().map(|(link, gateway)| FoundRoute { link, gateway, ..route }).collect()
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

fn dynamic(address: &Address, routes: &[&FoundRoute]) -> bool {
    // An infinite lease is permanent to the kernel; the route that came with
    // it is not.
    let leased = |route: &&FoundRoute| route.protocol == RouteProtocol::Dhcp && route.source == Some(address.address);
    !address.permanent || address.advertised || routes.iter().any(leased)
}

fn interface(link: &Link, names: &HashMap<u32, &str>, addresses: &[&Address], routes: &[&FoundRoute]) -> Interface {
    let name = |index: u32| names.get(&index).map(ToString::to_string).unwrap_or_default();
    let text = |address: &Address| format!("{}/{}", address.address, address.prefix);
    let leased: Vec<_> = addresses.iter().filter(|address| dynamic(address, routes)).collect();
    let routed = |v6: bool, protocol: RouteProtocol| {
        routes.iter().any(|route| route.destination.0.is_ipv6() == v6 && route.protocol == protocol)
    };
    let (kind, bond, vlan) = match &link.kind {
        Kind::Card => ("", None, None),
        Kind::Bridge => ("bridge", None, None),
        Kind::Bond(bond, primary) => {
            let primary = primary.map(name).unwrap_or_default();
            ("bond", Some(Bond { primary, ..bond.clone() }), None)
        }
        Kind::Vlan { id, parent } => {
            let vlan = Vlan { id: u32::from(*id), link: name(*parent) };
            ("vlan", None, Some(vlan))
        }
    };
    Interface {
        name: link.name.clone(),
        mac: link.mac.clone(),
        permanent_mac: link.permanent_mac.clone(),
        mtu: link.mtu,
        addresses: addresses.iter().map(|address| text(address)).collect(),
        dynamic_addresses: leased.iter().map(|address| text(address)).collect(),
        kind: kind.to_owned(),
        master: link.master.map(name).unwrap_or_default(),
        dhcp4: leased.iter().any(|a| a.address.is_ipv4()) || routed(false, RouteProtocol::Dhcp),
        // DHCPv6 hands out single addresses, router advertisements prefixes.
        dhcp6: leased.iter().any(|a| a.address.is_ipv6() && a.prefix == 128),
        accept_ra: leased.iter().any(|a| a.address.is_ipv6() && a.prefix < 128) || routed(true, RouteProtocol::Ra),
        bond,
        vlan,
    }
}

fn told_route(route: &FoundRoute, names: &HashMap<u32, &str>) -> Route {
    Route {
        destination: format!("{}/{}", route.destination.0, route.destination.1),
        gateway: route.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
        interface: names.get(&route.link).map(ToString::to_string).unwrap_or_default(),
        metric: route.metric,
        dynamic: matches!(route.protocol, RouteProtocol::Dhcp | RouteProtocol::Ra),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::{BondMode, BondXmitHashPolicy};

    fn link(index: u32, name: &str, extra: Vec<LinkAttribute>) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, u8::try_from(index).unwrap()]),
            LinkAttribute::Mtu(1500),
        ];
        message.attributes.extend(extra);
        message
    }

    fn of_kind(kind: InfoKind, data: Option<InfoData>) -> LinkAttribute {
        let mut info = vec![LinkInfo::Kind(kind)];
        info.extend(data.map(LinkInfo::Data));
        LinkAttribute::LinkInfo(info)
    }

    fn found(index: u32, text: &str, scope: AddressScope, flags: AddressFlags) -> AddressMessage {
        let (address, prefix) = text.split_once('/').unwrap();
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = prefix.parse().unwrap();
        message.header.scope = scope;
        message.attributes = vec![
            AddressAttribute::Address(address.parse().unwrap()),
            AddressAttribute::Flags(flags),
        ];
        message
    }

    fn route(protocol: RouteProtocol, to: &str, via: &str, link: u32, metric: u32) -> RouteMessage {
        let (address, prefix) = to.split_once('/').unwrap();
        let address: IpAddr = address.parse().unwrap();
        let mut message = RouteMessage::default();
        message.header.address_family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.header.protocol = protocol;
        message.header.destination_prefix_length = prefix.parse().unwrap();
        message.attributes = vec![
            RouteAttribute::Destination(address.into()),
            RouteAttribute::Oif(link),
            RouteAttribute::Priority(metric),
        ];
        if !via.is_empty() {
            message.attributes.push(RouteAttribute::Gateway(via.parse::<IpAddr>().unwrap().into()));
        }
        message
    }

    fn names(network: &ObservedNetwork) -> Vec<&str> {
        network.interfaces.iter().map(|interface| interface.name.as_str()).collect()
    }

    #[test]
    fn links_of_containers_and_tunnels_are_not_told() {
        let cases = [
            ("card", link(2, "ens3", vec![]), true),
            ("dummy", link(2, "dummy0", vec![of_kind(InfoKind::Dummy, None)]), false),
            ("veth", link(2, "vethabc", vec![of_kind(InfoKind::Veth, None)]), false),
            ("calico by name", link(2, "cali123", vec![]), false),
            ("tunnel", link(2, "wg0", vec![of_kind(InfoKind::Wireguard, None)]), false),
            ("virtual server", link(2, "kube-ipvs0", vec![of_kind(InfoKind::Dummy, None)]), false),
            ("empty bridge", link(2, "br0", vec![of_kind(InfoKind::Bridge, None)]), false),
            ("kind of tomorrow", link(2, "x0", vec![of_kind(InfoKind::Other("quantum".into()), None)]), false),
        ];
        for (name, given, want) in cases {
            let dump = Dump { links: vec![given], ..Dump::default() };
            assert_eq!(!translate(&dump).interfaces.is_empty(), want, "{name}");
        }
        let mut lo = link(1, "lo", vec![]);
        lo.header.link_layer_type = LinkLayerType::Loopback;
        assert_eq!(translate(&Dump { links: vec![lo], ..Dump::default() }).interfaces, []);
    }

    #[test]
    fn a_bond_with_a_vlan_and_a_bridge_is_told_with_its_parts() {
        let bond = InfoData::Bond(vec![
            InfoBond::Mode(BondMode::Ieee8023Ad),
            InfoBond::MiiMon(100),
            InfoBond::AdLacpRate(BondLacpRate::Fast),
            InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
            InfoBond::Primary(2),
        ]);
        let dump = Dump {
            links: vec![
                link(6, "br0", vec![of_kind(InfoKind::Bridge, None)]),
                link(5, "bond0.7", vec![
                    of_kind(InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(7)]))),
                    LinkAttribute::Link(4),
                    LinkAttribute::Controller(6),
                ]),
                link(4, "bond0", vec![of_kind(InfoKind::Bond, Some(bond))]),
                link(3, "ens4", vec![LinkAttribute::Controller(4), LinkAttribute::PermAddress(vec![2, 0, 0, 0, 0, 0xAB])]),
                link(2, "ens3", vec![LinkAttribute::Controller(4)]),
                link(9, "vlan9", vec![of_kind(InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(9)]))), LinkAttribute::Link(77)]),
            ],
            ..Dump::default()
        };
        let network = translate(&dump);
        assert_eq!(names(&network), ["bond0", "bond0.7", "br0", "ens3", "ens4"]);
        let [bond, vlan, bridge, _, member] = network.interfaces.as_slice() else { panic!() };
        assert_eq!(
            bond.bond,
            Some(Bond {
                mode: "802.3ad".into(),
                miimon: 100,
                lacp_rate: "fast".into(),
                transmit_hash_policy: "layer3+4".into(),
                primary: "ens3".into(),
            })
        );
        assert_eq!(vlan.vlan, Some(Vlan { id: 7, link: "bond0".into() }));
        assert_eq!((vlan.kind.as_str(), vlan.master.as_str()), ("vlan", "br0"));
        assert_eq!(bridge.kind, "bridge");
        assert_eq!((member.master.as_str(), member.permanent_mac.as_str()), ("bond0", "02:00:00:00:00:ab"));
    }

    #[test]
    fn only_lasting_global_addresses_are_told() {
        let permanent = AddressFlags::Permanent;
        let cases = [
            ("static", found(2, "192.0.2.5/24", AddressScope::Universe, permanent), Some(false)),
            ("leased", found(2, "192.0.2.5/24", AddressScope::Universe, AddressFlags::empty()), Some(true)),
            ("second address", found(2, "192.0.2.6/24", AddressScope::Universe, permanent | AddressFlags::Secondary), Some(false)),
            ("link scope", found(2, "192.0.2.5/24", AddressScope::Link, permanent), None),
            ("link-local", found(2, "fe80::1/64", AddressScope::Link, permanent), None),
            ("link-local of IPv4", found(2, "169.254.3.4/16", AddressScope::Universe, permanent), None),
            ("tentative", found(2, "2001:db8::5/64", AddressScope::Universe, permanent | AddressFlags::Tentative), None),
            ("temporary", found(2, "2001:db8::5/64", AddressScope::Universe, AddressFlags::Secondary), None),
            ("advertised", found(2, "2001:db8::5/64", AddressScope::Universe, AddressFlags::Managetempaddr), Some(true)),
        ];
        for (name, address, want) in cases {
            let dump = Dump { links: vec![link(2, "ens3", vec![])], addresses: vec![address], ..Dump::default() };
            let interface = &translate(&dump).interfaces[0];
            let got = interface.addresses.first().map(|_| !interface.dynamic_addresses.is_empty());
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn the_way_an_address_came_is_told_for_both_families() {
        let leased = AddressFlags::empty();
        let mut infinite = route(RouteProtocol::Dhcp, "0.0.0.0/0", "192.0.2.1", 2, 0);
        infinite.attributes.push(RouteAttribute::PrefSource(RouteAddress::Inet([192, 0, 2, 5].into())));
        let cases: [(&str, Vec<AddressMessage>, Vec<RouteMessage>, [bool; 3]); 6] = [
            ("nothing", vec![], vec![], [false; 3]),
            ("lease", vec![found(2, "192.0.2.5/24", AddressScope::Universe, leased)], vec![], [true, false, false]),
            ("infinite lease", vec![found(2, "192.0.2.5/24", AddressScope::Universe, AddressFlags::Permanent)], vec![infinite], [true, false, false]),
            ("dhcpv6", vec![found(2, "2001:db8::5/128", AddressScope::Universe, leased)], vec![], [false, true, false]),
            ("slaac", vec![found(2, "2001:db8::5/64", AddressScope::Universe, leased)], vec![], [false, false, true]),
            ("router only", vec![], vec![route(RouteProtocol::Ra, "::/0", "fe80::1", 2, 1024)], [false, false, true]),
        ];
        for (name, addresses, routes, want) in cases {
            let dump = Dump { links: vec![link(2, "ens3", vec![])], addresses, routes };
            let interface = &translate(&dump).interfaces[0];
            assert_eq!([interface.dhcp4, interface.dhcp6, interface.accept_ra], want, "{name}");
        }
    }

    #[test]
    fn routes_of_the_main_table_are_told_without_the_connected_ones() {
        let mut local = route(RouteProtocol::Static, "203.0.113.0/24", "192.0.2.1", 2, 0);
        local.header.table = 255;
        let mut hole = route(RouteProtocol::Static, "198.51.100.0/24", "", 2, 0);
        hole.header.kind = RouteType::BlackHole;
        let dump = Dump {
            links: vec![link(2, "ens3", vec![])],
            routes: vec![
                route(RouteProtocol::Ra, "::/0", "fe80::1", 2, 1024),
                route(RouteProtocol::Kernel, "192.0.2.0/24", "", 2, 0),
                route(RouteProtocol::Static, "203.0.113.0/24", "192.0.2.1", 2, 50),
                route(RouteProtocol::Dhcp, "0.0.0.0/0", "192.0.2.1", 2, 100),
                route(RouteProtocol::Boot, "10.0.0.0/8", "", 77, 0),
                local,
                hole,
            ],
            ..Dump::default()
        };
        let told: Vec<_> = translate(&dump)
            .routes
            .into_iter()
            .map(|r| (r.destination, r.gateway, r.metric, r.dynamic))
            .collect();
        let want = [
            ("0.0.0.0/0", "192.0.2.1", 100, true),
            ("203.0.113.0/24", "192.0.2.1", 50, false),
            ("::/0", "fe80::1", 1024, true),
        ];
        assert_eq!(told, want.map(|(to, via, metric, dynamic)| (to.to_owned(), via.to_owned(), metric, dynamic)));
    }
}
