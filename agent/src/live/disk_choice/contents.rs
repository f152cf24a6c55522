//! The content of a disk, and its meaning for an install.

use crate::host::facts::disks::{Disk, Partition, Signature};

/// Names that Elemental gives to partitions. An interrupted install leaves them without file
/// systems.
const ELEMENTAL_PARTITIONS: [&str; 7] =
    ["bios", "bootloader", "efi", "oem", "persistent", "recovery", "state"];
/// Types of members that udev neither counts to RAID nor calls a member.
const MEMBERS: [&str; 3] = ["bcache", "ceph_bluestore", "stratis"];

/// The reason for which a disk is never chosen, even if it is named: other devices are built on it,
/// or would be if their other parts were present.
pub(super) fn describe_exclusion(disk: &Disk) -> Option<String> {
    if !disk.holders.is_empty() {
        return Some(format!("in use by {}", disk.holders.join(", ")));
    }
    let parts = disk.partitions.iter().map(|partition| (&partition.name, &partition.signature));
    let found = disk.signature.iter().map(|signature| (&disk.name, signature)).chain(parts);
    let members: Vec<_> = found
        .filter(|(_, signature)| is_member(signature))
        .map(|(name, signature)| format!("{name} is a part of something larger ({})", signature.kind))
        .collect();
    (!members.is_empty()).then(|| members.join(", "))
}

fn is_member(signature: &Signature) -> bool {
    signature.usage == "raid"
        || signature.kind.ends_with("_member")
        || MEMBERS.contains(&signature.kind.as_str())
}

/// The content of a disk that is neither empty nor Elemental's: a file system on the whole disk, an
/// unreadable partition table, or a partition that Elemental would not have made. An empty GPT or
/// MBR does not count.
pub(super) fn describe_foreign(disk: &Disk) -> Option<String> {
    let unknown = disk.signature.is_none().then(|| "udev does not know what is on it".to_owned());
    let found: Vec<_> = unknown.into_iter().chain(list_foreign(disk)).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

/// True if the disk has content that an install of Elemental does not replace by itself.
pub(super) fn is_used(disk: &Disk) -> bool {
    describe_exclusion(disk).is_some() || !list_foreign(disk).is_empty()
}

fn list_foreign(disk: &Disk) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(signature) = disk.signature.as_ref().filter(|signature| !signature.kind.is_empty()) {
        found.push(format!("{} on the whole disk", signature.kind));
    }
    if !matches!(disk.table.as_str(), "" | "gpt" | "dos") {
        found.push(format!("a partition table of type {}", disk.table));
    }
    let partitions = disk.partitions.iter().filter(|partition| !is_elemental(partition));
    found.extend(partitions.map(describe_partition));
    found
}

fn is_elemental(partition: &Partition) -> bool {
    let is_empty = partition.signature.kind.is_empty() && partition.file_system.is_empty();
    let is_named = ELEMENTAL_PARTITIONS.contains(&partition.label.as_str());
    (is_empty && is_named)
        || (partition.file_system.starts_with("COS_") && partition.file_system != "COS_LIVE")
}

fn describe_partition(partition: &Partition) -> String {
    let Partition { name, label, file_system, signature } = partition;
    let kind = if signature.kind.is_empty() { "something unknown" } else { &signature.kind };
    let labels: Vec<_> =
        [label, file_system].into_iter().filter(|label| !label.is_empty()).map(String::as_str).collect();
    match labels.as_slice() {
        [] => format!("{kind} on {name}"),
        labels => format!("{kind} on {name} ({})", labels.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(kind: &str, usage: &str) -> Signature {
        Signature { kind: kind.to_owned(), usage: usage.to_owned() }
    }

    fn disk(kind: &str, usage: &str) -> Disk {
        let name = "sda".to_owned();
        Disk { name, signature: Some(signature(kind, usage)), ..Disk::default() }
    }

    fn with_partition(label: &str, file_system: &str, kind: &str, usage: &str) -> Disk {
        let (name, label, file_system) = ("sda1".to_owned(), label.to_owned(), file_system.to_owned());
        let partition = Partition { name, label, file_system, signature: signature(kind, usage) };
        Disk { table: "gpt".to_owned(), partitions: vec![partition], ..disk("", "") }
    }

    #[test]
    fn parts_of_something_larger_are_excluded() {
        let held = Disk { holders: vec!["md127".to_owned()], ..disk("", "") };
        for (name, disk, want) in [
            ("empty", disk("", ""), None),
            ("a file system", disk("ext4", "filesystem"), None),
            ("held", held, Some("in use by md127")),
            ("md", disk("linux_raid_member", "raid"), Some("linux_raid_member")),
            ("firmware RAID", disk("isw_raid_member", "raid"), Some("isw_raid_member")),
            ("DRBD", disk("drbd", "raid"), Some("drbd")),
            ("multipath", disk("mpath_member", ""), Some("mpath_member")),
            ("LVM on a partition", with_partition("", "", "LVM2_member", "raid"), Some("sda1 is a part")),
            (
                "ZFS on a partition",
                with_partition("zfs-1", "tank", "zfs_member", "filesystem"),
                Some("zfs_member"),
            ),
            ("Ceph", disk("ceph_bluestore", "other"), Some("ceph_bluestore")),
        ] {
            let found = describe_exclusion(&disk);
            assert_eq!(found.is_some(), want.is_some(), "{name}: {found:?}");
            assert!(found.unwrap_or_default().contains(want.unwrap_or_default()), "{name}");
        }
    }

    #[test]
    fn other_contents_than_elementals_are_foreign() {
        let table = |table: &str| Disk { table: table.to_owned(), ..disk("", "") };
        for (name, disk, want) in [
            ("empty", disk("", ""), None),
            ("an empty table", table("gpt"), None),
            ("a table that is not read", table("sun"), Some("type sun")),
            ("not probed", Disk { signature: None, ..disk("", "") }, Some("udev does not know")),
            ("a file system on the disk", disk("xfs", "filesystem"), Some("xfs on the whole disk")),
            ("Elemental's", with_partition("state", "COS_STATE", "ext4", "filesystem"), None),
            ("Elemental's by label", with_partition("", "COS_STATE", "ext4", "filesystem"), None),
            ("a cut-off install", with_partition("persistent", "", "", ""), None),
            (
                "a name of Elemental, another file system",
                with_partition("state", "DATA", "ext4", "filesystem"),
                Some("ext4 on sda1 (state, DATA)"),
            ),
            ("the live image", with_partition("", "COS_LIVE", "iso9660", "filesystem"), Some("iso9660")),
            ("another system", with_partition("", "", "ext4", "filesystem"), Some("ext4 on sda1")),
            ("no signature", with_partition("data", "", "", ""), Some("something unknown on sda1 (data)")),
            ("encrypted", with_partition("", "", "crypto_LUKS", "crypto"), Some("crypto_LUKS")),
        ] {
            let found = describe_foreign(&disk);
            assert_eq!(found.is_some(), want.is_some(), "{name}: {found:?}");
            assert!(
                found.clone().unwrap_or_default().contains(want.unwrap_or_default()),
                "{name}: {found:?}"
            );
        }
    }
}
