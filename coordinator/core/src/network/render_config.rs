//! network-config version 2, as cloud-init and netplan read it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::NetworkError;
use super::bond::{self, Value};
use super::model::{Device, Kind, Network, Route};

#[derive(Serialize)]
struct Document<'a> {
    version: u8,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ethernets: BTreeMap<&'a str, Entry<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bonds: BTreeMap<&'a str, Entry<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    bridges: BTreeMap<&'a str, Entry<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    vlans: BTreeMap<&'a str, Entry<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Entry<'a> {
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    found_by: Option<Match<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    interfaces: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    macaddress: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Parameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<i64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dhcp4: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dhcp6: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    accept_ra: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<Nameservers<'a>>,
}

#[derive(Serialize)]
struct Match<'a> {
    macaddress: &'a str,
}

/// Parameters of a bond or bridge, in their order.
struct Parameters(Vec<(&'static str, Value)>);

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[derive(Serialize)]
struct RouteEntry {
    /// A CIDR, because only netplan reads the word `default`.
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    /// `link` for a route without gateway, which netplan otherwise rejects.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<i64>,
}

#[derive(Serialize)]
struct Nameservers<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    search: &'a [String],
}

/// Renders the devices by kind and name. Comments tell an operator the settings that
/// network-config cannot express.
pub(super) fn render_config(network: &Network, untranslated: &[String]) -> Result<String, NetworkError> {
    let mut document = Document {
        version: 2,
        ethernets: BTreeMap::new(),
        bonds: BTreeMap::new(),
        bridges: BTreeMap::new(),
        vlans: BTreeMap::new(),
    };
    for (name, device) in &network.devices {
        let section = match &device.kind {
            Kind::Ethernet { .. } => &mut document.ethernets,
            Kind::Bond { .. } => &mut document.bonds,
            Kind::Bridge { .. } => &mut document.bridges,
            Kind::Vlan { .. } => &mut document.vlans,
        };
        section.insert(name, device_entry(name, device));
    }
    let text = crate::yaml::to_yaml(&document).map_err(|error| NetworkError::Render(error.to_string()))?;
    let of_bonds = network.devices.iter().flat_map(|(name, device)| keyfile_parameters(name, device));
    let comments = untranslated
        .iter()
        .cloned()
        .chain(of_bonds)
        .map(|setting| format!("# Only NetworkManager does this: {}\n", setting.escape_debug()));
    Ok(comments.chain([text]).collect())
}

/// The parameters of a bond that only its keyfile has.
fn keyfile_parameters(name: &str, device: &Device) -> Vec<String> {
    let Kind::Bond { parameters, .. } = &device.kind else { return Vec::new() };
    let set = bond::list_parameters(parameters).into_iter().filter(|set| set.name.is_none());
    set.map(|set| format!("{name}: {}={}", set.key, set.value)).collect()
}

fn device_entry<'a>(name: &'a str, device: &'a Device) -> Entry<'a> {
    let mut entry = Entry {
        mtu: device.mtu,
        dhcp4: device.sources.dhcp4,
        dhcp6: device.sources.dhcp6,
        accept_ra: device.sources.accept_ra,
        addresses: device.addresses.iter().map(ToString::to_string).collect(),
        routes: device.routes.iter().map(route_entry).collect(),
        nameservers: nameserver_entry(device),
        ..Entry::default()
    };
    match &device.kind {
        Kind::Ethernet { mac } => {
            entry.found_by = mac.as_deref().map(|macaddress| Match { macaddress });
            entry.set_name = mac.as_ref().map(|_| name);
        }
        Kind::Bond { mac, members, parameters } => {
            entry.macaddress = mac.as_deref();
            entry.interfaces = members;
            let set = bond::list_parameters(parameters).into_iter();
            entry.parameters = Some(Parameters(set.filter_map(|set| Some((set.name?, set.value))).collect()));
        }
        Kind::Bridge { mac, members, stp } => {
            entry.macaddress = mac.as_deref();
            entry.interfaces = members;
            entry.parameters = stp.map(|stp| Parameters(vec![("stp", Value::Flag(stp))]));
        }
        Kind::Vlan { id, link } => {
            entry.id = Some(*id);
            entry.link = Some(link);
        }
    }
    entry
}

fn route_entry(route: &Route) -> RouteEntry {
    RouteEntry {
        to: route.destination.to_string(),
        via: route.gateway.map(|gateway| gateway.to_string()),
        scope: route.gateway.is_none().then_some("link"),
        metric: route.metric,
    }
}

fn nameserver_entry(device: &Device) -> Option<Nameservers<'_>> {
    let is_any = !device.dns_servers.is_empty() || !device.search_domains.is_empty();
    is_any.then(|| Nameservers {
        addresses: device.dns_servers.iter().map(ToString::to_string).collect(),
        search: &device.search_domains,
    })
}
