//! Links, addresses, routes and rules as items, each with the request that removes it.

use std::collections::{BTreeSet, HashMap};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};

use super::Found;
use crate::host::network::common_prefix;
use crate::host::network::dump::Dump;
use crate::host::network::translate::{Address, FoundRoute, is_dynamic, parse_address, parse_any_route};
use crate::state::before_node::KernelItem;

/// The kernel's own rules, by priority: its tables `local`, `main` and `default`.
const KERNEL_RULES: [u32; 3] = [0, 32_766, 32_767];
/// The table of the kernel's own addresses.
const LOCAL_TABLE: u32 = 255;
const LOOPBACK: &str = "lo";
/// Links that a module makes when it is loaded; they cannot be removed, and carry nothing without
/// an address.
const FALLBACK_LINKS: [&str; 10] = [
    "tunl0",
    "sit0",
    "gre0",
    "gretap0",
    "erspan0",
    "ip_vti0",
    "ip6_vti0",
    "ip6tnl0",
    "ip6gre0",
    "ip6gretap0",
];

/// Everything that a program or an operator configured. Leases and advertised routes are left out,
/// because they change by themselves.
pub(super) fn list_found(dump: &Dump, rules: Vec<RuleMessage>) -> Vec<Found> {
    let names = list_names(dump);
    let mut found: Vec<_> = dump.links.iter().filter_map(find_link).collect();
    let routes: Vec<_> = dump.routes.iter().flat_map(parse_any_route).collect();
    found.extend(dump.addresses.iter().filter_map(|address| find_address(address, &names, &routes)));
    found.extend(dump.routes.iter().flat_map(|route| find_routes(route, &names)));
    found.extend(rules.into_iter().filter_map(find_rule));
    found
}

/// Foreign addresses by which the host may be attached. Single addresses are not, nor those in a subnet
/// in which the host keeps an own one, nor those on links without a way out.
pub(super) fn list_staying(foreign: &[Found], dump: &Dump) -> BTreeSet<KernelItem> {
    let foreign: BTreeSet<_> = foreign.iter().map(|found| &found.item).collect();
    let names = list_names(dump);
    let seen = dump.addresses.iter().filter_map(|message| {
        let address = parse_address(message)?;
        Some((address, (*names.get(&address.link)?).to_owned()))
    });
    let (foreign, own): (Vec<_>, Vec<_>) =
        seen.partition(|(address, link)| foreign.contains(&address_item(address, link)));
    let stays = |(address, link): &(Address, String)| {
        let is_single = address.prefix == if address.ip.is_ipv4() { 32 } else { 128 };
        let is_aside = link == LOOPBACK || FALLBACK_LINKS.contains(&link.as_str());
        let has_own = own.iter().any(|(own, _)| {
            let common = common_prefix(own.ip, address.ip);
            own.link == address.link && common.is_some_and(|common| common >= u32::from(address.prefix))
        });
        !is_single && !is_aside && !has_own
    };
    foreign.iter().filter(|seen| stays(seen)).map(|(address, link)| address_item(address, link)).collect()
}

fn list_names(dump: &Dump) -> HashMap<u32, &str> {
    dump.links.iter().filter_map(|link| Some((link.header.index, name_of(link)?))).collect()
}

fn address_item(address: &Address, link: &str) -> KernelItem {
    KernelItem::Address { address: address.to_string(), link: link.to_owned() }
}

fn name_of(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

/// A virtual link. A card has no kind, and nobody removes it.
fn find_link(link: &LinkMessage) -> Option<Found> {
    let name = name_of(link).filter(|name| !FALLBACK_LINKS.contains(name))?;
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(info) => info.iter().find_map(|info| match info {
            LinkInfo::Kind(_) => Some(()),
            _ => None,
        }),
        _ => None,
    })?;
    let mut removal = LinkMessage::default();
    removal.header.index = link.header.index;
    Some(Found {
        item: KernelItem::Link(name.to_owned()),
        removal: Some(RouteNetlinkMessage::DelLink(removal)),
    })
}

fn find_address(
    message: &AddressMessage,
    names: &HashMap<u32, &str>,
    routes: &[FoundRoute],
) -> Option<Found> {
    let address = parse_address(message)?;
    let own: Vec<_> = routes.iter().filter(|route| route.link == address.link).collect();
    if is_dynamic(&address, &own) {
        return None;
    }
    let link = names.get(&address.link)?;
    let mut removal = AddressMessage::default();
    removal.header = message.header.clone();
    removal.attributes = message
        .attributes
        .iter()
        .filter(|attribute| matches!(attribute, AddressAttribute::Local(_) | AddressAttribute::Address(_)))
        .cloned()
        .collect();
    Some(Found {
        item: address_item(&address, link),
        removal: Some(RouteNetlinkMessage::DelAddress(removal)),
    })
}

fn find_routes(message: &RouteMessage, names: &HashMap<u32, &str>) -> Vec<Found> {
    parse_any_route(message).iter().filter_map(|route| find_route(route, message, names)).collect()
}

fn find_route(route: &FoundRoute, message: &RouteMessage, names: &HashMap<u32, &str>) -> Option<Found> {
    let is_own = matches!(
        route.protocol,
        RouteProtocol::Kernel | RouteProtocol::Dhcp | RouteProtocol::Ra | RouteProtocol::IcmpRedirect
    );
    let word = match route.kind {
        RouteType::Unicast => "",
        RouteType::BlackHole => "blackhole ",
        RouteType::Unreachable => "unreachable ",
        RouteType::Prohibit => "prohibit ",
        RouteType::Throw => "throw ",
        _ => return None,
    };
    if is_own || route.table == LOCAL_TABLE {
        return None;
    }
    let link = names.get(&route.link).copied().filter(|_| route.kind == RouteType::Unicast);
    let item = KernelItem::Route {
        destination: format!("{word}{}/{}", route.destination.0, route.destination.1),
        gateway: route.gateway.map(|gateway| gateway.to_string()).unwrap_or_default(),
        link: link.unwrap_or_default().to_owned(),
        table: route.table,
    };
    let mut removal = RouteMessage::default();
    removal.header = message.header.clone();
    removal.attributes = message
        .attributes
        .iter()
        .filter(|attribute| {
            matches!(
                attribute,
                RouteAttribute::Destination(_)
                    | RouteAttribute::Gateway(_)
                    | RouteAttribute::Oif(_)
                    | RouteAttribute::Priority(_)
                    | RouteAttribute::Table(_)
                    | RouteAttribute::MultiPath(_)
            )
        })
        .cloned()
        .collect();
    Some(Found { item, removal: Some(RouteNetlinkMessage::DelRoute(removal)) })
}

fn find_rule(rule: RuleMessage) -> Option<Found> {
    let [mut priority, mut table, mut mark] = [0, u32::from(rule.header.table), 0];
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::FwMark(number) => mark = *number,
            _ => {}
        }
    }
    let is_kernel = KERNEL_RULES.contains(&priority) && mark == 0;
    (!is_kernel).then_some(Found {
        item: KernelItem::Rule { priority, table, mark },
        removal: Some(RouteNetlinkMessage::DelRule(rule)),
    })
}
