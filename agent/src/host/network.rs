//! The network as the kernel, the resolver and `NetworkManager` report it.
//!
//! This module and [`kernel`] read; [`translate`] decides from messages alone which parts are
//! reported, and in which form.

pub mod changes;
pub mod connections;
pub mod dump;
pub mod kernel;
pub mod netlink;
pub mod resolver;
pub mod settle;
pub mod translate;

use std::io;
use std::net::IpAddr;

use proto::v1alpha1::ObservedNetwork;
use proto::{limits, size};

use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::state::duty;
use changes::NetworkChanges;
use settle::NetworkSnapshot;

/// How the agent observes its network.
pub trait NetworkObserver: Send + Sync {
    /// The current network.
    fn observe(&self) -> Result<ObservedNetwork, Failure>;

    /// Announcements of changes from now on; `None` if the network has none.
    fn watch(&self) -> io::Result<Option<NetworkChanges>>;
}

/// The network of the kernel that the agent runs on.
#[derive(Clone, Debug)]
pub struct KernelNetwork {
    root: Root,
}

impl KernelNetwork {
    /// The files of resolver and `NetworkManager` are read below `root`.
    pub fn below(root: &Root) -> Self {
        Self { root: root.clone() }
    }

    pub fn root(&self) -> &Root {
        &self.root
    }
}

/// Length of the prefix that both have in common; `None` for addresses of different families.
pub fn common_prefix(one: IpAddr, other: IpAddr) -> Option<u32> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        (IpAddr::V6(one), IpAddr::V6(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        _ => None,
    }
}

/// Removes the endpoint's address, because it belongs to the host that holds it: replayed as
/// configuration it would be on two hosts.
pub(super) fn leave_out_endpoint(network: &mut ObservedNetwork, root: &Root) {
    let Some(endpoint) = duty::held_address(root) else { return };
    let is_endpoint =
        |text: &String| text.split_once('/').is_some_and(|(address, _)| address.parse() == Ok(endpoint));
    for interface in &mut network.interfaces {
        interface.addresses.retain(|address| !is_endpoint(address));
        interface.dynamic_addresses.retain(|address| !is_endpoint(address));
    }
}

impl NetworkObserver for KernelNetwork {
    fn observe(&self) -> Result<ObservedNetwork, Failure> {
        Ok(self.snapshot()?.network)
    }

    fn watch(&self) -> io::Result<Option<NetworkChanges>> {
        NetworkChanges::open_watch().map(Some)
    }
}

impl KernelNetwork {
    /// A file that cannot be read is left out and is no error, because many hosts do not have
    /// `NetworkManager`.
    fn snapshot(&self) -> Result<NetworkSnapshot, Failure> {
        let dump = kernel::dump_kernel()?;
        let mut network = translate::translate_dump(&dump);
        network.interfaces.truncate(limits::INTERFACES);
        network.routes.truncate(limits::ROUTES);
        let resolver = resolver::read_resolver(&self.root);
        network.dns_servers = resolver.servers;
        network.search_domains = resolver.search;
        network.connections = connections::read_connections(&self.root);
        leave_out_endpoint(&mut network, &self.root);
        let left_out = size::bound_network(&mut network);
        if left_out > 0 {
            tracing::warn!(left_out, "routes or connections left out, the report has no room for them");
        }
        Ok(NetworkSnapshot { network, unaddressed: translate::list_unaddressed(&dump) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::v1alpha1::{Interface, LoadBalancerDuty};

    #[test]
    fn the_endpoint_is_no_address_of_the_host() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.state().path()).unwrap();
        let addresses = ["10.0.0.1/24", "10.0.0.100/32"].map(str::to_owned).to_vec();
        let interface = Interface { name: "eno1".into(), addresses, ..Interface::default() };
        let seen = ObservedNetwork { interfaces: vec![interface], ..ObservedNetwork::default() };
        let leave_out = |mut network: ObservedNetwork| {
            leave_out_endpoint(&mut network, &root);
            network.interfaces.remove(0).addresses
        };
        assert_eq!(leave_out(seen.clone()), ["10.0.0.1/24", "10.0.0.100/32"], "without a duty");
        let duty = LoadBalancerDuty {
            generation: 1,
            address: "10.0.0.100".into(),
            port: 6443,
            router_id: 51,
            members: vec!["10.0.0.1".into()],
            ..LoadBalancerDuty::default()
        };
        duty::keep_duty(&root, &duty).unwrap();
        assert_eq!(leave_out(seen), ["10.0.0.1/24"]);
    }
}
