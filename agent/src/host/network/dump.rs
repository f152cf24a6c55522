//! Links, addresses and routes as the kernel lists them.

use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::RouteMessage;

/// The three tables, unfiltered.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// Every link of this network namespace.
    pub links: Vec<LinkMessage>,
    pub addresses: Vec<AddressMessage>,
    /// Every route of every table.
    pub routes: Vec<RouteMessage>,
}
