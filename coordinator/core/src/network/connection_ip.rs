//! `[ipv4]` and `[ipv6]` of a keyfile.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::keyfile::Keyfile;
use super::model::{Device, Route, check_routes};
use super::{NetworkError, bad_value, check_domain, is_special, parse_address, parse_destination, parse_net};

const IP_GROUPS: [&str; 2] = ["ipv4", "ipv6"];

/// Keys that are followed, or whose effect ends with the connection.
const KEYS: [&str; 9] = [
    "method",
    "gateway",
    "dns",
    "dns-search",
    "route-metric",
    "may-fail",
    "addr-gen-mode",
    "ip6-privacy",
    "dhcp-timeout",
];

/// Adds addresses, routes and resolvers of both families, and returns what
/// network-config has no words for.
pub(super) fn parse_families(
    connection: &str,
    file: &Keyfile,
    interface: &str,
    device: &mut Device,
) -> Result<Vec<String>, NetworkError> {
    let place = format!("connection {connection}");
    let mut unknown = BTreeSet::new();
    let mut routes = Vec::new();
    for group in IP_GROUPS {
        parse_method(file, group, device, &mut unknown);
        if matches!(method(file, group), "disabled" | "ignore") {
            continue;
        }
        for (key, value) in file.keys(group).filter(|(_, value)| !value.is_empty()) {
            match numbered(key) {
                Some("address" | "addresses") => {
                    let (address, gateway) = parse_address_line(&place, value)?;
                    device.addresses.extend((!is_special(address.addr())).then_some(address));
                    routes.extend(gateway.map(|gateway| gateway_route(&place, gateway, None)).transpose()?);
                }
                Some("route" | "routes") => routes.push(parse_route(&place, value)?),
                None if KEYS.contains(&key) => {}
                Some(_) | None => unknown.extend([format!("[{group}] {key}")]),
            }
        }
        if let Some(gateway) = file.value(group, "gateway") {
            routes.push(gateway_route(&place, gateway, None)?);
        }
        set_metric(&place, file, group, &mut routes)?;
        parse_resolvers(&place, file, group, device)?;
    }
    let subnets: Vec<IpNet> = device.addresses.iter().map(IpNet::trunc).collect();
    let known = |dynamic: bool| (!dynamic).then_some(subnets.as_slice());
    let subnets = [known(device.dhcp4), known(device.dhcp6 || device.accept_ra)];
    device.routes = check_routes(interface, subnets, routes)?;
    Ok(unknown.into_iter().map(|what| format!("{place}: {what}")).collect())
}

/// Without a method `NetworkManager` asks the network.
fn method<'a>(file: &'a Keyfile, group: &str) -> &'a str {
    file.value(group, "method").unwrap_or("auto")
}

fn parse_method(file: &Keyfile, group: &str, device: &mut Device, unknown: &mut BTreeSet<String>) {
    match (group, method(file, group)) {
        ("ipv4", "auto") => device.dhcp4 = true,
        ("ipv6", "auto") => device.accept_ra = true,
        ("ipv6", "dhcp") => device.dhcp6 = true,
        (_, "manual" | "disabled" | "ignore" | "link-local") => {}
        _ => unknown.extend([format!("[{group}] method")]),
    }
}

/// `route` of `route12`, and `route_options` of `route12_options`.
fn numbered(key: &str) -> Option<&'static str> {
    let rest = |word: &str| {
        let rest = key.strip_prefix(word)?.trim_start_matches(|c: char| c.is_ascii_digit());
        Some(rest.to_owned())
    };
    for word in ["addresses", "address", "routes", "route"] {
        match rest(word).as_deref() {
            Some("") => return Some(word),
            Some("_options") => return Some("options"),
            _ => {}
        }
    }
    None
}

/// Separators that `NetworkManager` takes within a line.
fn split_line(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ';', ' ']).map(str::trim)
}

fn parse_address_line<'a>(place: &str, value: &'a str) -> Result<(IpNet, Option<&'a str>), NetworkError> {
    let mut parts = split_line(value);
    let address = parse_net(place, parts.next().unwrap_or_default())?;
    let gateway = parts.next().filter(|gateway| !is_nothing(gateway));
    Ok((address, gateway))
}

fn is_nothing(gateway: &str) -> bool {
    matches!(gateway, "" | "0.0.0.0" | "::")
}

fn parse_route(place: &str, value: &str) -> Result<Route, NetworkError> {
    let mut parts = split_line(value);
    let destination = parse_destination(place, parts.next().unwrap_or_default())?;
    let gateway = parts.next().filter(|gateway| !is_nothing(gateway));
    let gateway = gateway.map(|gateway| parse_address(place, gateway)).transpose()?;
    let metric = parts.next().filter(|metric| !metric.is_empty());
    let metric = metric.map(|metric| parse_metric(place, metric)).transpose()?;
    Ok(Route { destination, gateway, metric: metric.filter(|metric| *metric > 0) })
}

fn parse_metric(place: &str, text: &str) -> Result<i64, NetworkError> {
    let metric = text.parse::<u32>().map_err(|_| bad_value(place, text, "metric of a route"))?;
    Ok(i64::from(metric))
}

fn gateway_route(place: &str, gateway: &str, metric: Option<i64>) -> Result<Route, NetworkError> {
    let gateway = parse_address(place, gateway)?;
    let destination = parse_destination(place, if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" })?;
    Ok(Route { destination, gateway: Some(gateway), metric })
}

/// `route-metric` is that of routes of the family that have none.
fn set_metric(place: &str, file: &Keyfile, group: &str, routes: &mut [Route]) -> Result<(), NetworkError> {
    let Some(text) = file.value(group, "route-metric").filter(|text| *text != "-1") else { return Ok(()) };
    let metric = parse_metric(place, text)?;
    let is_ours = |route: &&mut Route| route.destination.addr().is_ipv6() == (group == "ipv6");
    for route in routes.iter_mut().filter(is_ours).filter(|route| route.metric.is_none()) {
        route.metric = Some(metric).filter(|metric| *metric > 0);
    }
    Ok(())
}

fn parse_resolvers(
    place: &str,
    file: &Keyfile,
    group: &str,
    device: &mut Device,
) -> Result<(), NetworkError> {
    let list = |key| {
        let items = file.value(group, key).unwrap_or_default().split([';', ',']);
        items.map(str::trim).filter(|item| !item.is_empty())
    };
    for server in list("dns") {
        device.dns_servers.push(parse_address(place, server)?);
    }
    for domain in list("dns-search") {
        check_domain(domain)?;
        if !device.search_domains.iter().any(|known| known == domain) {
            device.search_domains.push(domain.to_owned());
        }
    }
    Ok(())
}
