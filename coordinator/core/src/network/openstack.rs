//! `OpenStack`'s `network_data.json`, as Metal3 renders it. Devices get the names
//! that cloud-init's own converter gives them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::network::{ObservedBond, ObservedNetwork};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::model::{DEFAULT_MTU, Device, Kind, Network, Route, check_routes};
use super::{NetworkError, bad_value, check_name, interface_path, missing_value, parse_address, parse_mac};

/// Links that are network cards, as cloud-init has them.
const PHYSICAL: [&str; 9] = ["bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif", "phy"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    links: Vec<Link>,
    networks: Vec<Layer3>,
    services: Vec<Service>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    mtu: Option<i64>,
    ethernet_mac_address: Option<String>,
    bond_links: Option<Vec<String>>,
    #[serde(rename = "vlan_link")]
    parent: Option<String>,
    vlan_id: Option<i64>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Layer3 {
    #[serde(rename = "type")]
    kind: String,
    link: String,
    ip_address: Option<String>,
    netmask: Option<String>,
    routes: Vec<RouteData>,
    services: Vec<Service>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RouteData {
    network: String,
    netmask: Option<String>,
    gateway: Option<String>,
    services: Vec<Service>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// The devices of a `network_data.json`, given as JSON or YAML. Cards are found by
/// their addresses, and have the names that were `observed`.
pub(super) fn parse_network_data(
    text: &str,
    observed: Option<&ObservedNetwork>,
) -> Result<Network, NetworkError> {
    let document: Document = serde_norway::from_str(text).map_err(|error| {
        let cause = error.to_string();
        bad_value("networkData", &cause, "OpenStack network_data with links, networks and services")
    })?;
    let names = name_links(&document.links, observed)?;
    let mut network = Network::default();
    for link in &document.links {
        let mut device = Device::new(device_kind(link, &names)?);
        device.mtu = link.mtu;
        network.devices.insert(names[&link.id].clone(), device);
    }
    for layer in &document.networks {
        let name = names.get(&layer.link).ok_or_else(|| missing_value(&layer.link, "link", &layer.link))?;
        if let Some(device) = network.devices.get_mut(name) {
            apply_layer(name, device, layer)?;
        }
    }
    let servers = parse_servers(&document.services)?;
    for device in network.devices.values_mut().filter(|device| is_addressed(device)) {
        add_servers(device, servers.clone());
    }
    check_network(network)
}

fn check_network(mut network: Network) -> Result<Network, NetworkError> {
    for (name, device) in &mut network.devices {
        let (v4, v6): (Vec<IpNet>, Vec<IpNet>) =
            device.addresses.iter().partition(|address| address.addr().is_ipv4());
        let known = |is_dynamic: bool, nets: &[IpNet]| (!is_dynamic).then(|| trunc_all(nets));
        let v4 = known(device.dhcp4, &v4);
        let v6 = known(device.dhcp6 || device.accept_ra, &v6);
        device.routes =
            check_routes(name, [v4.as_deref(), v6.as_deref()], std::mem::take(&mut device.routes))?;
    }
    network.check_lower_devices()?;
    network.drop_unused();
    network.check_uniqueness()?;
    let mtus: BTreeMap<_, _> = network
        .devices
        .iter()
        .map(|(name, device)| (name.clone(), device.mtu.unwrap_or(DEFAULT_MTU)))
        .collect();
    network.check_mtus(|name| mtus.get(name).copied().unwrap_or(DEFAULT_MTU))?;
    Ok(network)
}

fn trunc_all(nets: &[IpNet]) -> Vec<IpNet> {
    nets.iter().map(IpNet::trunc).collect()
}

fn is_addressed(device: &Device) -> bool {
    device.is_dynamic() || !device.addresses.is_empty()
}

/// The name of each device by the id of its link. A VLAN is named after its
/// parent, which may be listed after it.
fn name_links(
    links: &[Link],
    observed: Option<&ObservedNetwork>,
) -> Result<BTreeMap<String, String>, NetworkError> {
    let mut names = BTreeMap::new();
    let mut bonds = 0;
    for link in links.iter().filter(|link| link.kind != "vlan") {
        let generated = if link.kind == "bond" {
            bonds += 1;
            format!("bond{}", bonds - 1)
        } else {
            let mac = link.ethernet_mac_address.as_deref().unwrap_or_default();
            observed_name(parse_mac(&link.id, mac)?.as_deref(), observed).unwrap_or_else(|| link.id.clone())
        };
        insert_name(&mut names, link, generated)?;
    }
    for link in links.iter().filter(|link| link.kind == "vlan") {
        let parent = link.parent.as_deref().unwrap_or_default();
        let parent = names.get(parent).ok_or_else(|| missing_value(&link.id, "parent", parent))?;
        let id = link.vlan_id.ok_or_else(|| bad_value(&link.id, "", "vlan_id"))?;
        let generated = format!("{parent}.{id}");
        insert_name(&mut names, link, generated)?;
    }
    Ok(names)
}

fn insert_name(
    names: &mut BTreeMap<String, String>,
    link: &Link,
    generated: String,
) -> Result<(), NetworkError> {
    let name = link.name.clone().filter(|name| !name.is_empty()).unwrap_or(generated);
    check_name(&name)?;
    if names.values().any(|known| *known == name) || names.insert(link.id.clone(), name.clone()).is_some() {
        return Err(NetworkError::Duplicate { place: "networkData".to_owned(), value: name });
    }
    Ok(())
}

fn observed_name(mac: Option<&str>, observed: Option<&ObservedNetwork>) -> Option<String> {
    let mac = mac?;
    let is_it =
        |known: &Option<String>| known.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(mac));
    let mut cards =
        observed?.interfaces.iter().filter(|card| card.kind.as_deref().unwrap_or_default().is_empty());
    let card = cards
        .find(|card| is_it(&card.permanent_mac) || (card.permanent_mac.is_none() && is_it(&card.mac)))?;
    Some(card.name.clone())
}

fn device_kind(link: &Link, names: &BTreeMap<String, String>) -> Result<Kind, NetworkError> {
    let mac =
        || parse_mac(&interface_path(&link.id), link.ethernet_mac_address.as_deref().unwrap_or_default());
    match link.kind.as_str() {
        "bond" => {
            let members = link.bond_links.as_deref().unwrap_or_default().iter();
            let members = members.map(|member| {
                names.get(member).cloned().ok_or_else(|| missing_value(&link.id, "member", member))
            });
            let members = members.collect::<Result<_, _>>()?;
            Ok(Kind::Bond { mac: mac()?, members, parameters: bond_parameters(link)? })
        }
        "vlan" => {
            let parent = link.parent.as_deref().unwrap_or_default();
            let parent = names.get(parent).ok_or_else(|| missing_value(&link.id, "parent", parent))?;
            let id = link.vlan_id.filter(|id| (1..=4094).contains(id));
            let text = link.vlan_id.unwrap_or_default().to_string();
            let id =
                id.ok_or_else(|| bad_value(&interface_path(&link.id), &text, "VLAN id from 1 to 4094"))?;
            Ok(Kind::Vlan { id, link: parent.clone() })
        }
        kind if PHYSICAL.contains(&kind) => Ok(Kind::Ethernet { mac: mac()? }),
        kind => Err(bad_value(&interface_path(&link.id), kind, "type of link that hosts have")),
    }
}

/// What cannot be written is refused: a bond with other parameters may not come
/// up on its switch.
fn bond_parameters(link: &Link) -> Result<ObservedBond, NetworkError> {
    let mut bond = ObservedBond::default();
    for (key, value) in &link.rest {
        let Some(parameter) = key.strip_prefix("bond_") else { continue };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null => continue,
            other => other.to_string(),
        };
        let place = || format!("{} {key}", interface_path(&link.id));
        let number = || text.parse::<i64>().map_err(|_| bad_value(&place(), &text, "number"));
        let some = (!text.is_empty()).then(|| text.clone());
        match parameter {
            "mode" => bond.mode.clone_from(&text),
            "miimon" => bond.miimon = Some(number()?),
            "lacp_rate" => bond.lacp_rate = some,
            "xmit_hash_policy" => bond.transmit_hash_policy = some,
            "primary" => bond.primary = some,
            _ => {
                return Err(bad_value(
                    &place(),
                    &text,
                    "supported parameter: mode, miimon, lacp_rate, xmit_hash_policy, primary",
                ));
            }
        }
    }
    Ok(bond)
}

fn apply_layer(name: &str, device: &mut Device, layer: &Layer3) -> Result<(), NetworkError> {
    match layer.kind.as_str() {
        "ipv4" | "ipv6" => {
            let address = layer.ip_address.as_deref().unwrap_or_default();
            device.addresses.push(join_net(name, address, layer.netmask.as_deref())?);
        }
        "ipv4_dhcp" => device.dhcp4 = true,
        "ipv6_dhcp" | "ipv6_dhcpv6-stateful" => device.dhcp6 = true,
        "ipv6_slaac" => device.accept_ra = true,
        kind => return Err(bad_value(&interface_path(name), kind, "type of network")),
    }
    add_servers(device, parse_servers(&layer.services)?);
    for route in &layer.routes {
        add_servers(device, parse_servers(&route.services)?);
        let destination = join_net(name, &route.network, route.netmask.as_deref())?.trunc();
        let gateway = route.gateway.as_deref().filter(|text| !text.is_empty());
        let gateway = gateway.map(|text| parse_address(&interface_path(name), text)).transpose()?;
        device.routes.push(Route { destination, gateway, metric: None });
    }
    Ok(())
}

/// An address and its mask, of either family; a prefix that the address has
/// wins.
fn join_net(name: &str, address: &str, mask: Option<&str>) -> Result<IpNet, NetworkError> {
    let place = interface_path(name);
    if let Ok(net) = address.parse() {
        return Ok(net);
    }
    let address = parse_address(&place, address)?;
    let mask = mask.filter(|text| !text.is_empty());
    let Some(mask) = mask else {
        return Ok(address.into());
    };
    if let Ok(length) = mask.parse::<u8>() {
        return IpNet::new(address, length).map_err(|_| bad_value(&place, mask, "prefix length"));
    }
    let mask: IpAddr = parse_address(&place, mask)?;
    IpNet::with_netmask(address, mask).map_err(|_| bad_value(&place, &mask.to_string(), "netmask"))
}

fn parse_servers(services: &[Service]) -> Result<Vec<IpAddr>, NetworkError> {
    let servers = services.iter().filter(|service| service.kind == "dns");
    servers.map(|service| parse_address("services", &service.address)).collect()
}

fn add_servers(device: &mut Device, servers: Vec<IpAddr>) {
    for server in servers {
        if !device.dns_servers.contains(&server) {
            device.dns_servers.push(server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::network_data;

    const DATA: &str = "
links:
- {type: bond, id: bond-a, mtu: 9000, bond_mode: 802.3ad, bond_xmit_hash_policy: layer3+4, bond_miimon: '100', bond_links: [a, b], ethernet_mac_address: '52:54:00:00:00:0a'}
- {type: phy, id: a, mtu: 9000, ethernet_mac_address: '52:54:00:00:00:0A'}
- {type: phy, id: b, mtu: 9000, ethernet_mac_address: '52:54:00:00:00:0b'}
- {type: vlan, id: v, mtu: 1500, vlan_link: bond-a, vlan_id: 7, vlan_mac_address: '52:54:00:00:00:0c'}
networks:
- type: ipv4
  id: net
  link: v
  ip_address: 10.0.0.5
  netmask: 255.255.255.0
  routes:
  - {network: 0.0.0.0, netmask: 0.0.0.0, gateway: 10.0.0.1, services: [{type: dns, address: 10.0.0.53}]}
- {type: ipv6, id: net6, link: v, ip_address: '2001:db8::5', netmask: 'ffff:ffff:ffff:ffff::', routes: [{network: '::', netmask: '::', gateway: '2001:db8::1', services: []}]}
- {type: ipv4_dhcp, id: d, link: bond-a, routes: []}
services:
- {type: dns, address: 10.0.0.54}
";

    fn observed() -> ObservedNetwork {
        serde_json::from_value(serde_json::json!({ "interfaces": [
            { "name": "enp1s0", "mac": "52:54:00:00:00:0a" },
            { "name": "enp2s0", "mac": "52:54:00:00:00:0a", "permanentMac": "52:54:00:00:00:0b" },
        ] }))
        .unwrap()
    }

    #[test]
    fn metal3_data_is_written_in_both_languages() {
        let network = network_data(DATA, Some(&observed())).unwrap();
        let config: Value = serde_norway::from_str(network.network_config.as_deref().unwrap()).unwrap();
        assert_eq!(config["ethernets"]["enp1s0"]["match"]["macaddress"], "52:54:00:00:00:0a");
        assert_eq!(config["ethernets"]["enp2s0"]["match"]["macaddress"], "52:54:00:00:00:0b");
        let bond = &config["bonds"]["bond0"];
        assert_eq!(bond["interfaces"], serde_json::json!(["enp1s0", "enp2s0"]));
        assert_eq!((&bond["parameters"]["mode"], &bond["dhcp4"]), (&"802.3ad".into(), &true.into()));
        let vlan = &config["vlans"]["bond0.7"];
        assert_eq!((&vlan["id"], &vlan["link"]), (&7.into(), &"bond0".into()));
        assert_eq!(vlan["addresses"], serde_json::json!(["10.0.0.5/24", "2001:db8::5/64"]));
        let routes: Vec<_> =
            vlan["routes"].as_array().unwrap().iter().map(|route| route["to"].clone()).collect();
        assert_eq!(routes, ["0.0.0.0/0", "::/0"]);
        assert_eq!(vlan["nameservers"]["addresses"], serde_json::json!(["10.0.0.53", "10.0.0.54"]));
        let names: Vec<_> = network.connections.keys().cloned().collect();
        assert_eq!(names, ["bond0", "bond0.7", "enp1s0", "enp2s0"]);
    }

    #[test]
    fn unusable_data_names_the_place() {
        for (want, data) in [
            ("networkData", "links: 5"),
            ("member", "{links: [{type: bond, id: b, bond_mode: active-backup, bond_links: [a]}]}"),
            ("parent", "{links: [{type: vlan, id: v, vlan_id: 5, vlan_link: a}]}"),
            ("VLAN id", "{links: [{type: phy, id: a}, {type: vlan, id: v, vlan_id: 4096, vlan_link: a}]}"),
            ("type of link", "{links: [{type: infiniband, id: a}]}"),
            (
                "bond_arp_interval",
                "{links: [{type: phy, id: a}, {type: bond, id: b, bond_mode: active-backup, bond_arp_interval: 5, bond_links: [a]}]}",
            ),
            ("MAC address", "{links: [{type: phy, id: a, ethernet_mac_address: x}]}"),
            ("link", "{networks: [{type: ipv4_dhcp, id: n, link: a}]}"),
            (
                "IP address",
                "{links: [{type: phy, id: a}], networks: [{type: ipv4, id: n, link: a, ip_address: ten}]}",
            ),
            (
                "netmask",
                "{links: [{type: phy, id: a}], networks: [{type: ipv4, id: n, link: a, ip_address: 10.0.0.1, netmask: 255.0.255.0}]}",
            ),
            ("type of network", "{links: [{type: phy, id: a}], networks: [{type: ipx, id: n, link: a}]}"),
        ] {
            let error = network_data(data, None).unwrap_err().to_string();
            assert!(error.contains(want), "{want}: {error}");
        }
    }
}
