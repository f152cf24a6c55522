//! Devices as keyfiles of `NetworkManager`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

use super::keyfile::Writer;
use super::model::{Device, Kind, Network, Route};

/// One keyfile for each device that `is_wanted`, by file name without
/// `.nmconnection`.
pub(super) fn render_keyfiles(
    network: &Network,
    is_wanted: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let masters = network.masters();
    let wanted = network.devices.iter().filter(|(name, _)| is_wanted(name));
    wanted
        .map(|(name, device)| {
            let master = masters.get(name.as_str()).copied();
            (name.clone(), render_device(network, name, device, master))
        })
        .collect()
}

fn render_device(network: &Network, name: &str, device: &Device, master: Option<&str>) -> String {
    let mut file = Writer::default();
    file.add_group("connection");
    file.add_key("id", name);
    file.add_key("uuid", connection_uuid(name));
    file.add_key("type", type_name(&device.kind));
    // A NIC that is known by its address keeps its network under another name.
    if !matches!(device.kind, Kind::Ethernet { mac: Some(_) }) {
        file.add_key("interface-name", name);
    }
    if let Some(master) = master {
        let kind = network.devices.get(master).map_or("bond", |master| type_name(&master.kind));
        file.add_key("master", master);
        file.add_key("slave-type", kind);
    }
    add_hardware(&mut file, device);
    add_kind(&mut file, network, device);
    if master.is_none() {
        add_family(&mut file, device, Family::V4);
        add_family(&mut file, device, Family::V6);
    }
    file.finish()
}

fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Ethernet { .. } => "ethernet",
        Kind::Bond { .. } => "bond",
        Kind::Bridge { .. } => "bridge",
        Kind::Vlan { .. } => "vlan",
    }
}

/// The same at every rendering: a plan is named by its content.
fn connection_uuid(name: &str) -> String {
    let mut bytes = Sha256::digest(format!("baremetal.cluster.io/connection/{name}"));
    // RFC 9562, version 8: of a hash of one's own.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(&bytes[..16]);
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

fn add_hardware(file: &mut Writer, device: &Device) {
    let (found_by, set) = match &device.kind {
        Kind::Ethernet { mac } => (mac, &None),
        Kind::Bond { mac, .. } | Kind::Bridge { mac, .. } => (&None, mac),
        Kind::Vlan { .. } => (&None, &None),
    };
    if found_by.is_none() && set.is_none() && device.mtu.is_none() {
        return;
    }
    file.add_group("ethernet");
    if let Some(mac) = found_by {
        file.add_key("mac-address", mac);
    }
    if let Some(mac) = set {
        file.add_key("cloned-mac-address", mac);
    }
    if let Some(mtu) = device.mtu {
        file.add_key("mtu", mtu);
    }
}

fn add_kind(file: &mut Writer, network: &Network, device: &Device) {
    match &device.kind {
        Kind::Ethernet { .. } => {}
        Kind::Bond { parameters, .. } => {
            file.add_group("bond");
            if !parameters.mode.is_empty() {
                file.add_key("mode", &parameters.mode);
            }
            if let Some(miimon) = parameters.miimon {
                file.add_key("miimon", miimon);
            }
            for (key, value) in [
                ("lacp_rate", &parameters.lacp_rate),
                ("xmit_hash_policy", &parameters.transmit_hash_policy),
                ("primary", &parameters.primary),
            ] {
                if let Some(value) = value {
                    file.add_key(key, value);
                }
            }
        }
        Kind::Bridge { stp, .. } => {
            file.add_group("bridge");
            if let Some(stp) = stp {
                file.add_key("stp", stp);
            }
        }
        Kind::Vlan { id, link } => {
            file.add_group("vlan");
            file.add_key("id", id);
            // By its profile, which finds a NIC under any name.
            let parent =
                if network.devices.contains_key(link) { connection_uuid(link) } else { link.clone() };
            file.add_key("parent", parent);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

fn add_family(file: &mut Writer, device: &Device, family: Family) {
    let is_ours = |net: &&IpNet| Family::of(net.addr()) == family;
    let addresses: Vec<_> = device.addresses.iter().filter(is_ours).collect();
    let routes: Vec<_> = device.routes.iter().filter(|route| is_ours(&&route.destination)).collect();
    let is_off = addresses.is_empty() && routes.is_empty();
    let (group, method) = match family {
        Family::V4 if device.dhcp4 => ("ipv4", "auto"),
        Family::V4 if is_off => ("ipv4", "disabled"),
        Family::V4 => ("ipv4", "manual"),
        Family::V6 if device.accept_ra => ("ipv6", "auto"),
        Family::V6 if device.dhcp6 => ("ipv6", "dhcp"),
        Family::V6 if is_off => ("ipv6", "disabled"),
        Family::V6 => ("ipv6", "manual"),
    };
    file.add_group(group);
    file.add_key("method", method);
    // NetworkManager takes no profile with routes or resolvers of a family
    // that is off; nothing could reach them.
    if method == "disabled" {
        return;
    }
    for (place, address) in (1..).zip(&addresses) {
        file.add_key(&format!("address{place}"), address);
    }
    for (place, route) in (1..).zip(routes) {
        file.add_key(&format!("route{place}"), route_text(route, family));
    }
    let servers = device.dns_servers.iter().filter(|server| Family::of(**server) == family);
    let servers: Vec<_> = servers.map(ToString::to_string).collect();
    for (key, list) in [("dns", &servers), ("dns-search", &device.search_domains)] {
        if !list.is_empty() {
            file.add_key(key, list.join(";") + ";");
        }
    }
}

/// The place of a gateway is never empty before a metric: `NetworkManager`
/// would take the metric for one.
fn route_text(route: &Route, family: Family) -> String {
    let none = if family == Family::V4 { "0.0.0.0" } else { "::" };
    let gateway = route.gateway.map(|gateway| gateway.to_string());
    match (gateway, route.metric) {
        (None, None) => route.destination.to_string(),
        (Some(gateway), None) => format!("{},{gateway}", route.destination),
        (gateway, Some(metric)) => {
            format!("{},{},{metric}", route.destination, gateway.as_deref().unwrap_or(none))
        }
    }
}
