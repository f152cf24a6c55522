//! The hosts of each registration, so that a quota costs a single look-up.

use std::collections::{HashMap, HashSet};

use crate::ca::HostKey;
use crate::key::Key;

/// Hosts by the registration that created their inventory.
#[derive(Default)]
pub(super) struct RegisteredHosts {
    by_host: HashMap<HostKey, Key>,
    by_registration: HashMap<Key, HashSet<HostKey>>,
}

impl RegisteredHosts {
    /// Records the registration that created the inventory of a host.
    pub(super) fn set_host(&mut self, host: &HostKey, registration: Option<&String>) {
        let new = registration.map(|name| Key::new(host.namespace.clone(), name.as_str()));
        if self.by_host.get(host) == new.as_ref() {
            return;
        }
        let old = match &new {
            Some(new) => self.by_host.insert(host.clone(), new.clone()),
            None => self.by_host.remove(host),
        };
        if let Some(old) = old
            && let Some(hosts) = self.by_registration.get_mut(&old)
        {
            hosts.remove(host);
            if hosts.is_empty() {
                self.by_registration.remove(&old);
            }
        }
        if let Some(new) = new {
            self.by_registration.entry(new).or_default().insert(host.clone());
        }
    }

    pub(super) fn count_hosts(&self, registration: &Key) -> usize {
        self.by_registration.get(registration).map_or(0, HashSet::len)
    }

    pub(super) fn contains_host(&self, registration: &str, host: &HostKey) -> bool {
        self.by_host.get(host).is_some_and(|known| known.name == *registration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_counts_once_for_its_registration() {
        let mut hosts = RegisteredHosts::default();
        let host = |hash: &str| HostKey { namespace: "fleet".into(), tpm_hash: hash.into() };
        let (one, other) = ("one".to_owned(), "other".to_owned());
        let count = |hosts: &RegisteredHosts| {
            (hosts.count_hosts(&Key::new("fleet", "one")), hosts.count_hosts(&Key::new("fleet", "other")))
        };
        for (name, hash, registration, want) in [
            ("first", "a", Some(&one), (1, 0)),
            ("again", "a", Some(&one), (1, 0)),
            ("second", "b", Some(&one), (2, 0)),
            ("moved", "a", Some(&other), (1, 1)),
            ("deleted", "b", None, (0, 1)),
            ("deleted again", "b", None, (0, 1)),
        ] {
            hosts.set_host(&host(hash), registration);
            assert_eq!(count(&hosts), want, "{name}");
        }
        assert!(hosts.contains_host("other", &host("a")) && !hosts.contains_host("one", &host("a")));
        assert_eq!(hosts.count_hosts(&Key::new("elsewhere", "other")), 0);
    }
}
