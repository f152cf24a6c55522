//! Items that only a reboot removes, or the unmount of their name: devices of workload, namespaces,
//! pinned BPF programs, and tables of the older iptables.

use std::path::Path;

use crate::ground::paths::{Root, read_or_empty};
use crate::host::sysfs::{list_children, read_line};
use crate::state::before_node::KernelItem;

/// Directory of the namespaces that have a name.
pub const NAMESPACES: &str = "/run/netns";

pub(super) fn list_namespaces(root: &Root) -> Vec<KernelItem> {
    list_children(&root.join(NAMESPACES)).into_iter().map(KernelItem::Namespace).collect()
}

pub(super) fn list_devices(root: &Root) -> Vec<KernelItem> {
    let mut found = list_namespaces(root);
    found.extend(list_children(&root.join("/sys/fs/bpf")).into_iter().map(KernelItem::Program));
    for name in ["ip_tables_names", "ip6_tables_names"] {
        let text = read_or_empty(root.join("/proc/thread-self/net").join(name));
        let family = name.split('_').next().unwrap_or(name);
        found.extend(text.lines().map(|table| KernelItem::LegacyTable(format!("{family} {table}"))));
    }
    let blocks = root.join("/sys/class/block");
    found.extend(list_children(&blocks).iter().filter_map(|name| find_device(&blocks.join(name), name)));
    found
}

/// A device mapper by the name that its owner gave, as its number changes; a loop device of a file
/// of a pod, or of a file that was removed; a disk over the network.
fn find_device(block: &Path, name: &str) -> Option<KernelItem> {
    let line = |path: &str| read_line(&block.join(path));
    let shown = if name.starts_with("dm-") {
        format!("mapper {}", line("dm/name"))
    } else if name.starts_with("loop") {
        let file = line("loop/backing_file");
        let is_workload = file.starts_with("/var/lib/kubelet/") || file.ends_with("(deleted)");
        is_workload.then(|| format!("{name} of {file}"))?
    } else if ["nbd", "rbd", "drbd"].iter().any(|prefix| name.starts_with(prefix)) && line("size") != "0" {
        name.to_owned()
    } else {
        return None;
    };
    Some(KernelItem::Device(shown))
}
