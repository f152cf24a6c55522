//! Finds the interface on which a host holds the endpoint.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::LinkAttribute;
use proto::balancer::Duty;

use crate::ground::failure::Failure;
use crate::host::network::common_prefix;
use crate::host::network::dump::Dump;

/// The place of a duty on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The interface of the endpoint.
    pub interface: String,
    /// The host holds the endpoint now.
    pub is_holder: bool,
}

#[derive(Debug)]
struct Link {
    index: u32,
    name: String,
    master: Option<u32>,
    addresses: Vec<(IpAddr, u8)>,
}

fn not_here(address: IpAddr) -> Failure {
    Failure::refused(
        format!("the host does not have the address {address}, by which the other members know it"),
        "none: the host takes part as soon as it has it, or the coordinator observes another",
    )
}

/// Finds the place of a duty on this host. A duty that does not fit the host is refused.
pub fn find_placement(duty: &Duty, dump: &Dump) -> Result<Placement, Failure> {
    let links = list_links(dump);
    let own = find_with(duty.own_address(), &links);
    let link = match &duty.interface {
        Some(name) => find_named(name, &links)?,
        None => find_connected(duty.address, &links).or(own).ok_or_else(|| not_here(duty.own_address()))?,
    };
    if own.is_none() {
        return Err(not_here(duty.own_address()));
    }
    let is_holder = find_with(duty.address, &links).is_some();
    Ok(Placement { interface: link.name.clone(), is_holder })
}

pub(super) fn has_address(dump: &Dump, address: IpAddr) -> bool {
    find_with(address, &list_links(dump)).is_some()
}

fn find_with(address: IpAddr, links: &[Link]) -> Option<&Link> {
    links.iter().find(|link| link.addresses.iter().any(|(found, _)| *found == address))
}

fn find_named<'a>(name: &str, links: &'a [Link]) -> Result<&'a Link, Failure> {
    let named = links.iter().find(|link| link.name == name);
    let Some(link) = named else {
        let found = links.iter().filter(|link| link.name != "lo").map(|link| link.name.as_str());
        let found = found.take(16).collect::<Vec<_>>().join(", ");
        return Err(Failure::refused(
            format!("the host has no interface {name}; it has {found}"),
            "correct networkDevice in the pool or the BaremetalCluster",
        ));
    };
    let master = link.master.and_then(|index| links.iter().find(|link| link.index == index));
    match master {
        Some(master) => Err(Failure::refused(
            format!("the interface {name} is a member of {}", master.name),
            "name the bond or bridge itself in networkDevice",
        )),
        None => Ok(link),
    }
}

/// The interface with the longest prefix that contains the address.
fn find_connected(address: IpAddr, links: &[Link]) -> Option<&Link> {
    let found = links.iter().filter_map(|link| Some((longest_prefix(address, link)?, link)));
    found.max_by_key(|(length, _)| *length).map(|(_, link)| link)
}

fn longest_prefix(address: IpAddr, link: &Link) -> Option<u8> {
    let networks = link.addresses.iter().filter(|(own, _)| *own != address);
    networks.filter(|(own, length)| shares_prefix(*own, address, *length)).map(|(_, length)| *length).max()
}

fn shares_prefix(own: IpAddr, address: IpAddr, length: u8) -> bool {
    let Some(common) = common_prefix(own, address) else { return false };
    // A prefix of full length is an address and no network.
    let whole = if own.is_ipv4() { 32 } else { 128 };
    u32::from(length) < whole && common >= u32::from(length)
}

fn list_links(dump: &Dump) -> Vec<Link> {
    let links = dump.links.iter().map(|message| {
        let mut link =
            Link { index: message.header.index, name: String::new(), master: None, addresses: Vec::new() };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Controller(master) => link.master = Some(*master),
                _ => {}
            }
        }
        let own = dump.addresses.iter().filter(|address| address.header.index == link.index);
        link.addresses = own
            .filter(|address| matches!(address.header.family, AddressFamily::Inet | AddressFamily::Inet6))
            .filter_map(|message| {
                let local = message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Local(address) => Some(*address),
                    _ => None,
                });
                let peer = message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(address) => Some(*address),
                    _ => None,
                });
                Some((local.or(peer)?, message.header.prefix_len))
            })
            .collect();
        link
    });
    links.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::network::kernel::{
        dump_kernel,
        in_namespace::{in_namespace, run_ip},
    };
    use proto::v1alpha1::LoadBalancerDuty;

    fn duty(interface: &str, address: &str) -> Duty {
        let duty = LoadBalancerDuty {
            generation: 1,
            address: address.to_owned(),
            port: 6443,
            router_id: 1,
            interface: interface.to_owned(),
            members: vec!["10.1.0.1".into(), "10.1.0.2".into()],
            ..LoadBalancerDuty::default()
        };
        Duty::parse(&duty).unwrap().unwrap()
    }

    #[test]
    fn interface_routing_to_address_is_found() {
        in_namespace(|| {
            for command in [
                "link add wide type bridge",
                "link add near type bridge",
                "link add union type bridge",
                "link add card type veth peer name far",
                "link set card master union",
                "addr add 10.0.0.9/8 dev wide",
                "addr add 10.1.0.1/24 dev near",
            ] {
                run_ip(command);
            }
            let find =
                |interface, address| find_placement(&duty(interface, address), &dump_kernel().unwrap());
            let at =
                |interface: &str, is_holder| Ok(Placement { interface: interface.to_owned(), is_holder });
            assert_eq!(find("", "10.1.0.100"), at("near", false), "the longest prefix");
            assert_eq!(find("", "10.7.0.100"), at("wide", false));
            assert_eq!(find("", "192.0.2.1"), at("near", false), "the interface of its own address");
            assert_eq!(find("wide", "10.1.0.100"), at("wide", false), "as named");
            let missing = find("eth7", "10.1.0.100").unwrap_err();
            assert!(missing.message.contains("it has wide, near, union"), "{missing}");
            let member = find("card", "10.1.0.100").unwrap_err();
            assert_eq!(member.message, "the interface card is a member of union");
            run_ip("addr add 10.1.0.100/32 dev near");
            assert_eq!(find("", "10.1.0.100"), at("near", true));
            run_ip("addr del 10.1.0.1/24 dev near");
            assert_eq!(find("near", "10.1.0.100"), Err(not_here("10.1.0.1".parse().unwrap())));
        });
    }
}
