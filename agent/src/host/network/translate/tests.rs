use super::*;
use netlink_packet_route::link::{
    BondAdSelect, BondAllPortActive, BondArpAllTargets, BondArpValidate, BondFailOverMac, BondLacpRate,
    BondMode, BondPrimaryReselect, BondXmitHashPolicy, InfoBond, InfoData, InfoKind, InfoVlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::route::RouteNextHop;

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

fn vlan(id: u16) -> LinkAttribute {
    of_kind(InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(id)])))
}

/// An address of link 2.
fn scoped(text: &str, scope: AddressScope, flags: AddressFlags) -> AddressMessage {
    let (address, prefix) = text.split_once('/').unwrap();
    let mut message = AddressMessage::default();
    message.header.index = 2;
    message.header.prefix_len = prefix.parse().unwrap();
    message.header.scope = scope;
    message.attributes =
        vec![AddressAttribute::Address(address.parse().unwrap()), AddressAttribute::Flags(flags)];
    message
}

fn global(text: &str, flags: AddressFlags) -> AddressMessage {
    scoped(text, AddressScope::Universe, flags)
}

/// A route of the main table.
fn route(protocol: RouteProtocol, to: &str, via: &str, link: u32, metric: u32) -> RouteMessage {
    let (address, prefix) = to.split_once('/').unwrap();
    let address: IpAddr = address.parse().unwrap();
    let mut message = RouteMessage::default();
    message.header.address_family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.header.table = u8::try_from(MAIN_TABLE).unwrap();
    message.header.kind = RouteType::Unicast;
    message.header.protocol = protocol;
    message.header.destination_prefix_length = prefix.parse().unwrap();
    message.attributes = vec![
        RouteAttribute::Destination(address.into()),
        RouteAttribute::Oif(link),
        RouteAttribute::Priority(metric),
    ];
    if let Ok(via) = via.parse::<IpAddr>() {
        message.attributes.push(RouteAttribute::Gateway(via.into()));
    }
    message
}

fn interface_of(addresses: Vec<AddressMessage>, routes: Vec<RouteMessage>) -> Interface {
    let links = vec![link(2, "ens3", vec![])];
    translate_dump(&Dump { links, addresses, routes }).interfaces.remove(0)
}

#[test]
fn links_of_containers_and_tunnels_are_not_told() {
    let virtual_link = |name, kind| link(2, name, vec![of_kind(kind, None)]);
    for (name, given, want) in [
        ("card", link(2, "ens3", vec![]), true),
        ("dummy", virtual_link("dummy0", InfoKind::Dummy), false),
        ("veth", virtual_link("vethabc", InfoKind::Veth), false),
        ("card with a container's name", link(2, "cali123", vec![]), true),
        ("tunnel", virtual_link("wg0", InfoKind::Wireguard), false),
        ("virtual server", virtual_link("kube-ipvs0", InfoKind::Dummy), false),
        ("empty bridge", virtual_link("br0", InfoKind::Bridge), false),
        ("kind of tomorrow", virtual_link("x0", InfoKind::Other("quantum".into())), false),
    ] {
        let dump = Dump { links: vec![given], ..Dump::default() };
        assert_eq!(!translate_dump(&dump).interfaces.is_empty(), want, "{name}");
    }
    let mut lo = link(1, "lo", vec![]);
    lo.header.link_layer_type = LinkLayerType::Loopback;
    assert_eq!(translate_dump(&Dump { links: vec![lo], ..Dump::default() }).interfaces, []);
}

/// Two cards in a bond, a VLAN on it, a bridge on that, and a VLAN without a parent.
fn layers() -> Dump {
    let bond = InfoData::Bond(vec![
        InfoBond::Mode(BondMode::Ieee8023Ad),
        InfoBond::MiiMon(100),
        InfoBond::AdLacpRate(BondLacpRate::Fast),
        InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer34),
        InfoBond::Primary(2),
    ]);
    let in_bond = LinkAttribute::Controller(4);
    let burnt_in = LinkAttribute::PermAddress(vec![2, 0, 0, 0, 0, 0xAB]);
    let on_bond = vec![vlan(7), LinkAttribute::Link(4), LinkAttribute::Controller(6)];
    let links = vec![
        link(6, "br0", vec![of_kind(InfoKind::Bridge, None)]),
        link(5, "bond0.7", on_bond),
        link(4, "bond0", vec![of_kind(InfoKind::Bond, Some(bond))]),
        link(3, "ens4", vec![in_bond.clone(), burnt_in]),
        link(2, "ens3", vec![in_bond]),
        link(9, "vlan9", vec![vlan(9), LinkAttribute::Link(77)]),
    ];
    Dump { links, ..Dump::default() }
}

#[test]
fn bonds_vlans_and_bridges_are_translated() {
    let network = translate_dump(&layers());
    let names: Vec<_> = network.interfaces.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["bond0", "bond0.7", "br0", "ens3", "ens4"]);
    let [bond, vlan, bridge, _, member] = network.interfaces.as_slice() else { panic!("{names:?}") };
    let want = Bond {
        mode: "802.3ad".into(),
        miimon: 100,
        lacp_rate: "fast".into(),
        transmit_hash_policy: "layer3+4".into(),
        primary: "ens3".into(),
        ..Bond::default()
    };
    assert_eq!(bond.bond, Some(want));
    assert_eq!(vlan.vlan, Some(Vlan { id: 7, link: "bond0".into() }));
    assert_eq!((vlan.kind.as_str(), vlan.master.as_str()), ("vlan", "br0"));
    assert_eq!(bridge.kind, "bridge");
    assert_eq!(member.master, "bond0");
    assert_eq!(member.permanent_mac, "02:00:00:00:00:ab");
}

#[test]
fn bridge_is_classified_by_members_not_name() {
    let bridge = |name| link(4, name, vec![of_kind(InfoKind::Bridge, None)]);
    let card = || link(2, "ens3", vec![LinkAttribute::Controller(4)]);
    let container = || link(3, "veth1", vec![of_kind(InfoKind::Veth, None), LinkAttribute::Controller(4)]);
    let tagged = |parent| link(5, "vlan7", vec![vlan(7), LinkAttribute::Link(parent)]);
    for (name, links, want) in [
        ("management", vec![bridge("br-mgmt"), card()], vec!["br-mgmt", "ens3"]),
        ("VLAN on it", vec![bridge("br-ex"), card(), tagged(4)], vec!["br-ex", "ens3", "vlan7"]),
        ("named like a plug-in's", vec![bridge("cni0"), card(), container()], vec!["cni0", "ens3"]),
        ("docker's network", vec![bridge("br-0a1b2c3d4e5f"), container()], vec![]),
        ("odd name, containers only", vec![bridge("mgmt"), container()], vec![]),
    ] {
        let dump = Dump { links, ..Dump::default() };
        let told: Vec<_> = translate_dump(&dump).interfaces.into_iter().map(|one| one.name).collect();
        assert_eq!(told, want, "{name}");
    }
    let mut address = global("192.0.2.5/24", AddressFlags::Permanent);
    address.header.index = 4;
    let mut container_address = global("192.0.2.6/24", AddressFlags::Permanent);
    container_address.header.index = 3;
    let addresses = vec![address, container_address];
    for (name, members, want) in [
        ("docker-mgmt", vec![card()], vec!["192.0.2.5/24"]),
        ("lxcbr0", vec![card(), container()], vec!["192.0.2.5/24"]),
        ("mgmt", vec![container()], vec![]),
    ] {
        let links = [vec![bridge(name)], members].concat();
        let dump = Dump { links, addresses: addresses.clone(), ..Dump::default() };
        let network = translate_dump(&dump);
        let told: Vec<_> = network.interfaces.iter().flat_map(|interface| &interface.addresses).collect();
        assert_eq!(told, want, "{name}");
    }
    let dump = Dump { links: vec![bridge("br-ex"), card()], addresses, ..Dump::default() };
    let [bridge, card] = &translate_dump(&dump).interfaces[..] else { panic!() };
    assert_eq!(
        (bridge.addresses.as_slice(), card.master.as_str()),
        (["192.0.2.5/24".to_owned()].as_slice(), "br-ex")
    );
}

#[test]
fn a_link_that_carries_waits_for_its_address() {
    let plugged = |mut link: LinkMessage| {
        link.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        link
    };
    let card = |extra| plugged(link(2, "ens3", extra));
    let address = || vec![global("192.0.2.5/24", AddressFlags::empty())];
    let tagged = plugged(link(5, "vlan7", vec![vlan(7), LinkAttribute::Link(2)]));
    let veth = plugged(link(2, "veth0", vec![of_kind(InfoKind::Veth, None)]));
    for (name, links, addresses, want) in [
        ("no lease yet", vec![card(vec![])], vec![], vec!["ens3"]),
        ("lease", vec![card(vec![])], address(), vec![]),
        ("no cable", vec![link(2, "ens3", vec![])], vec![], vec![]),
        ("member", vec![card(vec![LinkAttribute::Controller(4)])], vec![], vec![]),
        ("below a VLAN", vec![card(vec![]), tagged], vec![], vec!["vlan7"]),
        ("container's", vec![veth], vec![], vec![]),
    ] {
        let dump = Dump { links, addresses, ..Dump::default() };
        assert_eq!(list_unaddressed(&dump), want, "{name}");
    }
}

#[test]
fn only_lasting_global_addresses_are_told() {
    let none = AddressFlags::empty();
    let permanent = AddressFlags::Permanent;
    let second = permanent | AddressFlags::Secondary;
    let tentative = permanent | AddressFlags::Tentative;
    let on_link = |text| scoped(text, AddressScope::Link, permanent);
    for (name, address, dynamic) in [
        ("static", global("192.0.2.5/24", permanent), Some(false)),
        ("leased", global("192.0.2.5/24", none), Some(true)),
        ("second address", global("192.0.2.6/24", second), Some(false)),
        ("link scope", on_link("192.0.2.5/24"), None),
        ("link-local", on_link("fe80::1/64"), None),
        ("link-local of IPv4", global("169.254.3.4/16", permanent), None),
        ("tentative", global("2001:db8::5/64", tentative), None),
        ("temporary", global("2001:db8::5/64", AddressFlags::Secondary), None),
        ("advertised", global("2001:db8::5/64", AddressFlags::Managetempaddr), Some(true)),
    ] {
        let interface = interface_of(vec![address], vec![]);
        let address = interface.addresses.first();
        let got = address.map(|_| !interface.dynamic_addresses.is_empty());
        assert_eq!(got, dynamic, "{name}");
    }
}

#[test]
fn dynamic_addresses_are_detected_in_both_families() {
    let leased = |text| vec![global(text, AddressFlags::empty())];
    let forever = vec![global("192.0.2.5/24", AddressFlags::Permanent)];
    let mut with_lease = route(RouteProtocol::Dhcp, "0.0.0.0/0", "192.0.2.1", 2, 0);
    let source = RouteAddress::Inet([192, 0, 2, 5].into());
    with_lease.attributes.push(RouteAttribute::PrefSource(source));
    let advertised = route(RouteProtocol::Ra, "::/0", "fe80::1", 2, 1024);
    for (name, addresses, routes, dhcp4, dhcp6, accept_ra) in [
        ("nothing", vec![], vec![], false, false, false),
        ("lease", leased("192.0.2.5/24"), vec![], true, false, false),
        ("infinite lease", forever, vec![with_lease], true, false, false),
        ("dhcpv6", leased("2001:db8::5/128"), vec![], false, true, false),
        ("slaac", leased("2001:db8::5/64"), vec![], false, false, true),
        ("router only", vec![], vec![advertised], false, false, true),
    ] {
        let interface = interface_of(addresses, routes);
        let got = (interface.dhcp4, interface.dhcp6, interface.accept_ra);
        assert_eq!(got, (dhcp4, dhcp6, accept_ra), "{name}");
    }
}

#[test]
fn connected_routes_are_left_out() {
    let mut local = route(RouteProtocol::Static, "203.0.113.0/24", "192.0.2.1", 2, 0);
    local.header.table = 255;
    let mut hole = route(RouteProtocol::Static, "198.51.100.0/24", "", 2, 0);
    hole.header.kind = RouteType::BlackHole;
    let routes = vec![
        route(RouteProtocol::Ra, "::/0", "fe80::1", 2, 1024),
        route(RouteProtocol::Kernel, "192.0.2.0/24", "", 2, 0),
        route(RouteProtocol::Static, "203.0.113.0/24", "192.0.2.1", 2, 50),
        route(RouteProtocol::Dhcp, "0.0.0.0/0", "192.0.2.1", 2, 100),
        route(RouteProtocol::Boot, "10.0.0.0/8", "", 77, 0),
        route(RouteProtocol::Bird, "10.244.7.0/26", "192.0.2.7", 2, 0),
        route(RouteProtocol::Zebra, "10.244.8.0/26", "192.0.2.8", 2, 0),
        route(RouteProtocol::Bgp, "10.244.9.0/26", "192.0.2.9", 2, 0),
        route(RouteProtocol::Ospf, "10.244.10.0/26", "192.0.2.10", 2, 0),
        route(RouteProtocol::Babel, "10.244.11.0/26", "192.0.2.11", 2, 0),
        route(RouteProtocol::Other(80), "10.244.12.0/26", "192.0.2.12", 2, 0),
        local,
        hole,
    ];
    let links = vec![link(2, "ens3", vec![])];
    let network = translate_dump(&Dump { links, routes, ..Dump::default() });
    let routes: Vec<_> = network
        .routes
        .iter()
        .map(|r| (r.destination.as_str(), r.gateway.as_str(), r.metric, r.dynamic))
        .collect();
    let want = [
        ("0.0.0.0/0", "192.0.2.1", 100, true),
        ("203.0.113.0/24", "192.0.2.1", 50, false),
        ("::/0", "fe80::1", 1024, true),
    ];
    assert_eq!(routes, want);
}

#[test]
fn gateways_on_the_link_are_told() {
    let through = |destination, gateway| route(RouteProtocol::Static, destination, gateway, 2, 0);
    let flagged = |mut message: RouteMessage| {
        message.header.flags = RouteFlags::Onlink;
        message
    };
    let peer = |protocol, destination| route(protocol, destination, "", 2, 0);
    let mut hops = through("0.0.0.0/0", "");
    let mut hop = RouteNextHop::default();
    hop.interface_index = 2;
    hop.flags = RouteNextHopFlags::Onlink;
    hop.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet([198, 51, 100, 1].into()))];
    hops.attributes.push(RouteAttribute::MultiPath(vec![hop]));
    let mut elsewhere = peer(RouteProtocol::Kernel, "198.51.100.1/32");
    elsewhere.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Oif(_)));
    elsewhere.attributes.push(RouteAttribute::Oif(3));
    let default = || through("0.0.0.0/0", "198.51.100.1");
    for (name, routes, on_link) in [
        ("in a subnet", vec![default()], false),
        ("the kernel's flag", vec![flagged(default())], true),
        ("the flag of a hop", vec![hops], true),
        ("IPv6", vec![flagged(through("::/0", "2001:db8:ff::1"))], true),
        ("peer of an address", vec![default(), peer(RouteProtocol::Kernel, "198.51.100.1/32")], true),
        ("a lease's neighbour", vec![default(), peer(RouteProtocol::Dhcp, "198.51.100.1/32")], true),
        (
            "peer of IPv6",
            vec![through("::/0", "2001:db8::1"), peer(RouteProtocol::Kernel, "2001:db8::1/128")],
            true,
        ),
        ("another peer", vec![default(), peer(RouteProtocol::Kernel, "198.51.100.2/32")], false),
        ("on another link", vec![default(), elsewhere], false),
        ("a subnet", vec![default(), peer(RouteProtocol::Kernel, "198.51.100.0/24")], false),
    ] {
        let links = vec![link(2, "ens3", vec![])];
        let network = translate_dump(&Dump { links, routes, ..Dump::default() });
        let default = network.routes.iter().find(|route| route.destination.ends_with("/0")).unwrap();
        assert_eq!(default.on_link, on_link, "{name}: {default:?}");
    }
}

fn bond_of(data: Vec<InfoBond>) -> Bond {
    let links = vec![
        link(4, "bond0", vec![of_kind(InfoKind::Bond, Some(InfoData::Bond(data)))]),
        link(2, "ens3", vec![LinkAttribute::Controller(4)]),
    ];
    translate_dump(&Dump { links, ..Dump::default() }).interfaces.remove(0).bond.unwrap()
}

/// The parameters as a kernel prints them for a bond on which only the mode was set.
fn defaults(mode: BondMode) -> Vec<InfoBond> {
    vec![
        InfoBond::Mode(mode),
        InfoBond::MiiMon(0),
        InfoBond::UpDelay(0),
        InfoBond::DownDelay(0),
        InfoBond::UseCarrier(true),
        InfoBond::ArpInterval(0),
        InfoBond::ArpValidate(BondArpValidate::None),
        InfoBond::ArpAllTargets(BondArpAllTargets::Any),
        InfoBond::PrimaryReselect(BondPrimaryReselect::Always),
        InfoBond::FailOverMac(BondFailOverMac::None),
        InfoBond::XmitHashPolicy(BondXmitHashPolicy::Layer2),
        InfoBond::ResendIgmp(1),
        InfoBond::NumPeerNotif(1),
        InfoBond::AllPortsActive(BondAllPortActive::Dropped),
        InfoBond::MinLinks(0),
        InfoBond::LpInterval(1),
        InfoBond::PacketsPerPort(1),
        InfoBond::AdLacpRate(BondLacpRate::Slow),
        InfoBond::AdSelect(BondAdSelect::Stable),
        InfoBond::AdActorSysPrio(65535),
        InfoBond::AdUserPortKey(0),
        InfoBond::AdActorSystem([0; 6]),
        InfoBond::TlbDynamicLb(true),
        InfoBond::PeerNotifDelay(0),
        InfoBond::AdLacpActive(true),
        InfoBond::MissedMax(2),
        InfoBond::CoupledControl(true),
        InfoBond::BroadcastNeigh(false),
    ]
}

#[test]
fn defaults_of_a_bond_are_not_told() {
    let plain = |mode: &str| Bond { mode: mode.into(), ..Bond::default() };
    let hashed = |mode: &str| Bond { transmit_hash_policy: "layer2".into(), ..plain(mode) };
    for (mode, want) in [
        (BondMode::BalanceRr, plain("balance-rr")),
        (BondMode::ActiveBackup, plain("active-backup")),
        (BondMode::BalanceTlb, hashed("balance-tlb")),
        (BondMode::Ieee8023Ad, Bond { lacp_rate: "slow".into(), ..hashed("802.3ad") }),
    ] {
        assert_eq!(bond_of(defaults(mode)), want);
    }
}

#[test]
fn parameters_of_a_bond_are_told() {
    let backup = Bond {
        mode: "active-backup".into(),
        arp_interval: 500,
        arp_ip_targets: vec!["192.0.2.1".into(), "192.0.2.2".into()],
        arp_validate: "all".into(),
        arp_all_targets: "all".into(),
        primary_reselect: "failure".into(),
        fail_over_mac: "active".into(),
        gratuitous_arp: Some(0),
        resend_igmp: Some(5),
        learn_packet_interval: 3,
        all_members_active: true,
        ..Bond::default()
    };
    let targets = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into(), [0; 4].into()];
    let set = [
        InfoBond::ArpInterval(500),
        InfoBond::ArpIpTarget(targets),
        InfoBond::ArpValidate(BondArpValidate::All),
        InfoBond::ArpAllTargets(BondArpAllTargets::All),
        InfoBond::PrimaryReselect(BondPrimaryReselect::Failure),
        InfoBond::FailOverMac(BondFailOverMac::Active),
        InfoBond::NumPeerNotif(0),
        InfoBond::ResendIgmp(5),
        InfoBond::LpInterval(3),
        InfoBond::AllPortsActive(BondAllPortActive::Delivered),
        // Both have no effect: the first without link checks, the second in this mode.
        InfoBond::UpDelay(200),
        InfoBond::PacketsPerPort(7),
    ];
    assert_eq!(bond_of([defaults(BondMode::ActiveBackup), set.into()].concat()), backup);
    let lacp = [
        InfoBond::MiiMon(100),
        InfoBond::UpDelay(200),
        InfoBond::DownDelay(300),
        InfoBond::MinLinks(2),
        InfoBond::AdSelect(BondAdSelect::Bandwidth),
        InfoBond::ArpInterval(500),
        InfoBond::UseCarrier(false),
        InfoBond::AdActorSysPrio(7),
        InfoBond::AdActorSystem([2, 0, 0, 0, 0, 10]),
        InfoBond::AdLacpActive(false),
        InfoBond::MissedMax(3),
        InfoBond::FailOverMac(BondFailOverMac::Other(9)),
    ];
    let got = bond_of([defaults(BondMode::Ieee8023Ad), lacp.into()].concat());
    assert_eq!((got.miimon, got.up_delay, got.down_delay, got.min_links), (100, 200, 300, 2));
    assert_eq!((got.ad_select.as_str(), got.arp_interval), ("bandwidth", 0));
    let want = [
        "fail_over_mac=unknown-variant (9)",
        "use_carrier=0",
        "ad_actor_sys_prio=7",
        "ad_actor_system=02:00:00:00:00:0a",
        "lacp_active=off",
        "arp_missed_max=3",
    ];
    assert_eq!(got.unsupported, want);
    let turns = bond_of([defaults(BondMode::BalanceRr), vec![InfoBond::PacketsPerPort(0)]].concat());
    assert_eq!(turns.packets_per_member, Some(0));
}
