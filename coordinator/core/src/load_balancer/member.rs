//! By which address a host is a member.

use std::net::IpAddr;

use coordinator_api::network::{ObservedInterface, ObservedNetwork};
use ipnet::IpNet;

use super::Candidate;
use crate::network::is_special;

/// Why a host cannot be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceProblem {
    /// Nothing is known of its network.
    NoReport,
    /// It has no such interface.
    Missing { device: String, found: String },
    /// Its addresses belong to the bond or bridge.
    IsSlave { device: String, master: String },
    /// Nothing there has an address of the family.
    NoAddress { device: Option<String> },
    /// Another member has the same address.
    AddressShared(IpAddr),
}

/// The address of a host that its peers know: on the named interface, else on
/// the one whose network contains the endpoint, else on that of the default
/// route.
pub fn find_address(
    network: Option<&ObservedNetwork>,
    device: Option<&str>,
    endpoint: IpAddr,
) -> Result<IpAddr, DeviceProblem> {
    let network = network.ok_or(DeviceProblem::NoReport)?;
    if let Some(device) = device {
        let interface = find_device(network, device)?;
        let none = || DeviceProblem::NoAddress { device: Some(device.to_owned()) };
        return find_net(interface, endpoint).map(|net| net.addr()).ok_or_else(none);
    }
    let connected = network.interfaces.iter().filter_map(|interface| find_net(interface, endpoint));
    let connected = connected.filter(|net| net.contains(&endpoint)).max_by_key(IpNet::prefix_len);
    let routed = || {
        let name = default_interface(network, endpoint)?;
        let interface = network.interfaces.iter().find(|interface| interface.name == name)?;
        find_net(interface, endpoint)
    };
    let found = connected.or_else(routed).map(|net| net.addr());
    found.ok_or(DeviceProblem::NoAddress { device: None })
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
    match interface.master.as_deref().filter(|master| !master.is_empty()) {
        Some(master) => Err(DeviceProblem::IsSlave { device: device.to_owned(), master: master.to_owned() }),
        None => Ok(interface),
    }
}

/// The first address of the endpoint's family, one in its network before others.
fn find_net(interface: &ObservedInterface, endpoint: IpAddr) -> Option<IpNet> {
    let nets = interface.addresses.iter().filter_map(|address| address.parse::<IpNet>().ok());
    let usable: Vec<IpNet> = nets
        .filter(|net| net.addr().is_ipv4() == endpoint.is_ipv4())
        .filter(|net| net.addr() != endpoint && !is_special(net.addr()))
        .collect();
    usable.iter().find(|net| net.contains(&endpoint)).or_else(|| usable.first()).copied()
}

/// The interface of the default route with the lowest metric.
fn default_interface(network: &ObservedNetwork, endpoint: IpAddr) -> Option<&str> {
    let all = if endpoint.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let is_default =
        |destination: &str| destination == all || (destination == "default" && endpoint.is_ipv4());
    let routes = network.routes.iter().filter(|route| is_default(&route.destination));
    routes.min_by_key(|route| route.metric.unwrap_or_default())?.interface.as_deref()
}

/// The network of the members that contains the endpoint.
pub(super) fn find_network(candidates: &[Candidate<'_>], endpoint: IpAddr) -> Option<IpNet> {
    let interfaces = candidates.iter().filter_map(|candidate| candidate.network);
    let interfaces = interfaces.flat_map(|network| &network.interfaces);
    let nets = interfaces.filter_map(|interface| find_net(interface, endpoint));
    nets.filter(|net| net.contains(&endpoint)).map(|net| net.trunc()).max_by_key(IpNet::prefix_len)
}
