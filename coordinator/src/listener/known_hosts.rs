//! Number of known hosts at an address. Each known host has a reserve there: a host that connected with
//! its certificate, and one host in all of those that state the address, so that a fleet returns after a
//! restart. More statements add nothing, because nothing proves them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coordinator_api::inventory::MachineInventory;
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;

use crate::ca::{HostKey, Peer};
use crate::key::Presence;

/// Addresses that a host can reserve for itself.
const STATED: usize = 16;
/// Insertions between two removals of hosts whose certificate has expired.
const PRUNE_EVERY: usize = 1024;

/// The source of a connection, for limits: an address of IPv4, or a /64 of IPv6, because a host may
/// have a whole /64 for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into()),
            v4 @ IpAddr::V4(_) => Self(v4),
        }
    }
}

type Key = ObjectRef<MachineInventory>;

#[derive(Default)]
struct Index {
    stated: HashMap<Key, Vec<Source>>,
    stated_at: HashMap<Source, usize>,
    /// The last source of each host with a certificate, and the end of the certificate.
    seen: HashMap<HostKey, (Source, Timestamp)>,
    seen_at: HashMap<Source, usize>,
    insertions: usize,
}

/// The index of known hosts, updated with every change of an inventory.
#[derive(Default)]
pub struct KnownHosts(Mutex<Index>);

impl KnownHosts {
    fn lock_index(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn apply_change(&self, inventory: &MachineInventory, presence: Presence) {
        let mut index = self.lock_index();
        match presence {
            Presence::Exists => index.update_stated(inventory),
            Presence::Deleted => index.remove_stated(&ObjectRef::from_obj(inventory)),
        }
    }

    /// Records a connection of a host from `source` with its certificate.
    pub fn note_host(&self, peer: &Peer, source: Source, now: Timestamp) {
        let mut index = self.lock_index();
        index.insertions += 1;
        if index.insertions.is_multiple_of(PRUNE_EVERY) {
            index.remove_expired(now);
        }
        if let Some((former, _)) = index.seen.insert(peer.key.clone(), (source, peer.not_after)) {
            decrement(&mut index.seen_at, &former);
        }
        *index.seen_at.entry(source).or_default() += 1;
    }

    /// Number of known hosts at `source`.
    pub fn count_hosts(&self, source: Source) -> usize {
        let index = self.lock_index();
        let seen = index.seen_at.get(&source).copied().unwrap_or(0);
        seen.max(usize::from(index.stated_at.contains_key(&source)))
    }
}

impl Index {
    fn update_stated(&mut self, inventory: &MachineInventory) {
        let key = ObjectRef::from_obj(inventory);
        self.remove_stated(&key);
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        let addresses = host.map_or(&[][..], |host| &host.addresses);
        let sources: HashSet<_> =
            addresses.iter().take(STATED).filter_map(|text| parse_source(text)).collect();
        for source in &sources {
            *self.stated_at.entry(*source).or_default() += 1;
        }
        if !sources.is_empty() {
            self.stated.insert(key, sources.into_iter().collect());
        }
    }

    fn remove_stated(&mut self, key: &Key) {
        for source in self.stated.remove(key).into_iter().flatten() {
            decrement(&mut self.stated_at, &source);
        }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        let Self { seen, seen_at, .. } = self;
        seen.retain(|_, (source, not_after)| {
            let is_valid = *not_after > now;
            if !is_valid {
                decrement(seen_at, source);
            }
            is_valid
        });
    }
}

/// Decrements the count of a key, and removes the entry at zero.
pub(super) fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Parses an address, with or without the length of its prefix.
fn parse_source(text: &str) -> Option<Source> {
    let address: IpAddr = text.split('/').next()?.parse().ok()?;
    Some(address.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ca::Role;
    use coordinator_core::host::certified::KeyTime;
    use serde_json::json;

    fn source(text: &str) -> Source {
        parse_source(text).unwrap()
    }

    fn inventory(name: &str, addresses: &[&str]) -> MachineInventory {
        serde_json::from_value(json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
            "metadata": { "name": name, "namespace": "fleet" }, "spec": {},
            "status": { "host": { "addresses": addresses } },
        }))
        .unwrap()
    }

    pub(in crate::listener) fn peer(host: usize, not_after: Timestamp) -> Peer {
        Peer {
            key: HostKey { namespace: "fleet".into(), tpm_hash: host.to_string() },
            name_hint: "m".into(),
            role: Role::Installed,
            public_key_hash: String::new(),
            key_time: KeyTime::default(),
            serial: String::new(),
            not_after,
        }
    }

    #[test]
    fn source_is_an_address_or_a_prefix() {
        for (one, other, want) in [
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::1", "2001:db8::ffff:1/64", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(source(one) == source(other), want, "{one} {other}");
        }
    }

    #[test]
    fn stated_addresses_follow_the_inventories() {
        let known = KnownHosts::default();
        let count = |text: &str| known.count_hosts(source(text));
        known.apply_change(&inventory("a", &["192.0.2.1/24", "2001:db8::1", "none"]), Presence::Exists);
        known.apply_change(&inventory("b", &["192.0.2.1"]), Presence::Exists);
        assert_eq!((count("192.0.2.1"), count("2001:db8::2"), count("192.0.2.9")), (1, 1, 0));
        known.apply_change(&inventory("a", &["192.0.2.9"]), Presence::Exists);
        assert_eq!((count("192.0.2.1"), count("2001:db8::2"), count("192.0.2.9")), (1, 0, 1));
        for name in ["a", "b"] {
            known.apply_change(&inventory(name, &[]), Presence::Deleted);
        }
        known.apply_change(&inventory("c", &["192.0.2.7"]), Presence::Exists);
        assert_eq!((count("192.0.2.1"), count("192.0.2.9"), count("192.0.2.7")), (0, 0, 1));
        let index = known.lock_index();
        assert_eq!((index.stated.len(), index.stated_at.len()), (1, 1));
    }

    #[test]
    fn host_reserves_a_bounded_number_of_addresses() {
        let known = KnownHosts::default();
        let addresses: Vec<_> = (0..99).map(|last| format!("192.0.2.{last}")).collect();
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        known.apply_change(&inventory("a", &addresses), Presence::Exists);
        assert_eq!(known.lock_index().stated_at.len(), STATED);
    }

    #[test]
    fn connections_of_hosts_make_a_source_known() {
        let (known, now) = (KnownHosts::default(), Timestamp::UNIX_EPOCH);
        let second = |second| Timestamp::from_second(second).unwrap();
        let (one, other) = (source("192.0.2.1"), source("192.0.2.2"));
        for host in [1, 2, 2, 3] {
            known.note_host(&peer(host, second(60)), one, now);
        }
        assert_eq!((known.count_hosts(one), known.count_hosts(other)), (3, 0));
        known.note_host(&peer(3, second(120)), other, now);
        assert_eq!((known.count_hosts(one), known.count_hosts(other)), (2, 1));
        known.lock_index().remove_expired(second(60));
        assert_eq!((known.count_hosts(one), known.count_hosts(other)), (0, 1));
    }
}
