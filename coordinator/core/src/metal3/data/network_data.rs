//! Network data in the form of `OpenStack`'s `network_data.json`.

use std::net::IpAddr;

use coordinator_api::metal3::data_template::{
    Bond, Links, MacAddress, NetworkDataSpec, RouteSpec, Services, StaticNetwork,
};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{DataError, PoolId, Sources};
use crate::network::is_mac;

/// Renders network data: links, networks and services, each a list.
pub fn render_network_data(spec: &NetworkDataSpec, sources: &Sources<'_>) -> Result<Value, DataError> {
    Ok(json!({
        "links": render_links(&spec.links, sources)?,
        "networks": render_networks(spec, sources)?,
        "services": render_services("services", &spec.services, sources)?,
    }))
}

fn render_links(links: &Links, sources: &Sources<'_>) -> Result<Vec<Value>, DataError> {
    let bonds = links.bonds.iter().map(|bond| render_bond(bond, sources));
    let ethernets = links.ethernets.iter().map(|card| {
        let mut link = json!({ "type": card.kind, "id": card.id, "mtu": card.mtu });
        set_name(&mut link, card.name.as_ref());
        if let Some(mac) = render_mac(&card.id, &card.mac_address, sources)? {
            link["ethernet_mac_address"] = json!(mac);
        }
        Ok(link)
    });
    let vlans = links.vlans.iter().map(|vlan| {
        let mut link = json!({
            "type": "vlan", "id": vlan.id, "mtu": vlan.mtu,
            "vlan_id": vlan.vlan_id, "vlan_link": vlan.vlan_link,
        });
        set_name(&mut link, vlan.name.as_ref());
        let mac = vlan.mac_address.as_ref().map(|mac| render_mac(&vlan.id, mac, sources)).transpose()?;
        if let Some(mac) = mac.flatten() {
            link["vlan_mac_address"] = json!(mac);
        }
        Ok(link)
    });
    bonds.chain(ethernets).chain(vlans).collect()
}

fn set_name(link: &mut Value, name: Option<&String>) {
    if let Some(name) = name {
        link["name"] = json!(name);
    }
}

fn render_bond(bond: &Bond, sources: &Sources<'_>) -> Result<Value, DataError> {
    let mut link = json!({
        "type": "bond", "id": bond.id, "mtu": bond.mtu,
        "bond_mode": bond.bond_mode,
        "bond_xmit_hash_policy": bond.bond_xmit_hash_policy.as_deref().unwrap_or(""),
        "bond_links": bond.bond_links,
    });
    set_name(&mut link, bond.name.as_ref());
    let mac = bond.mac_address.as_ref().map(|mac| render_mac(&bond.id, mac, sources)).transpose()?;
    if let Some(mac) = mac.flatten() {
        link["ethernet_mac_address"] = json!(mac);
    }
    for (parameter, value) in &bond.parameters {
        if ["mode", "xmit_hash_policy", "links"].contains(&parameter.as_str()) {
            return Err(DataError::IllegalParameter { item: bond.id.clone(), parameter: parameter.clone() });
        }
        link[format!("bond_{parameter}")] = value.clone();
    }
    Ok(link)
}

/// `None` if no address is named.
fn render_mac(link: &str, mac: &MacAddress, sources: &Sources<'_>) -> Result<Option<String>, DataError> {
    let value = match (&mac.string, &mac.from_host_interface, &mac.from_annotation) {
        (Some(text), _, _) => text.clone(),
        (None, Some(interface), _) => sources.mac(link, interface)?,
        (None, None, Some(from)) => sources.annotation(from).to_owned(),
        (None, None, None) => return Ok(None),
    };
    if is_mac(&value) { Ok(Some(value)) } else { Err(DataError::BadMac { item: link.to_owned(), value }) }
}

fn render_networks(spec: &NetworkDataSpec, sources: &Sources<'_>) -> Result<Vec<Value>, DataError> {
    let networks = &spec.networks;
    let mut rendered = Vec::new();
    for (kind, layers) in [("ipv4", &networks.ipv4), ("ipv6", &networks.ipv6)] {
        for layer in layers {
            rendered.push(render_static(kind, layer, sources)?);
        }
    }
    let dynamic = [
        ("ipv4_dhcp", &networks.ipv4_dhcp),
        ("ipv6_dhcp", &networks.ipv6_dhcp),
        ("ipv6_slaac", &networks.ipv6_slaac),
    ];
    for (kind, layers) in dynamic {
        for layer in layers {
            let routes = render_routes(&layer.id, &layer.routes, sources)?;
            rendered.push(json!({ "type": kind, "id": layer.id, "link": layer.link, "routes": routes }));
        }
    }
    Ok(rendered)
}

/// The pool of a static network.
pub(super) fn pool_of(layer: &StaticNetwork, sources: &Sources<'_>) -> Result<PoolId, DataError> {
    sources.pool(
        &layer.id,
        layer.from_pool_annotation.as_ref(),
        layer.from_pool_ref.as_ref(),
        layer.ip_address_from_ip_pool.as_ref(),
    )
}

fn render_static(kind: &str, layer: &StaticNetwork, sources: &Sources<'_>) -> Result<Value, DataError> {
    let address = sources.address(&layer.id, &pool_of(layer, sources)?)?;
    let bits = if kind == "ipv4" { 32 } else { 128 };
    let ip: IpAddr = parse(&layer.id, &address.address)?;
    if ip.is_ipv4() != (kind == "ipv4") {
        return Err(DataError::BadAddress {
            item: format!("{kind} {}", layer.id),
            value: address.address.clone(),
        });
    }
    Ok(json!({
        "type": kind,
        "id": layer.id,
        "link": layer.link,
        "netmask": netmask(&layer.id, ip, address.prefix.unwrap_or(bits))?,
        "ip_address": address.address,
        "routes": render_routes(&layer.id, &layer.routes, sources)?,
    }))
}

/// The mask of a prefix, which `OpenStack` writes in both families.
fn netmask(id: &str, address: IpAddr, prefix: i32) -> Result<String, DataError> {
    let value = format!("{address}/{prefix}");
    let net = value.parse::<IpNet>().map(|net| net.netmask().to_string());
    net.map_err(|_| DataError::BadPrefix { item: id.to_owned(), value })
}

fn render_routes(id: &str, routes: &[RouteSpec], sources: &Sources<'_>) -> Result<Vec<Value>, DataError> {
    let rendered = routes.iter().map(|route| {
        let network = parse(id, &route.network)?;
        Ok(json!({
            "network": route.network,
            "netmask": netmask(id, network, route.prefix)?,
            "gateway": render_gateway(id, route, sources)?,
            "services": render_services(id, &route.services, sources)?,
        }))
    });
    rendered.collect()
}

fn parse(id: &str, text: &str) -> Result<IpAddr, DataError> {
    text.parse().map_err(|_| DataError::BadAddress { item: id.to_owned(), value: text.to_owned() })
}

/// The pool of a gateway; `None` if the route names its gateway, or has none.
pub(super) fn gateway_pool(route: &RouteSpec, sources: &Sources<'_>) -> Result<Option<PoolId>, DataError> {
    let gateway = &route.gateway;
    let is_pool = gateway.from_pool_annotation.is_some()
        || gateway.from_pool_ref.is_some()
        || gateway.from_ip_pool.is_some();
    if gateway.string.is_some() || !is_pool {
        return Ok(None);
    }
    let (annotation, reference) = (gateway.from_pool_annotation.as_ref(), gateway.from_pool_ref.as_ref());
    sources.pool(&route.network, annotation, reference, gateway.from_ip_pool.as_ref()).map(Some)
}

fn render_gateway(id: &str, route: &RouteSpec, sources: &Sources<'_>) -> Result<String, DataError> {
    if let Some(text) = &route.gateway.string {
        return Ok(text.clone());
    }
    let Some(pool) = gateway_pool(route, sources)? else { return Ok(String::new()) };
    Ok(sources.address(id, &pool)?.gateway.as_deref().unwrap_or("").to_owned())
}

fn render_services(id: &str, services: &Services, sources: &Sources<'_>) -> Result<Vec<Value>, DataError> {
    let mut servers = services.dns.clone();
    if let Some(pool) = &services.dns_from_ip_pool {
        servers.extend(sources.address(id, &PoolId::of_metal3(pool))?.dns_servers.clone());
    }
    Ok(servers.into_iter().map(|address| json!({ "type": "dns", "address": address })).collect())
}
