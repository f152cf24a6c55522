//! Internal endpoints of clusters, and the clusters that share an address or a router id.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use coordinator_core::load_balancer::{Internal, find_network};
use ipnet::IpNet;

use super::groups::Groups;
use crate::key::Key;

/// The lowest address in the order of addresses.
const LOWEST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The clusters with an internal endpoint.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    known: HashMap<Key, Internal>,
    /// The network of each cluster, as its hosts report it.
    networks: HashMap<Key, IpNet>,
    by_address: Groups<(IpAddr, i32), Key>,
    /// Ordered by address, so that the endpoints of one network lie together.
    by_router_id: BTreeSet<(i32, IpAddr, Key)>,
}

impl Endpoints {
    /// Sets the endpoint of a cluster. The answer has the clusters that shared or share its address
    /// and port, and those with its router id in a network of the usual size or in their own
    /// network. It is empty if the endpoint did not change.
    pub(super) fn set_endpoint(&mut self, cluster: &Key, endpoint: Option<Internal>) -> BTreeSet<Key> {
        let former = if let Some(endpoint) = endpoint {
            self.known.insert(cluster.clone(), endpoint)
        } else {
            self.networks.remove(cluster);
            self.known.remove(cluster)
        };
        if former == endpoint {
            return BTreeSet::new();
        }
        let (old, new) = (former.map(address_of), endpoint.map(address_of));
        self.by_address.replace_group(old.as_ref(), new.as_ref(), cluster);
        let entry = |endpoint: Internal| (endpoint.router_id, endpoint.address, cluster.clone());
        if let Some(former) = former {
            self.by_router_id.remove(&entry(former));
        }
        self.by_router_id.extend(endpoint.map(entry));
        let places = former.into_iter().chain(endpoint);
        let near = places.clone().flat_map(|place| self.find_neighbours(place, find_network(place, &[])));
        near.chain(places.flat_map(|place| self.find_observers(place))).collect()
    }

    /// Sets the network of a cluster with an endpoint, so that endpoints that come into the network
    /// concern the cluster.
    pub(super) fn set_network(&mut self, cluster: &Key, network: Option<IpNet>) {
        let network = network.filter(|_| self.known.contains_key(cluster));
        match network {
            Some(network) => self.networks.insert(cluster.clone(), network),
            None => self.networks.remove(cluster),
        };
    }

    /// The clusters with the router id of an endpoint whose network contains its address.
    fn find_observers(&self, place: Internal) -> impl Iterator<Item = Key> {
        let id = place.router_id;
        let same_id = self.by_router_id.range((id, LOWEST, Key::new("", ""))..);
        let same_id = same_id.take_while(move |(other, _, _)| *other == id);
        let keys = same_id.map(|(_, _, key)| key);
        keys.filter(move |key| self.networks.get(*key).is_some_and(|net| net.contains(&place.address)))
            .cloned()
    }

    /// The clusters with the address and port of an endpoint, and those of `network` with its
    /// router id.
    pub(super) fn find_neighbours(&self, endpoint: Internal, network: Option<IpNet>) -> BTreeSet<Key> {
        let address = address_of(endpoint);
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

fn address_of(endpoint: Internal) -> (IpAddr, i32) {
    (endpoint.address, endpoint.port)
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

    #[test]
    fn endpoint_in_a_wide_network_concerns_its_clusters() {
        let mut endpoints = Endpoints::default();
        let wide: IpNet = "10.0.0.0/16".parse().unwrap();
        endpoints.set_endpoint(&key("old"), Some(endpoint("10.0.0.1", 51)));
        endpoints.set_endpoint(&key("other id"), Some(endpoint("10.0.0.2", 52)));
        for name in ["old", "other id", "without endpoint"] {
            endpoints.set_network(&key(name), Some(wide));
        }
        let new = Some(endpoint("10.0.9.1", 51));
        assert_eq!(endpoints.set_endpoint(&key("new"), new), keys(["old", "new"]));
        assert_eq!(endpoints.set_endpoint(&key("new"), None), keys(["old"]), "it is gone");
        endpoints.set_endpoint(&key("old"), None);
        endpoints.set_endpoint(&key("old"), Some(endpoint("10.0.0.1", 51)));
        assert_eq!(endpoints.set_endpoint(&key("new"), new), keys(["new"]), "no network is known any more");
        assert_eq!(endpoints.networks.len(), 1);
    }
}
