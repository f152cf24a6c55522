//! Machines with nodes on several hosts. A claim tells nothing of a host that goes on without it, so that the
//! disks are read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use simulated_host::SimulatedHost;

use crate::dump::text;

/// A sentence for each machine with more than one node on the hosts of a directory.
pub(crate) fn list_doubled(hosts: &Path) -> Vec<String> {
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(hosts).into_iter().flatten().flatten() {
        let identity = SimulatedHost::at(entry.path()).disk().state().node_identity();
        let identity = fs::read(identity).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(machine) = identity.as_ref().and_then(machine_of_node) {
            nodes.entry(machine).or_default().push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    for hosts in nodes.values_mut() {
        hosts.sort();
    }
    let doubled = nodes.into_iter().filter(|(_, hosts)| hosts.len() > 1);
    doubled
        .map(|(machine, hosts)| format!("machine {machine} has nodes on {}", hosts.join(" and ")))
        .collect()
}

/// The machine of a node. Of a node of Metal3 the providerID names it, because its owner is the
/// `BareMetalHost`.
fn machine_of_node(identity: &Value) -> Option<String> {
    let provider_id = text(identity, "/providerID").strip_prefix("metal3://");
    let machine = match provider_id {
        Some(provider_id) => provider_id.split('/').nth(2)?,
        None => text(identity, "/owner"),
    };
    (!machine.is_empty()).then(|| machine.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_of_a_machine_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let write = |host: &str, provider_id: &str, owner: &str| {
            let identity = SimulatedHost::at(directory.path().join(host)).disk().state().node_identity();
            fs::create_dir_all(identity.parent().unwrap()).unwrap();
            let content = serde_json::json!({ "uuid": "u", "providerID": provider_id, "owner": owner });
            fs::write(identity, content.to_string()).unwrap();
        };
        write("host-1", "metal3://fleet/bmh-1/m-1", "BareMetalHost/bmh-1");
        write("host-2", "baremetal:///host-2", "BaremetalMachine/m-1");
        write("host-3", "metal3://uid", "BareMetalHost/bmh-3");
        assert_eq!(list_doubled(directory.path()), Vec::<String>::new());
        write("host-4", "metal3://fleet/bmh-4/m-1", "BareMetalHost/bmh-4");
        write("host-5", "baremetal:///host-5", "BaremetalMachine/m-1");
        let want = [
            "machine BaremetalMachine/m-1 has nodes on host-2 and host-5",
            "machine m-1 has nodes on host-1 and host-4",
        ];
        assert_eq!(list_doubled(directory.path()), want);
    }
}
