//! Data of a tenant that stays on a released host: in directories that no row of the table of
//! distributions names, and disks with content.
//!
//! Neither a clean nor a wipe touches them, because nothing tells whose they are. An operator who
//! lends the host again sees them in the status.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proto::size::bound_list;

use super::facts::disks::{Disk, look_at_disks};
use crate::ground::paths::Root;

/// Directories of storage and network plugins.
const PLUGINS: [&str; 8] = [
    "/opt/local-path-provisioner",
    "/var/lib/calico",
    "/var/lib/longhorn",
    "/var/lib/rook",
    "/var/lib/topolvm",
    "/var/local-path-provisioner",
    "/var/mnt",
    "/var/openebs",
];

/// Most entries in a statement.
const SHOWN: usize = 16;

/// Directories with content, and disks other than that of the system.
pub async fn list_left_behind(root: &Root) -> Vec<String> {
    join_left(root, &list_used_disks(root).await)
}

/// Disks other than that of the system, with their content. A dying disk is waited for.
pub async fn list_used_disks(root: &Root) -> Vec<String> {
    look_at_disks(root).await.iter().filter_map(describe_disk).collect()
}

/// Directories with content as they are now, and these disks.
pub fn join_left(root: &Root, disks: &[String]) -> Vec<String> {
    bound_list(list_directories(root).into_iter().chain(disks.iter().cloned()).collect(), SHOWN)
}

fn list_directories(root: &Root) -> Vec<String> {
    let found = PLUGINS.iter().filter(|path| has_content(&root.join(path)));
    found.map(|path| format!("directory {path}")).collect()
}

/// True for a directory that is not empty. Links lead elsewhere.
fn has_content(path: &Path) -> bool {
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    is_directory && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}

/// A disk with a signature or partitions; `None` for an empty one and for that of the system.
fn describe_disk(disk: &Disk) -> Option<String> {
    if !disk.elemental_labels().is_empty() || disk.persistent_partition().is_some() || disk.live_medium {
        return None;
    }
    let whole = disk.signature.iter().map(|signature| signature.kind.as_str());
    let parts = disk.partitions.iter().map(|partition| partition.signature.kind.as_str());
    let kinds: BTreeSet<_> = whole.chain(parts).filter(|kind| !kind.is_empty()).collect();
    if kinds.is_empty() && disk.partitions.is_empty() {
        return None;
    }
    let kinds: Vec<_> = kinds.into_iter().collect();
    let content = if kinds.is_empty() { "partitions".to_owned() } else { kinds.join(", ") };
    Some(format!("disk {} with {content}", disk.name_and_path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::facts::disks::{Partition, Signature};

    fn disk(name: &str, kind: &str, partitions: &[(&str, &str)]) -> Disk {
        let signature = |kind: &str| Signature { kind: kind.to_owned(), ..Signature::default() };
        let partition = |(label, kind): &(&str, &str)| Partition {
            file_system: (*label).to_owned(),
            signature: signature(kind),
            ..Partition::default()
        };
        Disk {
            name: name.to_owned(),
            signature: Some(signature(kind)),
            partitions: partitions.iter().map(partition).collect(),
            ..Disk::default()
        }
    }

    #[test]
    fn disks_with_content_are_listed() {
        for (disk, want) in [
            (disk("sda", "", &[("COS_STATE", "ext4"), ("COS_PERSISTENT", "ext4")]), None),
            (disk("sdb", "", &[]), None),
            (disk("sdc", "ceph_bluestore", &[]), Some("disk sdc = /dev/sdc with ceph_bluestore")),
            (
                disk("sdd", "", &[("", "LVM2_member"), ("", "ext4")]),
                Some("disk sdd = /dev/sdd with LVM2_member, ext4"),
            ),
            (disk("sde", "", &[("", "")]), Some("disk sde = /dev/sde with partitions")),
            (Disk { live_medium: true, ..disk("sdf", "iso9660", &[]) }, None),
        ] {
            assert_eq!(describe_disk(&disk).as_deref(), want, "{}", disk.name);
        }
    }

    #[tokio::test]
    async fn directories_of_tenants_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for path in [
            "opt/local-path-provisioner/pvc-1/f",
            "mnt/disks/a/f",
            "srv/f",
            "var/lib/kubelet/x",
            "opt/cni/bin/x",
        ] {
            root.put(path, "x");
        }
        fs::create_dir_all(root.join("/var/lib/longhorn")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("/var/openebs")).unwrap();
        let found = list_left_behind(&root).await;
        assert_eq!(found, ["directory /opt/local-path-provisioner"]);
        let disks: Vec<_> = (0..40).map(|number| format!("disk sd{number}")).collect();
        let found = join_left(&root, &disks);
        assert_eq!((found.len(), found.last().map(String::as_str)), (SHOWN, Some("26 more")));
    }
}
