//! The address of a host as a member.

use std::net::IpAddr;

use coordinator_api::network::{ObservedInterface, ObservedNetwork};
use ipnet::IpNet;

use super::Candidate;
use crate::network::is_special;

/// Why a host cannot be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceProblem {
    /// The host has reported no network.
    NoReport,
    /// The host has no such interface.
    Missing { device: String, found: String },
    /// The interface is a member of a bond or bridge, which has the addresses.
    IsSlave { device: String, master: String },
    /// No usable interface has an address of the endpoint's family.
    NoAddress { device: Option<String> },
    /// Another member has the same address.
    AddressShared(IpAddr),
}

/// The address by which peers know a host: on the named interface, else on the interface whose
/// network contains the endpoint, else on the interface of the default route.
pub fn find_address(
    network: Option<&ObservedNetwork>,
    device: Option<&str>,
    endpoint: IpAddr,
) -> Result<IpAddr, DeviceProblem> {
    let network = network.ok_or(DeviceProblem::NoReport)?;
    if let Some(device) = device {
        let interface = find_device(network, device)?;
        let net = find_net(interface, endpoint);
        let missing = DeviceProblem::NoAddress { device: Some(device.to_owned()) };
        return net.map(|net| net.addr()).ok_or(missing);
    }
    let connected = network.interfaces.iter().filter_map(|interface| find_net(interface, endpoint));
    let connected = connected.filter(|net| net.contains(&endpoint)).max_by_key(IpNet::prefix_len);
    let found = connected.or_else(|| find_net(default_interface(network, endpoint)?, endpoint));
    found.map(|net| net.addr()).ok_or(DeviceProblem::NoAddress { device: None })
}

fn find_device<'a>(
    network: &'a ObservedNetwork,
    device: &str,
) -> Result<&'a ObservedInterface, DeviceProblem> {
    let Some(interface) = network.interfaces.iter().find(|interface| interface.name == device) else {
        let names = network.interfaces.iter().map(|interface| interface.name.as_str());
        let found = names.take(16).collect::<Vec<_>>().join(", ");
        return Err(DeviceProblem::Missing { device: device.to_owned(), found });
    };
    match interface.master_name() {
        Some(master) => Err(DeviceProblem::IsSlave { device: device.to_owned(), master: master.to_owned() }),
        None => Ok(interface),
    }
}

/// The first address in the endpoint's network, else the first one of the endpoint's family.
fn find_net(interface: &ObservedInterface, endpoint: IpAddr) -> Option<IpNet> {
    let nets = interface.addresses.iter().filter_map(|address| address.parse::<IpNet>().ok());
    let usable: Vec<IpNet> = nets
        .filter(|net| net.addr().is_ipv4() == endpoint.is_ipv4())
        .filter(|net| net.addr() != endpoint && !is_special(net.addr()))
        .collect();
    usable.iter().find(|net| net.contains(&endpoint)).or_else(|| usable.first()).copied()
}

/// The interface of the default route with the lowest metric.
fn default_interface(network: &ObservedNetwork, endpoint: IpAddr) -> Option<&ObservedInterface> {
    let all = if endpoint.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let routes = network
        .routes
        .iter()
        .filter(|route| route.destination == all || (route.destination == "default" && endpoint.is_ipv4()));
    let name = routes.min_by_key(|route| route.metric.unwrap_or(0))?.interface.as_deref()?;
    network.interfaces.iter().find(|interface| interface.name == name)
}

/// The network of the members that contains the endpoint.
pub(super) fn find_network(candidates: &[Candidate<'_>], endpoint: IpAddr) -> Option<IpNet> {
    let interfaces = candidates.iter().filter_map(|candidate| candidate.network);
    let interfaces = interfaces.flat_map(|network| &network.interfaces);
    let nets = interfaces.filter_map(|interface| find_net(interface, endpoint));
    nets.filter(|net| net.contains(&endpoint)).map(|net| net.trunc()).max_by_key(IpNet::prefix_len)
}
