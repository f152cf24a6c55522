//! Gateways that a route of their own makes reachable: the peer of an address, or a neighbour that an
//! operator or DHCP named.

use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};

use super::parse_route_address;

/// Link and address of a neighbour with a route of its own, whoever made the route.
pub(super) fn parse_peer(message: &RouteMessage) -> Option<(u32, IpAddr)> {
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return None;
    }
    let (mut link, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Destination(to) => address = parse_route_address(to),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::MultiPath(_) => {
                return None;
            }
            _ => {}
        }
    }
    let address = address?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    (header.destination_prefix_length == whole).then_some((link?, address))
}
