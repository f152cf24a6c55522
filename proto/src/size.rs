//! Bounds of the facts and the network of a host, and of lists for people. The ends of the longest lists are left out, so
//! that a large host can register.

use prost::Message as _;

use crate::limits;
use crate::v1alpha1::{HostFacts, ObservedNetwork};

/// Cuts `facts` to [`limits::FACTS_BYTES`], and returns the number of entries left out.
pub fn bound_facts(facts: &mut HostFacts) -> usize {
    let mut left_out = 0;
    while facts.encoded_len() > limits::FACTS_BYTES {
        let is_cut = if facts.disks.len() >= facts.nics.len() {
            facts.disks.pop().is_some()
        } else {
            facts.nics.pop().is_some()
        };
        if !is_cut && facts.processors.pop().is_none() && facts.smbios.pop().is_none() {
            break;
        }
        left_out += 1;
    }
    left_out
}

/// Cuts `network` to [`limits::NETWORK_BYTES`], and returns the number of entries left out.
/// Interfaces are left out last, because a host needs them most.
pub fn bound_network(network: &mut ObservedNetwork) -> usize {
    let mut left_out = 0;
    while network.encoded_len() > limits::NETWORK_BYTES {
        let last = network.connections.keys().max().cloned();
        let is_cut = network.routes.pop().is_some()
            || last.is_some_and(|name| network.connections.remove(&name).is_some())
            || network.interfaces.pop().is_some();
        if !is_cut {
            break;
        }
        left_out += 1;
    }
    left_out
}

/// The first entries of a list, and in the last place of `most` the number of those left out.
pub fn bound_list(mut entries: Vec<String>, most: usize) -> Vec<String> {
    if entries.len() > most {
        let more = entries.len() - most + 1;
        entries.truncate(most - 1);
        entries.push(format!("{more} more"));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1alpha1::{Disk, Interface, Nic, Route, SmbiosSection};

    #[test]
    fn largest_host_fits_into_its_registration() {
        let text = |length| "x".repeat(length);
        let disk = Disk { name: "sda".into(), model: text(64), serial: text(64), ..Disk::default() };
        let addresses = vec![text(43); limits::ADDRESSES];
        let nic = Nic { name: "eno1".into(), addresses: addresses.clone(), ..Nic::default() };
        let values = (0..16).map(|key| (format!("key {key}"), text(64))).collect();
        let section = SmbiosSection { title: "System Slot".into(), values };
        let mut facts = HostFacts {
            disks: vec![disk; limits::DISKS],
            nics: vec![nic; limits::INTERFACES],
            smbios: vec![section; limits::SMBIOS_SECTIONS],
            ..HostFacts::default()
        };
        assert!(bound_facts(&mut facts) > 0);
        assert!(facts.encoded_len() <= limits::FACTS_BYTES);
        assert!(!facts.disks.is_empty() && !facts.nics.is_empty(), "{}", facts.disks.len());
        assert_eq!(facts.smbios.len(), limits::SMBIOS_SECTIONS, "the keys of names come last");
        let mut small = HostFacts { disks: vec![Disk::default(); 8], ..HostFacts::default() };
        assert_eq!((bound_facts(&mut small), small.disks.len()), (0, 8));

        let interface = Interface { name: "eno1".into(), addresses, ..Interface::default() };
        let route = Route { destination: text(43), gateway: text(39), ..Route::default() };
        let mut network = ObservedNetwork {
            interfaces: vec![interface; 16],
            routes: vec![route; limits::ROUTES],
            connections: (0..64).map(|name| (format!("{name}"), text(2048))).collect(),
            ..ObservedNetwork::default()
        };
        assert!(bound_network(&mut network) > 0);
        assert!(network.encoded_len() <= limits::NETWORK_BYTES);
        assert_eq!(network.interfaces.len(), 16);
        assert!(bound_network(&mut ObservedNetwork::default()) == 0);
    }
}
