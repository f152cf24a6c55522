//! Disks that are built from other disks below the operating system: volumes of a firmware RAID
//! such as VROC, and multipath devices of a SAN.

use std::path::{Path, PathBuf};

use crate::ground::paths::Root;
use crate::host::sysfs::{list_children, read_line};

/// States in which an array accepts writes.
const WRITABLE: [&str; 5] = ["clean", "active", "active-idle", "write-pending", "read-auto"];

/// True if the firmware sees this stacked device as a disk. An array of Linux alone does not count,
/// because the firmware finds no boot loader on its parts.
pub(super) fn is_joined(directory: &Path) -> bool {
    is_firmware_volume(directory) || multipath(directory).is_some()
}

/// A volume inside a container; the container itself holds no data.
fn is_firmware_volume(directory: &Path) -> bool {
    read_line(&directory.join("md/metadata_version")).starts_with("external:/")
        && read_line(&directory.join("md/level")).starts_with("raid")
        && WRITABLE.contains(&read_line(&directory.join("md/array_state")).as_str())
}

/// UUID of a multipath device.
fn multipath(directory: &Path) -> Option<String> {
    Some(read_line(&directory.join("dm/uuid"))).filter(|uuid| uuid.starts_with("mpath-"))
}

/// Partitions of a multipath device, which are devices of their own.
pub(super) fn list_partitions(root: &Root, directory: &Path) -> Vec<(String, PathBuf)> {
    let Some(disk) = multipath(directory) else { return Vec::new() };
    let devices = root.join("/sys/block");
    let mut found: Vec<_> = list_children(&directory.join("holders"))
        .into_iter()
        .filter_map(|name| Some((partition_number(&devices.join(&name), &disk)?, name)))
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| (name.clone(), devices.join(name))).collect()
}

/// The number of a partition of the multipath device `disk`.
fn partition_number(partition: &Path, disk: &str) -> Option<u32> {
    let uuid = read_line(&partition.join("dm/uuid"));
    let (number, of) = uuid.strip_prefix("part")?.split_once('-')?;
    number.parse().ok().filter(|_| of == disk)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::disks::read_disks;
    use super::*;

    fn device(root: &Root, name: &str, files: &[(&str, &str)]) {
        root.put(&format!("/sys/block/{name}/size"), "2097152\n");
        for (file, text) in files {
            root.put(&format!("/sys/block/{name}/{file}"), text);
        }
    }

    #[test]
    fn only_writable_firmware_volumes_are_disks() {
        let volume = |version: &'static str, level: &'static str, state: &'static str| {
            [("md/metadata_version", version), ("md/level", level), ("md/array_state", state)]
        };
        for (name, files, want) in [
            ("VROC", volume("external:/md127/0\n", "raid1\n", "clean\n"), true),
            ("not written yet", volume("external:/md127/0\n", "raid1\n", "read-auto\n"), true),
            ("read-only", volume("external:/md127/0\n", "raid1\n", "readonly\n"), false),
            ("not started", volume("external:/md127/0\n", "raid1\n", "inactive\n"), false),
            ("its container", volume("external:imsm\n", "container\n", "inactive\n"), false),
            ("of Linux alone", volume("1.2\n", "raid1\n", "clean\n"), false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            device(&root, "md126", &files);
            assert_eq!(read_disks(&root).len(), usize::from(want), "{name}");
        }
    }

    #[test]
    fn multipath_volume_is_one_disk_with_partitions() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for leg in ["sda", "sdb"] {
            device(&root, leg, &[("holders/dm-0", "")]);
        }
        device(
            &root,
            "dm-0",
            &[("dm/uuid", "mpath-3600a\n"), ("dev", "253:0\n"), ("holders/dm-1", ""), ("holders/dm-2", "")],
        );
        device(&root, "dm-1", &[("dm/uuid", "part5-mpath-3600a\n"), ("dev", "253:1\n")]);
        device(&root, "dm-2", &[("dm/uuid", "LVM-x\n")]);
        root.put("/run/udev/data/b253:0", "E:DM_SERIAL=3600a\nE:DM_WWN=0x600a\n");
        root.put("/run/udev/data/b253:1", "E:ID_PART_ENTRY_NAME=persistent\n");
        fs::create_dir_all(root.join("/dev/disk/by-id")).unwrap();
        for link in ["wwn-0x600a", "dm-uuid-mpath-3600a"] {
            std::os::unix::fs::symlink("../../dm-0", root.join("/dev/disk/by-id").join(link)).unwrap();
        }
        let disks = read_disks(&root);
        let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["dm-0", "sda", "sdb"]);
        let joined = &disks[0];
        assert_eq!((joined.serial.as_str(), joined.wwn.as_str()), ("3600a", "0x600a"));
        assert_eq!(joined.persistent_partition().map(|part| part.name.as_str()), Some("dm-1"));
        assert_eq!(joined.holders, ["dm-2"], "a partition is no other use");
        assert_eq!(joined.stable_path(), Path::new("/dev/disk/by-id/dm-uuid-mpath-3600a"));
        assert!(disks[1].is_part_of(joined) && !joined.is_part_of(&disks[1]));
    }
}
