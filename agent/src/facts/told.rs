//! What `baremetal-agent facts` prints: all that a registration would send,
//! and the keys that name and label templates can use.

use std::collections::BTreeMap;

use proto::v1alpha1::{BootMode, Disk, HostFacts, Interface, Nic, ObservedNetwork};
use serde_json::{Value, json};

/// `${Title/Key}` with its value here, for `machineName` and label templates.
/// Of sections with one title the last wins, as upstream.
fn template_keys(facts: &HostFacts) -> BTreeMap<String, String> {
    facts
        .smbios
        .iter()
        .flat_map(|section| {
            let title = &section.title;
            let key = move |key: &String| format!("${{{title}/{key}}}");
            section.values.iter().map(move |(name, value)| (key(name), value.clone()))
        })
        .collect()
}

/// One JSON document. Holds no secret: facts have none.
#[must_use]
pub fn document(facts: &HostFacts, network: Option<&ObservedNetwork>) -> Value {
    let system = facts.operating_system.clone().unwrap_or_default();
    json!({
        "templateKeys": template_keys(facts),
        "cpu": { "threads": facts.cpu_threads, "model": facts.cpu_model },
        "memoryBytes": facts.memory_bytes,
        "disks": facts.disks.iter().map(disk).collect::<Vec<_>>(),
        "nics": facts.nics.iter().map(nic).collect::<Vec<_>>(),
        "hostname": facts.hostname,
        "operatingSystem": {
            "name": system.name,
            "version": system.version,
            "prettyName": system.pretty_name,
            "image": system.image,
            "bootMode": BootMode::try_from(system.boot_mode).unwrap_or_default().as_str_name(),
        },
        "agentVersion": facts.agent_version,
        "bootId": facts.boot_id,
        "observedNetwork": network.map(told_network),
    })
}

fn disk(disk: &Disk) -> Value {
    json!({
        "name": disk.name,
        "sizeBytes": disk.size_bytes,
        "model": disk.model,
        "serial": disk.serial,
        "wwn": disk.wwn,
        "rotational": disk.rotational,
        "removable": disk.removable,
        "links": disk.links,
    })
}

fn nic(nic: &Nic) -> Value {
    json!({
        "name": nic.name,
        "mac": nic.mac,
        "driver": nic.driver,
        "carrier": nic.carrier,
        "speedMbit": nic.speed_mbit,
    })
}

fn told_network(network: &ObservedNetwork) -> Value {
    let routes = network.routes.iter().map(|route| {
        json!({
            "destination": route.destination,
            "gateway": route.gateway,
            "interface": route.interface,
            "metric": route.metric,
            "dynamic": route.dynamic,
        })
    });
    let mut connections: Vec<_> = network.connections.keys().collect();
    connections.sort();
    json!({
        "interfaces": network.interfaces.iter().map(interface).collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "dnsServers": network.dns_servers,
        "searchDomains": network.search_domains,
        "connections": connections,
    })
}

fn interface(interface: &Interface) -> Value {
    json!({
        "name": interface.name,
        "mac": interface.mac,
        "permanentMac": interface.permanent_mac,
        "mtu": interface.mtu,
        "addresses": interface.addresses,
        "dynamicAddresses": interface.dynamic_addresses,
        "kind": interface.kind,
        "master": interface.master,
        "dhcp4": interface.dhcp4,
        "dhcp6": interface.dhcp6,
        "acceptRa": interface.accept_ra,
        "bond": interface.bond.as_ref().map(|bond| json!({
            "mode": bond.mode,
            "miimon": bond.miimon,
            "lacpRate": bond.lacp_rate,
            "transmitHashPolicy": bond.transmit_hash_policy,
            "primary": bond.primary,
        })),
        "vlan": interface.vlan.as_ref().map(|vlan| json!({ "id": vlan.id, "link": vlan.link })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1alpha1::SmbiosSection;

    #[test]
    fn template_keys_are_printed_as_they_are_written_in_a_template() {
        let section = |serial: &str| SmbiosSection {
            title: "System Information".to_owned(),
            values: [("Serial Number".to_owned(), serial.to_owned())].into(),
        };
        let facts = HostFacts { smbios: vec![section("a"), section("b")], ..HostFacts::default() };
        let keys = document(&facts, None);
        assert_eq!(keys["templateKeys"]["${System Information/Serial Number}"], "b");
    }
}
