//! The addresses that hosts report.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use crate::index::groups::Groups;
use crate::key::Key;

/// Addresses by inventory, and inventories by address.
#[derive(Debug, Default)]
pub(super) struct HostAddresses {
    addresses: HashMap<Key, BTreeSet<IpAddr>>,
    hosts: Groups<IpAddr, Key>,
    /// Hosts that run a node by their own statement.
    nodes: HashSet<Key>,
}

/// The facts of a host on which the allocation of addresses depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostFacts {
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) runs_node: bool,
}

impl HostAddresses {
    /// Sets the facts of a host, and tells whether it gave up an address or its node.
    pub(super) fn set_host(&mut self, host: &Key, facts: HostFacts) -> bool {
        let HostFacts { addresses, runs_node } = facts;
        let old = self.of_host(host).clone();
        let had_node = if runs_node { !self.nodes.insert(host.clone()) } else { self.nodes.remove(host) };
        for address in old.difference(&addresses) {
            self.hosts.remove_member(address, host);
        }
        for address in addresses.difference(&old) {
            self.hosts.insert_member(address, host);
        }
        let has_freed = !old.is_subset(&addresses) || had_node && !runs_node;
        self.addresses.remove(host);
        if !addresses.is_empty() {
            self.addresses.insert(host.clone(), addresses);
        }
        has_freed
    }

    pub(super) fn has_facts(&self, host: &Key, facts: &HostFacts) -> bool {
        *self.of_host(host) == facts.addresses && self.nodes.contains(host) == facts.runs_node
    }

    /// The name of another host than `own` that runs a node with the address.
    pub(super) fn find_node(&self, namespace: &str, address: IpAddr, own: Option<&Key>) -> Option<String> {
        self.find_host(namespace, address, |host| Some(host) != own && self.nodes.contains(host))
    }

    fn of_host(&self, host: &Key) -> &BTreeSet<IpAddr> {
        const NONE: &BTreeSet<IpAddr> = &BTreeSet::new();
        self.addresses.get(host).unwrap_or(NONE)
    }

    /// The name of another host than `own` with the address.
    pub(super) fn find_other(&self, namespace: &str, address: IpAddr, own: Option<&Key>) -> Option<String> {
        self.find_host(namespace, address, |host| Some(host) != own)
    }

    fn find_host(&self, namespace: &str, address: IpAddr, is_meant: impl Fn(&Key) -> bool) -> Option<String> {
        let mut hosts = self.hosts.group_members(&address);
        let found = hosts.find(|host| &*host.namespace == namespace && is_meant(host));
        found.map(|host| host.name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_addresses_from_others() {
        let mut hosts = HostAddresses::default();
        let (one, two) = (Key::new("fleet", "one"), Key::new("fleet", "two"));
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let set = |last: &[u8]| HostFacts {
            addresses: last.iter().map(|last| address(*last)).collect(),
            runs_node: false,
        };
        assert!(!hosts.set_host(&one, set(&[1, 2])), "nothing was given up");
        assert!(!hosts.set_host(&two, set(&[2])));
        let other = |hosts: &HostAddresses, last, own| hosts.find_other("fleet", address(last), own);
        assert_eq!(other(&hosts, 1, Some(&one)), None, "its own");
        assert_eq!(other(&hosts, 1, Some(&two)).as_deref(), Some("one"));
        assert_eq!(other(&hosts, 2, Some(&one)).as_deref(), Some("two"), "both have it");
        assert_eq!(hosts.find_other("elsewhere", address(1), None), None);
        assert!(hosts.set_host(&one, set(&[3])), "it gave two up");
        assert!(other(&hosts, 1, None).is_none() && hosts.has_facts(&one, &set(&[3])));
        let node = HostFacts { runs_node: true, ..set(&[3]) };
        assert!(!hosts.has_facts(&one, &node) && !hosts.set_host(&one, node.clone()));
        assert!(hosts.has_facts(&one, &node));
        let runs = |hosts: &HostAddresses, own| hosts.find_node("fleet", address(3), own);
        assert_eq!((runs(&hosts, Some(&two)).as_deref(), runs(&hosts, Some(&one))), (Some("one"), None));
        assert!(hosts.set_host(&one, set(&[3])), "it gave up its node");
        assert_eq!(runs(&hosts, None), None);
        assert!(hosts.set_host(&one, set(&[])), "it is gone");
        assert!(other(&hosts, 3, None).is_none() && hosts.has_facts(&one, &set(&[])));
    }
}
