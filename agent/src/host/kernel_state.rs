//! Networks and devices in the kernel, by name, and the removal of those that a node left.
//!
//! Processes and mounts of a node end with its workload. Links, addresses, routes, rules, tables
//! and virtual services outlive the programs that made them: a released host would go on to answer
//! for an address of a cluster that it left. What cannot be removed here ends with a reboot.

mod devices;
mod ipvs;
mod items;
mod nftables;
mod request;

use std::collections::BTreeSet;

use netlink_packet_route::RouteNetlinkMessage;
use proto::size::bound_list;

use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::network::kernel::{change_kernel, dump_kernel};
use crate::state::before_node::{KernelItem, OwnItems};
pub use devices::NAMESPACES;

/// A removal may uncover another item: a rule, for example, may exist more than once.
const ROUNDS: usize = 4;

/// An item, and the request that removes it from the kernel.
struct Found {
    item: KernelItem,
    removal: Option<RouteNetlinkMessage>,
}

/// All items. A kernel without a part, as IPVS, has no items of it.
pub fn list_items(root: &Root) -> Result<BTreeSet<KernelItem>, Failure> {
    let network = items::list_found(&dump_kernel()?, request::list_rules()?);
    let mut found: BTreeSet<_> = network.into_iter().map(|found| found.item).collect();
    found.extend(nftables::list_tables());
    found.extend(ipvs::list_services(root));
    found.extend(devices::list_devices(root));
    Ok(found)
}

/// Removes what is not the host's own, as far as the kernel takes it. The caller looks again.
///
/// An address that carries the host's connections stays, with all routes: it came with the network
/// of a machine, and only a boot configures the host's own network again.
pub fn remove_foreign(root: &Root, own: &OwnItems) -> Result<(), Failure> {
    // Nothing is known to be the node's if nothing was recorded before it.
    if !own.is_recorded() {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        let dump = dump_kernel()?;
        let mut foreign = items::list_found(&dump, request::list_rules()?);
        foreign.retain(|found| !own.contains(&found.item));
        let staying = items::list_staying(&foreign, &dump);
        let mut removed = 0;
        for found in foreign {
            let is_kept = match &found.item {
                KernelItem::Address { .. } => staying.contains(&found.item),
                KernelItem::Route { .. } | KernelItem::Rule { .. } => !staying.is_empty(),
                _ => false,
            };
            let Some(removal) = found.removal.filter(|_| !is_kept) else { continue };
            match change_kernel(removal) {
                Ok(()) => removed += 1,
                // The removal of a link removes its addresses and routes.
                Err(error) => tracing::info!(item = %found.item, %error, "not removed from the kernel"),
            }
        }
        if removed == 0 {
            break;
        }
    }
    let tables = nftables::list_tables().into_iter().filter(|table| !own.contains(table));
    nftables::remove_tables(tables);
    if ipvs::list_services(root).iter().any(|service| !own.contains(service)) {
        ipvs::remove_services();
    }
    Ok(())
}

/// True if the kernel has this table of nftables.
pub fn has_filter_table(family: &str, name: &str) -> bool {
    nftables::list_tables().contains(&KernelItem::FilterTable(format!("{family} {name}")))
}

/// Names of the network namespaces that the node left. Their links end with them.
pub fn list_foreign_namespaces(root: &Root, own: &OwnItems) -> Vec<String> {
    let found = devices::list_namespaces(root).into_iter();
    let foreign = found.filter(|item| own.is_recorded() && !own.contains(item));
    foreign
        .filter_map(|item| if let KernelItem::Namespace(name) = item { Some(name) } else { None })
        .collect()
}

/// Most items in a statement.
const SHOWN: usize = 16;

/// Shows what a former node left in the kernel in this boot, bounded; `seen` is all that is there.
pub fn show_left(own: &OwnItems, seen: &BTreeSet<KernelItem>) -> Vec<String> {
    if !own.is_recorded() {
        return vec![
            "all of this boot, because what the host had before its node was not recorded".to_owned(),
        ];
    }
    let left = seen.iter().filter(|item| !own.contains(item)).map(ToString::to_string).collect();
    bound_list(left, SHOWN)
}

#[cfg(test)]
mod tests;
