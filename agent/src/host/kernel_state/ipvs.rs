//! Virtual services of IPVS, as kube-proxy makes them.

use netlink_sys::protocols::NETLINK_GENERIC;

use super::request::{self, Raw, attribute, find_attribute};
use crate::ground::paths::{Root, read_or_empty};
use crate::state::before_node::KernelItem;

// linux/genetlink.h and linux/ip_vs.h.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FLUSH: u8 = 17;

/// The lines of services begin with their protocol; those of their servers with an arrow.
pub(super) fn list_services(root: &Root) -> Vec<KernelItem> {
    let text = read_or_empty(root.join("/proc/thread-self/net/ip_vs"));
    let services = text
        .lines()
        .filter(|line| ["TCP ", "UDP ", "SCTP ", "FWM "].iter().any(|protocol| line.starts_with(protocol)));
    let name = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    services.map(|line| KernelItem::VirtualService(name(line))).collect()
}

/// Removes all services. The agent's own duty has ended before, and no image brings one.
pub(super) fn remove_services() {
    let flushed = find_family()
        .and_then(|kind| request::ask(NETLINK_GENERIC, &Raw { kind, payload: vec![FLUSH, 1, 0, 0] }).ok());
    if flushed.is_none() {
        tracing::info!("the kernel does not remove the services of IPVS");
    }
}

fn find_family() -> Option<u16> {
    let mut payload = vec![GET_FAMILY, 1, 0, 0];
    payload.extend(attribute(FAMILY_NAME, b"IPVS\0"));
    let answers = request::ask(NETLINK_GENERIC, &Raw { kind: CONTROLLER, payload }).ok()?;
    let answer = answers.first()?.payload.get(4..)?;
    let id = find_attribute(answer, FAMILY_ID)?.first_chunk::<2>()?;
    Some(u16::from_ne_bytes(*id))
}
