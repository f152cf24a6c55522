//! Devices as keyfiles of `NetworkManager`.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::keyfile::Writer;
use super::model::{Device, Kind, Network};
use super::{bond, ip_groups};

/// Renders one keyfile for each device that `is_wanted`, by file name without
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
    // A card that is found by its address keeps its network if its name changes.
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
        ip_groups::write_groups(&mut file, device);
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

/// The same UUID at every rendering, because a plan is named after its content.
fn connection_uuid(name: &str) -> String {
    let mut bytes = Sha256::digest(format!("baremetal.cluster.io/connection/{name}"));
    // Version 8 of RFC 9562 is for UUIDs from a custom hash.
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
            for set in bond::list_parameters(parameters) {
                file.add_key(set.key, set.value);
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
            // The profile of the parent finds its card under any name.
            let is_rendered = network.devices.contains_key(link);
            file.add_key("parent", if is_rendered { connection_uuid(link) } else { link.clone() });
        }
    }
}
