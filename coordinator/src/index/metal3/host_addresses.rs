//! The addresses that hosts report.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use crate::index::groups::Groups;
use crate::key::Key;

/// Addresses by inventory, and inventories by address.
#[derive(Debug, Default)]
pub(super) struct HostAddresses {
    addresses: HashMap<Key, BTreeSet<IpAddr>>,
    hosts: Groups<IpAddr, Key>,
}

impl HostAddresses {
    /// Sets the addresses of a host, and tells whether it gave up an address.
    pub(super) fn set_host(&mut self, host: &Key, addresses: BTreeSet<IpAddr>) -> bool {
        let old = self.of_host(host).clone();
        for address in old.difference(&addresses) {
            self.hosts.remove_member(address, host);
        }
        for address in addresses.difference(&old) {
            self.hosts.insert_member(address, host);
        }
        let has_freed = !old.is_subset(&addresses);
        self.addresses.remove(host);
        if !addresses.is_empty() {
            self.addresses.insert(host.clone(), addresses);
        }
        has_freed
    }

    pub(super) fn of_host(&self, host: &Key) -> &BTreeSet<IpAddr> {
        const NONE: &BTreeSet<IpAddr> = &BTreeSet::new();
        self.addresses.get(host).unwrap_or(NONE)
    }

    /// The name of another host than `own` with the address.
    pub(super) fn find_other(&self, namespace: &str, address: IpAddr, own: Option<&Key>) -> Option<String> {
        let mut hosts = self.hosts.group_members(&address);
        hosts
            .find(|host| &*host.namespace == namespace && Some(*host) != own)
            .map(|host| host.name.to_string())
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
        let set = |last: &[u8]| last.iter().map(|last| address(*last)).collect::<BTreeSet<_>>();
        assert!(!hosts.set_host(&one, set(&[1, 2])), "nothing was given up");
        assert!(!hosts.set_host(&two, set(&[2])));
        let other = |hosts: &HostAddresses, last, own| hosts.find_other("fleet", address(last), own);
        assert_eq!(other(&hosts, 1, Some(&one)), None, "its own");
        assert_eq!(other(&hosts, 1, Some(&two)).as_deref(), Some("one"));
        assert_eq!(other(&hosts, 2, Some(&one)).as_deref(), Some("two"), "both have it");
        assert_eq!(hosts.find_other("elsewhere", address(1), None), None);
        assert!(hosts.set_host(&one, set(&[3])), "it gave two up");
        assert_eq!((other(&hosts, 1, None), hosts.of_host(&one)), (None, &set(&[3])));
        assert!(hosts.set_host(&one, set(&[])), "it is gone");
        assert_eq!((other(&hosts, 3, None), hosts.of_host(&one)), (None, &set(&[])));
    }
}
