//! How a reported network differs from the intended one.

use std::collections::BTreeSet;

use coordinator_api::network::{ObservedInterface, ObservedNetwork};
use ipnet::IpNet;

/// Differences listed in one message; more are counted.
const MAX_LISTED: usize = 8;

/// What changed since `intended`, as a message; `None` when nothing did. Not
/// counted as change: leases and advertised routes, which are meant to change,
/// and interfaces that carry nothing.
pub fn describe_drift(intended: &ObservedNetwork, observed: &ObservedNetwork) -> Option<String> {
    let mut changes = Vec::new();
    for wanted in &intended.interfaces {
        match observed.interfaces.iter().find(|found| found.name == wanted.name) {
            Some(found) => compare_interface(wanted, found, &mut changes),
            None if carries_addresses(wanted) => changes.push(format!("interface {} is gone", wanted.name)),
            None => {}
        }
    }
    for found in &observed.interfaces {
        let known = intended.interfaces.iter().any(|wanted| wanted.name == found.name);
        if !known && carries_addresses(found) {
            changes.push(format!("interface {} is new", found.name));
        }
    }
    compare_sets("route", &route_set(intended), &route_set(observed), &mut changes);
    if !intended.interfaces.iter().any(is_dynamic) {
        let servers =
            |network: &ObservedNetwork| network.dns_servers.iter().cloned().collect::<BTreeSet<_>>();
        compare_sets("resolver", &servers(intended), &servers(observed), &mut changes);
    }
    join_changes(&changes)
}

fn join_changes(changes: &[String]) -> Option<String> {
    let listed = changes.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join("; ");
    match changes.len() {
        0 => None,
        many if many > MAX_LISTED => Some(format!("{listed}; and {} more", many - MAX_LISTED)),
        _ => Some(listed),
    }
}

fn compare_interface(wanted: &ObservedInterface, found: &ObservedInterface, changes: &mut Vec<String>) {
    let name = &wanted.name;
    let mut differs = |what: &str, wanted: &str, found: &str| {
        if wanted != found {
            let show = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
            changes.push(format!("{name}: {what} is {} instead of {}", show(found), show(wanted)));
        }
    };
    let card = |interface: &ObservedInterface| {
        interface.permanent_mac.clone().or(interface.mac.clone()).unwrap_or_default()
    };
    if wanted.kind.as_deref().unwrap_or_default().is_empty() {
        differs("MAC address", &card(wanted), &card(found));
    }
    differs("kind", wanted.kind.as_deref().unwrap_or_default(), found.kind.as_deref().unwrap_or_default());
    differs(
        "master",
        wanted.master.as_deref().unwrap_or_default(),
        found.master.as_deref().unwrap_or_default(),
    );
    if let (Some(wanted), Some(found), false) = (wanted.mtu, found.mtu, is_dynamic(wanted)) {
        differs("MTU", &wanted.to_string(), &found.to_string());
    }
    // An imported inventory says neither.
    if wanted.vlan.is_some() {
        differs("VLAN", &vlan_text(wanted), &vlan_text(found));
    }
    if let Some(bond) = &wanted.bond {
        differs("mode", &bond.mode, found.bond.as_ref().map_or("", |bond| &bond.mode));
    }
    for (what, wanted, found) in [("IPv4", wanted.dhcp4, found.dhcp4), ("IPv6", wanted.dhcp6, found.dhcp6)] {
        if wanted && !found {
            changes.push(format!("{name}: {what} comes no longer from DHCP"));
        }
    }
    if wanted.master.is_none() {
        compare_sets(&format!("{name}: address"), &address_set(wanted), &address_set(found), changes);
    }
}

fn compare_sets(what: &str, wanted: &BTreeSet<String>, found: &BTreeSet<String>, changes: &mut Vec<String>) {
    changes.extend(wanted.difference(found).map(|value| format!("{what} {value} is gone")));
    changes.extend(found.difference(wanted).map(|value| format!("{what} {value} is new")));
}

fn address_set(interface: &ObservedInterface) -> BTreeSet<String> {
    let special = |address: &str| address.parse::<IpNet>().is_ok_and(|net| super::is_special(net.addr()));
    let fixed = |address: &&String| !interface.dynamic_addresses.contains(address) && !special(address);
    interface.addresses.iter().filter(fixed).cloned().collect()
}

fn vlan_text(interface: &ObservedInterface) -> String {
    interface.vlan.as_ref().map(|vlan| format!("{} of {}", vlan.id, vlan.link)).unwrap_or_default()
}

/// In one form: an imported inventory says `default`, and lists routes that
/// its addresses imply.
fn route_set(network: &ObservedNetwork) -> BTreeSet<String> {
    let text =
        |value: Option<&str>, word: &str| value.map(|value| format!(" {word} {value}")).unwrap_or_default();
    let addresses = network.interfaces.iter().flat_map(|interface| &interface.addresses);
    let implied: BTreeSet<String> =
        addresses.filter_map(|address| Some(address.parse::<IpNet>().ok()?.trunc().to_string())).collect();
    let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let mut routes = BTreeSet::new();
    for route in network.routes.iter().filter(|route| !route.dynamic) {
        let gateway = given(&route.gateway);
        let destination = match (route.destination.as_str(), &gateway) {
            ("default", Some(gateway)) if gateway.contains(':') => "::/0",
            ("default", _) => "0.0.0.0/0",
            (destination, _) => destination,
        };
        if gateway.is_none() && implied.contains(destination) {
            continue;
        }
        let interface = given(&route.interface);
        let leaving = text(gateway.as_deref(), "via") + &text(interface.as_deref(), "dev");
        routes.insert(destination.to_owned() + &leaving);
    }
    routes
}

fn is_dynamic(interface: &ObservedInterface) -> bool {
    interface.dhcp4 || interface.dhcp6 || interface.accept_ra
}

fn carries_addresses(interface: &ObservedInterface) -> bool {
    is_dynamic(interface) || interface.master.is_some() || !address_set(interface).is_empty()
}
