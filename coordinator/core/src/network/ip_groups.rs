//! `[ipv4]` and `[ipv6]` of a keyfile, read and written.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::keyfile::{Keyfile, Writer};
use super::model::{Device, Route, check_routes};
use super::{NetworkError, bad_value, check_domain, is_special, parse_address, parse_destination, parse_net};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    fn group(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// Adds addresses, routes and resolvers of both families to `device`. Returns the settings
/// that network-config cannot express.
pub(super) fn parse_groups(
    connection: &str,
    file: &Keyfile,
    interface: &str,
    device: &mut Device,
) -> Result<Vec<String>, NetworkError> {
    let place = format!("connection {connection}");
    let mut unknown = BTreeSet::new();
    let mut routes = Vec::new();
    for family in Family::ALL {
        let group = family.group();
        // NetworkManager configures a family automatically if no method is given.
        let method = file.value(group, "method").unwrap_or("auto");
        match (family, method) {
            (Family::V4, "auto") => device.sources.dhcp4 = true,
            (Family::V6, "auto") => device.sources.accept_ra = true,
            (Family::V6, "dhcp") => device.sources.dhcp6 = true,
            (_, "manual" | "link-local") => {}
            (_, "disabled" | "ignore") => continue,
            _ => unknown.extend([format!("[{group}] method")]),
        }
        for (key, value) in file.keys(group).filter(|(_, value)| !value.is_empty()) {
            match split_number(key) {
                Some("address" | "addresses") => {
                    let (address, gateway) = parse_address_line(&place, value)?;
                    device.addresses.extend((!is_special(address.addr())).then_some(address));
                    routes.extend(gateway.map(|gateway| gateway_route(&place, gateway)).transpose()?);
                }
                Some("route" | "routes") => routes.push(parse_route(&place, value)?),
                None if KEYS.contains(&key) => {}
                Some(_) | None => unknown.extend([format!("[{group}] {key}")]),
            }
        }
        if let Some(gateway) = file.value(group, "gateway") {
            routes.push(gateway_route(&place, gateway)?);
        }
        set_metric(&place, file, family, &mut routes)?;
        parse_resolvers(&place, file, group, device)?;
    }
    device.routes = check_routes(interface, &device.static_subnets(), routes)?;
    Ok(unknown.into_iter().map(|setting| format!("{place}: {setting}")).collect())
}

/// `route` for `route12`, and `options` for `route12_options`.
fn split_number(key: &str) -> Option<&'static str> {
    for word in ["addresses", "address", "routes", "route"] {
        let rest = key.strip_prefix(word).map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        match rest {
            Some("") => return Some(word),
            Some("_options") => return Some("options"),
            _ => {}
        }
    }
    None
}

/// The parts of a line by the separators that `NetworkManager` accepts.
fn split_line(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ';', ' ']).map(str::trim)
}

fn parse_address_line<'a>(place: &str, value: &'a str) -> Result<(IpNet, Option<&'a str>), NetworkError> {
    let mut parts = split_line(value);
    let address = parse_net(place, parts.next().unwrap_or(""))?;
    let gateway = parts.next().filter(|gateway| !is_unset(gateway));
    Ok((address, gateway))
}

fn is_unset(gateway: &str) -> bool {
    matches!(gateway, "" | "0.0.0.0" | "::")
}

fn parse_route(place: &str, value: &str) -> Result<Route, NetworkError> {
    let mut parts = split_line(value);
    let destination = parse_destination(place, parts.next().unwrap_or(""))?;
    let gateway = parts.next().filter(|gateway| !is_unset(gateway));
    let gateway = gateway.map(|gateway| parse_address(place, gateway)).transpose()?;
    let metric = parts.next().filter(|metric| !metric.is_empty());
    let metric = metric.map(|metric| parse_metric(place, metric)).transpose()?;
    Ok(Route { destination, gateway, metric: metric.filter(|metric| *metric > 0), on_link: false })
}

fn parse_metric(place: &str, text: &str) -> Result<i64, NetworkError> {
    let metric = text.parse::<u32>().map_err(|_| bad_value(place, text, "metric of a route"))?;
    Ok(i64::from(metric))
}

fn gateway_route(place: &str, gateway: &str) -> Result<Route, NetworkError> {
    let gateway = parse_address(place, gateway)?;
    let destination = parse_destination(place, if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" })?;
    // NetworkManager itself adds a route to a default gateway outside of the subnets.
    Ok(Route { destination, gateway: Some(gateway), metric: None, on_link: true })
}

/// `route-metric` is the metric of all routes of the family that have none.
fn set_metric(place: &str, file: &Keyfile, family: Family, routes: &mut [Route]) -> Result<(), NetworkError> {
    let Some(text) = file.value(family.group(), "route-metric").filter(|text| *text != "-1") else {
        return Ok(());
    };
    let metric = parse_metric(place, text)?;
    let routes = routes.iter_mut().filter(|route| family.contains(route.destination.addr()));
    for route in routes.filter(|route| route.metric.is_none()) {
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
    for server in split_list(file, group, "dns") {
        device.dns_servers.push(parse_address(place, server)?);
    }
    for domain in split_list(file, group, "dns-search") {
        check_domain(domain)?;
        if !device.search_domains.iter().any(|known| known == domain) {
            device.search_domains.push(domain.to_owned());
        }
    }
    Ok(())
}

fn split_list<'a>(file: &'a Keyfile, group: &str, key: &str) -> impl Iterator<Item = &'a str> {
    let items = file.value(group, key).into_iter().flat_map(|list| list.split([';', ',']));
    items.map(str::trim).filter(|item| !item.is_empty())
}

/// Writes both groups of a device.
pub(super) fn write_groups(file: &mut Writer, device: &Device) {
    for family in Family::ALL {
        write_group(file, device, family);
    }
}

fn write_group(file: &mut Writer, device: &Device, family: Family) {
    let addresses = device.addresses.iter().filter(|net| family.contains(net.addr()));
    let routes = device.routes.iter().filter(|route| family.contains(route.destination.addr()));
    let is_static = addresses.clone().next().is_some() || routes.clone().next().is_some();
    let method = match family {
        Family::V4 if device.sources.dhcp4 => "auto",
        Family::V6 if device.sources.accept_ra => "auto",
        Family::V6 if device.sources.dhcp6 => "dhcp",
        Family::V4 | Family::V6 if is_static => "manual",
        Family::V4 | Family::V6 => "disabled",
    };
    file.add_group(family.group());
    file.add_key("method", method);
    // NetworkManager rejects routes and resolvers of a disabled family.
    if method == "disabled" {
        return;
    }
    for (number, address) in (1..).zip(addresses) {
        file.add_key(&format!("address{number}"), address);
    }
    for (number, route) in (1..).zip(routes) {
        file.add_key(&format!("route{number}"), route_text(route, family));
    }
    let servers = device.dns_servers.iter().filter(|server| family.contains(**server));
    let servers: Vec<_> = servers.map(ToString::to_string).collect();
    for (key, list) in [("dns", &servers), ("dns-search", &device.search_domains)] {
        if !list.is_empty() {
            file.add_key(key, list.join(";") + ";");
        }
    }
}

/// A route with a metric always has a gateway, because `NetworkManager` would otherwise read
/// the metric as one.
fn route_text(route: &Route, family: Family) -> String {
    let gateway = match (route.gateway, route.metric, family) {
        (Some(gateway), ..) => format!(",{gateway}"),
        (None, None, _) => String::new(),
        (None, Some(_), Family::V4) => ",0.0.0.0".to_owned(),
        (None, Some(_), Family::V6) => ",::".to_owned(),
    };
    let metric = route.metric.map_or_else(String::new, |metric| format!(",{metric}"));
    format!("{}{gateway}{metric}", route.destination)
}
