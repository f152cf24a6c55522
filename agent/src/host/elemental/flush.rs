//! Flushes the file systems of the host's own disks. `sync(2)` would also wait for all others, such
//! as volumes of an unreachable server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proto::distribution::KUBELET_STATE;

use crate::ground::durable;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::Root;

/// Flushes the root file system and the file systems of block devices, except volumes of pods.
pub(super) fn flush_disks(root: &Root) -> Result<(), Failure> {
    let path = root.join("/proc/self/mountinfo");
    let table = fs::read_to_string(&path).on("read", &path)?;
    let mut directories = vec![root.join("/")];
    directories.extend(list_mount_points(&table).into_iter().map(|path| root.join(path)));
    durable::flush_file_systems(&directories)
}

/// A mount point of each file system.
fn list_mount_points(table: &str) -> Vec<PathBuf> {
    let mut by_device = BTreeMap::new();
    for line in table.lines() {
        let Some((mount, source)) = line.split_once(" - ") else { continue };
        let fields: Vec<_> = mount.split(' ').collect();
        let (Some(device), Some(point)) = (fields.get(2), fields.get(4)) else { continue };
        let is_disk = source.split(' ').nth(1).is_some_and(|source| source.starts_with("/dev/"));
        let below_kubelet = Path::new(point).strip_prefix(KUBELET_STATE);
        let is_volume =
            below_kubelet.is_ok_and(|below| below.starts_with("pods") || below.starts_with("plugins"));
        // The kernel escapes special characters, and no path of this host has any.
        if is_disk && !is_volume && !point.contains('\\') {
            by_device.entry((*device).to_owned()).or_insert_with(|| PathBuf::from(point));
        }
    }
    by_device.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_disks_are_flushed() {
        let table = "\
22 1 0:20 / / rw - overlay overlay rw
23 22 8:3 / /run/initramfs/elemental-state ro - ext4 /dev/sda3 rw
24 22 8:2 / /oem rw - ext4 /dev/sda2 rw
25 22 8:5 /.state/kubelet /var/lib/kubelet rw shared:3 - ext4 /dev/sda5 rw
26 22 8:5 /.state/etcd /var/lib/etcd rw shared:3 master:1 - ext4 /dev/sda5 rw
27 22 8:1 / /boot/efi rw - vfat /dev/sda1 rw
28 25 8:64 / /var/lib/kubelet/pods/a/volumes/x rw - ext4 /dev/sde rw
29 22 0:50 / /mnt rw - nfs4 server:/export rw
30 22 0:51 / /run rw - tmpfs tmpfs rw
";
        let want = ["/boot/efi", "/oem", "/run/initramfs/elemental-state", "/var/lib/kubelet"];
        assert_eq!(list_mount_points(table), want.map(PathBuf::from));
    }
}
