//! Internal endpoints of clusters: which have the same address or router id.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use coordinator_core::load_balancer::{Internal, find_network};
use ipnet::IpNet;

use super::Key;
use super::groups::Groups;

/// Each cluster with an internal endpoint.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    known: HashMap<Key, Internal>,
    by_address: Groups<(IpAddr, i32), Key>,
    /// Ordered by address: those of one network lie together.
    by_router_id: BTreeSet<(i32, IpAddr, Key)>,
}

impl Endpoints {
    /// The clusters that had or have the same address and port, or the same router id
    /// in a network of the usual size, where that changes.
    pub(super) fn set_endpoint(&mut self, cluster: &Key, endpoint: Option<Internal>) -> BTreeSet<Key> {
        let former = match endpoint {
            Some(endpoint) => self.known.insert(cluster.clone(), endpoint),
            None => self.known.remove(cluster),
        };
        if former == endpoint {
            return BTreeSet::new();
        }
        let address = |endpoint: Internal| (endpoint.address, endpoint.port);
        let (old, new) = (former.map(address), endpoint.map(address));
        self.by_address.replace_group(old.as_ref(), new.as_ref(), cluster);
        let entry = |endpoint: Internal| (endpoint.router_id, endpoint.address, cluster.clone());
        if let Some(former) = former {
            self.by_router_id.remove(&entry(former));
        }
        self.by_router_id.extend(endpoint.map(entry));
        let places = former.into_iter().chain(endpoint);
        places.flat_map(|place| self.find_neighbours(place, find_network(place, &[]))).collect()
    }

    /// The clusters with its address and port, and those of `network` with its router id.
    pub(super) fn find_neighbours(&self, endpoint: Internal, network: Option<IpNet>) -> BTreeSet<Key> {
        let address = (endpoint.address, endpoint.port);
        let same_address = self.by_address.group_members(&address).cloned();
        let id = endpoint.router_id;
        let same_id = network.into_iter().flat_map(|network| {
            let first = (id, network.network(), Key::new("", ""));
            self.by_router_id
                .range(first..)
                .take_while(move |(other, address, _)| *other == id && network.contains(address))
        });
        same_address.chain(same_id.map(|(_, _, key)| key.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(address: &str, router_id: i32) -> Internal {
        Internal { address: address.parse().unwrap(), port: 6443, router_id }
    }

    fn key(name: &str) -> Key {
        Key::new("fleet", name)
    }

    fn keys<const N: usize>(names: [&str; N]) -> BTreeSet<Key> {
        names.map(key).into()
    }

    #[test]
    fn neighbours_share_address_or_id() {
        let mut endpoints = Endpoints::default();
        for (name, address, router_id) in [
            ("ours", "10.0.0.100", 51),
            ("same address", "10.0.0.100", 7),
            ("same id", "10.0.0.200", 51),
            ("other id", "10.0.0.201", 52),
            ("other network", "10.0.1.1", 51),
            ("below", "9.255.255.255", 51),
            ("other family", "fd00::100", 51),
        ] {
            endpoints.set_endpoint(&key(name), Some(endpoint(address, router_id)));
        }
        let found = |network: Option<&str>| {
            let network = network.map(|network| network.parse().unwrap());
            endpoints.find_neighbours(endpoint("10.0.0.100", 51), network)
        };
        assert_eq!(found(Some("10.0.0.0/24")), keys(["ours", "same address", "same id"]));
        assert_eq!(found(None), keys(["ours", "same address"]));
        let sixth = endpoints.find_neighbours(endpoint("fd00::1", 51), Some("fd00::/64".parse().unwrap()));
        assert_eq!(sixth, keys(["other family"]));
    }

    #[test]
    fn an_address_that_changes_hands_concerns_both() {
        let mut endpoints = Endpoints::default();
        let set = |endpoints: &mut Endpoints, name, address: Option<&str>| {
            endpoints.set_endpoint(&key(name), address.map(|address| endpoint(address, 51)))
        };
        assert_eq!(set(&mut endpoints, "a", Some("10.0.0.1")), keys(["a"]));
        assert_eq!(set(&mut endpoints, "a", Some("10.0.0.1")), keys([]), "the same");
        assert_eq!(set(&mut endpoints, "b", Some("10.0.0.1")), keys(["a", "b"]));
        assert_eq!(set(&mut endpoints, "a", Some("10.0.0.2")), keys(["a", "b"]));
        assert_eq!(set(&mut endpoints, "c", Some("10.0.0.3")), keys(["a", "b", "c"]), "the same id");
        assert_eq!(set(&mut endpoints, "c", None), keys(["a", "b"]));
        assert_eq!(set(&mut endpoints, "c", Some("10.0.1.3")), keys(["c"]), "another network");
        assert_eq!(set(&mut endpoints, "c", None), keys([]));
        assert_eq!(set(&mut endpoints, "b", None), keys(["a"]));
        assert_eq!((endpoints.known.len(), endpoints.by_router_id.len()), (1, 1));
    }
}
