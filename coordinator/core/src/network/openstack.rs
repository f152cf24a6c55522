//! `OpenStack`'s `network_data.json`, as Metal3 renders it. Devices have the names that
//! cloud-init's converter assigns.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::network::{ObservedBond, ObservedNetwork};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::model::{Device, Kind, Network, Route, check_routes};
use super::{
    NetworkError, bad_value, bond, check_name, interface_path, missing_value, parse_address, parse_mac,
    parse_vlan_id,
};
use crate::yaml::from_yaml;

/// Types of links that are network cards for cloud-init.
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

/// The devices of a `network_data.json`, given as JSON or YAML. Cards are found by their
/// addresses and have their `observed` names.
pub(super) fn parse_network_data(
    text: &str,
    observed: Option<&ObservedNetwork>,
) -> Result<Network, NetworkError> {
    let document: Document = from_yaml(text).map_err(|error| {
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
    for device in network.devices.values_mut().filter(|device| device.is_addressed()) {
        add_servers(device, servers.clone());
    }
    for (name, device) in &mut network.devices {
        let routes = std::mem::take(&mut device.routes);
        device.routes = check_routes(name, &device.static_subnets(), routes)?;
    }
    network.drop_unused();
    network.check()?;
    Ok(network)
}

/// The name of each device by the id of its link. VLANs come last, because a VLAN is named
/// after its parent, which the list may have after it.
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
            let mac = parse_mac(&link.id, link.ethernet_mac_address.as_deref())?;
            observed_name(mac.as_deref(), observed).unwrap_or(&link.id).to_owned()
        };
        insert_name(&mut names, link, generated)?;
    }
    for link in links.iter().filter(|link| link.kind == "vlan") {
        let parent = find_parent(link, &names)?;
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

fn find_parent<'a>(link: &Link, names: &'a BTreeMap<String, String>) -> Result<&'a String, NetworkError> {
    let parent = link.parent.as_deref().unwrap_or("");
    names.get(parent).ok_or_else(|| missing_value(&link.id, "parent", parent))
}

fn observed_name<'a>(mac: Option<&str>, observed: Option<&'a ObservedNetwork>) -> Option<&'a str> {
    let mac = mac?;
    let mut cards = observed?.interfaces.iter().filter(|interface| interface.is_card());
    let card = cards.find(|card| card.card_mac().is_some_and(|known| known.eq_ignore_ascii_case(mac)))?;
    Some(&card.name)
}

fn device_kind(link: &Link, names: &BTreeMap<String, String>) -> Result<Kind, NetworkError> {
    let place = interface_path(&link.id);
    let mac = parse_mac(&place, link.ethernet_mac_address.as_deref());
    match link.kind.as_str() {
        "bond" => {
            let members = link.bond_links.iter().flatten().map(|member| {
                names.get(member).cloned().ok_or_else(|| missing_value(&link.id, "member", member))
            });
            let members = members.collect::<Result<_, _>>()?;
            Ok(Kind::Bond { mac: mac?, members, parameters: Box::new(bond_parameters(link)?) })
        }
        "vlan" => {
            let id = link.vlan_id.map_or_else(String::new, |id| id.to_string());
            Ok(Kind::Vlan { id: parse_vlan_id(&place, &id)?, link: find_parent(link, names)?.clone() })
        }
        kind if PHYSICAL.contains(&kind) => Ok(Kind::Ethernet { mac: mac? }),
        kind => Err(bad_value(&place, kind, "type of link that hosts have")),
    }
}

fn bond_parameters(link: &Link) -> Result<ObservedBond, NetworkError> {
    let mut bond = ObservedBond::default();
    for (key, value) in &link.rest {
        let Some(parameter) = key.strip_prefix("bond_") else { continue };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null => continue,
            other => other.to_string(),
        };
        bond::set_parameter(&mut bond, &format!("{} {key}", interface_path(&link.id)), parameter, &text)?;
    }
    Ok(bond)
}

fn apply_layer(name: &str, device: &mut Device, layer: &Layer3) -> Result<(), NetworkError> {
    match layer.kind.as_str() {
        "ipv4" | "ipv6" => {
            let address = layer.ip_address.as_deref().unwrap_or("");
            device.addresses.push(join_net(name, address, layer.netmask.as_deref())?);
        }
        "ipv4_dhcp" => device.sources.dhcp4 = true,
        "ipv6_dhcp" | "ipv6_dhcpv6-stateful" => device.sources.dhcp6 = true,
        "ipv6_slaac" => device.sources.accept_ra = true,
        kind => return Err(bad_value(&interface_path(name), kind, "type of network")),
    }
    add_servers(device, parse_servers(&layer.services)?);
    for route in &layer.routes {
        add_servers(device, parse_servers(&route.services)?);
        let destination = join_net(name, &route.network, route.netmask.as_deref())?.trunc();
        let gateway = route.gateway.as_deref().filter(|text| !text.is_empty());
        let gateway = gateway.map(|text| parse_address(&interface_path(name), text)).transpose()?;
        device.routes.push(Route { destination, gateway, metric: None, on_link: false });
    }
    Ok(())
}

/// Joins an address and its mask. A prefix length in the address takes precedence.
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
        let config: Value = from_yaml(network.network_config.as_deref().unwrap()).unwrap();
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
