//! Differences between the reported and the intended network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use coordinator_api::network::{ObservedBond, ObservedInterface, ObservedNetwork};
use ipnet::IpNet;

use super::bond;
use super::model::DEFAULT_MTU;

/// Bound of the differences in one message; the others are counted.
const MAX_LISTED: usize = 8;

/// Describes the differences; `None` if there is none. Leases and advertised routes are
/// expected to change and are ignored, as are interfaces without addresses.
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
        let is_known = intended.interfaces.iter().any(|wanted| wanted.name == found.name);
        if !is_known && carries_addresses(found) {
            changes.push(format!("interface {} is new", found.name));
        }
    }
    compare_sets("route", &route_set(intended), &route_set(observed), &mut changes);
    if !intended.interfaces.iter().any(|interface| interface.address_sources().is_any()) {
        let [wanted, found] =
            [intended, observed].map(|network| network.dns_servers.iter().cloned().collect());
        compare_sets("resolver", &wanted, &found, &mut changes);
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
    let mut compare = |subject: &str, wanted: Option<&str>, found: Option<&str>| {
        let [wanted, found] =
            [wanted, found].map(|text| text.filter(|text| !text.is_empty()).unwrap_or("none"));
        if wanted != found {
            changes.push(format!("{name}: {subject} is {found} instead of {wanted}"));
        }
    };
    if wanted.is_card() {
        compare("MAC address", wanted.card_mac(), found.card_mac());
    }
    compare("kind", wanted.kind.as_deref(), found.kind.as_deref());
    compare("master", wanted.master_name(), found.master_name());
    // DHCP and routers may set another MTU than the default, which is not replayed.
    let sets_mtu = |mtu: &i64| *mtu != DEFAULT_MTU || !wanted.address_sources().is_any();
    if let (Some(wanted), Some(found)) = (wanted.mtu.filter(sets_mtu), found.mtu) {
        compare("MTU", Some(&wanted.to_string()), Some(&found.to_string()));
    }
    // An imported inventory has no parameters of VLANs and bonds.
    if let Some(wanted) = vlan_text(wanted) {
        compare("VLAN", Some(&wanted), vlan_text(found).as_deref());
    }
    if let Some(bond) = &wanted.bond {
        let [wanted, found] = [Some(bond), found.bond.as_ref()].map(parameter_texts);
        let keys: BTreeSet<_> = wanted.keys().chain(found.keys()).copied().collect();
        for key in keys {
            compare(key, wanted.get(key).map(String::as_str), found.get(key).map(String::as_str));
        }
    }
    for (family, wanted, found) in [("IPv4", wanted.dhcp4, found.dhcp4), ("IPv6", wanted.dhcp6, found.dhcp6)]
    {
        if wanted && !found {
            changes.push(format!("{name}: {family} no longer comes from DHCP"));
        }
    }
    if wanted.master_name().is_none() {
        compare_sets(&format!("{name}: address"), &address_set(wanted), &address_set(found), changes);
    }
}

fn compare_sets(
    subject: &str,
    wanted: &BTreeSet<String>,
    found: &BTreeSet<String>,
    changes: &mut Vec<String>,
) {
    changes.extend(wanted.difference(found).map(|value| format!("{subject} {value} is gone")));
    changes.extend(found.difference(wanted).map(|value| format!("{subject} {value} is new")));
}

fn address_set(interface: &ObservedInterface) -> BTreeSet<String> {
    let fixed = interface.addresses.iter().filter(|address| {
        let is_special = address.parse::<IpNet>().is_ok_and(|net| super::is_special(net.addr()));
        !is_special && !interface.dynamic_addresses.contains(address)
    });
    fixed.cloned().collect()
}

fn parameter_texts(bond: Option<&ObservedBond>) -> BTreeMap<&'static str, String> {
    let set = bond.into_iter().flat_map(bond::list_parameters);
    set.map(|set| (set.key, set.value.to_string())).collect()
}

fn vlan_text(interface: &ObservedInterface) -> Option<String> {
    interface.vlan.as_ref().map(|vlan| format!("{} of {}", vlan.id, vlan.link))
}

/// The static routes in one form, because an imported inventory writes `default`, and lists
/// routes that its addresses imply.
fn route_set(network: &ObservedNetwork) -> BTreeSet<String> {
    let addresses = network.interfaces.iter().flat_map(|interface| &interface.addresses);
    let subnets = addresses.filter_map(|address| Some(address.parse::<IpNet>().ok()?.trunc()));
    // A gateway outside of the subnets is replayed by a route to it.
    let gateways = network.routes.iter().filter_map(|route| route.gateway.as_ref()?.parse::<IpAddr>().ok());
    let implied: BTreeSet<String> =
        subnets.chain(gateways.map(IpNet::from)).map(|net| net.to_string()).collect();
    let mut routes = BTreeSet::new();
    for route in network.routes.iter().filter(|route| !route.dynamic) {
        let gateway = route.gateway.as_deref().filter(|gateway| !gateway.is_empty());
        let interface = route.interface.as_deref().filter(|interface| !interface.is_empty());
        let destination = match (route.destination.as_str(), gateway) {
            ("default", Some(gateway)) if gateway.contains(':') => "::/0",
            ("default", _) => "0.0.0.0/0",
            (destination, _) => destination,
        };
        if gateway.is_none() && implied.contains(destination) {
            continue;
        }
        let via = gateway.map_or_else(String::new, |gateway| format!(" via {gateway}"));
        let dev = interface.map_or_else(String::new, |interface| format!(" dev {interface}"));
        routes.insert(format!("{destination}{via}{dev}"));
    }
    routes
}

fn carries_addresses(interface: &ObservedInterface) -> bool {
    interface.address_sources().is_any()
        || interface.master_name().is_some()
        || !address_set(interface).is_empty()
}
