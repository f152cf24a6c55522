use super::*;

#[test]
fn file_system_labels_are_read() {
    let with = |parts: &[(usize, &[u8])]| {
        let mut bytes = vec![0; SUPERBLOCK];
        for (at, part) in parts {
            bytes[*at..*at + part.len()].copy_from_slice(part);
        }
        bytes
    };
    for (name, bytes, want) in [
        ("ext", with(&[(0x438, &[0x53, 0xef]), (0x478, b"COS_PERSISTENT")]), "COS_PERSISTENT"),
        ("FAT32", with(&[(0x52, b"FAT32   "), (0x47, b"COS_GRUB   ")]), "COS_GRUB"),
        ("FAT16", with(&[(0x36, b"FAT16   "), (0x2b, b"COS_GRUB   ")]), "COS_GRUB"),
        ("nothing", with(&[]), ""),
        ("too short", vec![0; 10], ""),
    ] {
        assert_eq!(parse_label(&bytes), want, "{name}");
    }
}

#[test]
fn live_medium_device_is_found_in_mounts() {
    let mounts = "22 1 0:5 / /dev rw - devtmpfs devtmpfs rw\n30 1 8:17 / /run/initramfs/live ro - iso9660 /dev/sdb1 ro\n";
    assert_eq!(parse_mounted_device(mounts, LIVE_MOUNT).as_deref(), Some("8:17"));
    assert_eq!(parse_mounted_device(mounts, "/nowhere"), None);
}

#[test]
fn disks_are_told_with_all_that_identifies_them() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    for name in
        ["loop0", "sr0", "dm-0", "zram0", "nbd0", "fd0", "zd0", "bcache0", "mmcblk0boot0", "mmcblk0rpmb"]
    {
        root.put(&format!("/sys/block/{name}/size"), "100\n");
    }
    root.put("/sys/block/sda/size", "2097152\n");
    root.put("/sys/block/sda/dev", "8:0\n");
    root.put("/sys/block/sda/removable", "0\n");
    root.put("/sys/block/sda/queue/rotational", "1\n");
    root.put("/sys/block/sda/device/model", "Disk One   \n");
    root.put("/sys/block/sda/sda5/partition", "5\n");
    root.put("/sys/block/sda/sda5/uevent", "DEVTYPE=partition\nPARTNAME=persistent\n");
    root.put(
        "/run/udev/data/b8:0",
        "I:1\nE:ID_SERIAL=Disk_One_S1\nE:ID_SERIAL_SHORT=S1\nE:ID_WWN=0x5000c500\n",
    );
    root.put("/sys/block/sdb/size", "1000\n");
    root.put("/sys/block/sdb/removable", "1\n");
    root.put("/sys/block/sdb/sdb1/partition", "1\n");
    root.put("/sys/block/sdb/sdb1/dev", "8:17\n");
    root.put("/proc/self/mountinfo", "30 1 8:17 / /run/initramfs/live ro - iso9660 /dev/sdb1 ro\n");
    root.put("/sys/block/sdc/size", "0\n");
    fs::create_dir_all(root.join("/dev/disk/by-id")).unwrap();
    std::os::unix::fs::symlink("../../sda", root.join("/dev/disk/by-id/wwn-0x5000c500")).unwrap();
    let disks = read_disks(&root);
    let [one, medium] = disks.as_slice() else { panic!("{disks:?}") };
    assert_eq!(
        one,
        &Disk {
            name: "sda".into(),
            size_bytes: 1 << 30,
            model: "Disk One".into(),
            serial: "S1".into(),
            wwn: "0x5000c500".into(),
            rotational: true,
            removable: false,
            state: DiskState::Writable,
            other_paths: vec![],
            links: vec!["/dev/disk/by-id/wwn-0x5000c500".into()],
            live_medium: false,
            holders: vec![],
            table: String::new(),
            signature: Some(Signature::default()),
            partitions: vec![Partition {
                name: "sda5".into(),
                label: "persistent".into(),
                file_system: String::new(),
                signature: Signature::default(),
            }],
        }
    );
    assert!(medium.live_medium && medium.removable);
    assert!(one.persistent_partition().is_some());
}

#[test]
fn udev_is_fallback_for_partition_names_and_labels() {
    let mut ext = vec![0; SUPERBLOCK];
    ext[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    ext[0x478..0x478 + 9].copy_from_slice(b"COS_STATE");
    let named = "E:ID_PART_ENTRY_NAME=persistent\n";
    let labelled = "E:ID_FS_TYPE=btrfs\nE:ID_FS_LABEL=COS_PERSISTENT\n";
    for (name, uevent, udev, superblock, want, is_persistent) in [
        ("kernel", "PARTNAME=persistent\n", "", vec![], ("persistent", ""), true),
        ("kernel before udev", "PARTNAME=state\n", named, vec![], ("state", ""), false),
        ("udev", "DEVTYPE=partition\n", named, vec![], ("persistent", ""), true),
        ("label of udev", "", labelled, vec![], ("", "COS_PERSISTENT"), true),
        ("superblock before udev", "", labelled, ext, ("", "COS_STATE"), false),
        ("neither", "", "", vec![], ("", ""), false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        root.put("/sys/block/sda/size", "2097152\n");
        root.put("/sys/block/sda/sda5/partition", "5\n");
        root.put("/sys/block/sda/sda5/dev", "8:5\n");
        root.put("/sys/block/sda/sda5/uevent", uevent);
        root.put("/run/udev/data/b8:5", udev);
        root.put("/dev/sda5", superblock);
        let disks = read_disks(&root);
        let partition = &disks[0].partitions[0];
        assert_eq!((partition.label.as_str(), partition.file_system.as_str()), want, "{name}");
        assert_eq!(disks[0].persistent_partition().is_some(), is_persistent, "{name}");
    }
}

#[test]
fn what_is_built_on_a_disk_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    for (name, number) in [("sda", "8:0"), ("sda/sda1", "8:1")] {
        root.put(&format!("/sys/block/{name}/dev"), number);
    }
    root.put("/sys/block/sda/size", "2097152\n");
    root.put("/sys/block/sda/holders/md0/size", "");
    root.put("/sys/block/sda/sda1/partition", "1\n");
    root.put("/sys/block/sda/sda1/holders/dm-0/size", "");
    root.put("/run/udev/data/b8:0", "E:ID_PART_TABLE_TYPE=gpt\n");
    root.put("/run/udev/data/b8:1", "E:ID_FS_TYPE=LVM2_member\nE:ID_FS_USAGE=raid\n");
    // A path of an NVMe disk that the kernel joined with another.
    root.put("/sys/block/nvme0c0n1/size", "2097152\n");
    root.put("/sys/block/nvme0c0n1/hidden", "1\n");
    let disks = read_disks(&root);
    let [disk] = disks.as_slice() else { panic!("{disks:?}") };
    assert_eq!(
        (disk.holders.as_slice(), disk.table.as_str()),
        (&["md0".to_owned(), "dm-0".to_owned()][..], "gpt")
    );
    assert_eq!(disk.signature, Some(Signature::default()));
    let member = Signature { kind: "LVM2_member".into(), usage: "raid".into() };
    assert_eq!(disk.partitions[0].signature, member);
}

#[test]
fn a_disk_is_the_same_by_its_identifiers() {
    let disk = |name: &str, wwn: &str, serial: &str, size_bytes| Disk {
        name: name.into(),
        wwn: wwn.into(),
        serial: serial.into(),
        size_bytes,
        ..Disk::default()
    };
    let first = disk("sda", "0x5", "S1", 100);
    for (name, first, second, want) in [
        ("renamed", &first, disk("sdb", "0x5", "S1", 100), true),
        ("another WWN", &first, disk("sda", "0x6", "S1", 100), false),
        ("another serial number", &first, disk("sda", "0x5", "S2", 100), false),
        ("another size", &first, disk("sda", "0x5", "S1", 200), false),
        ("no identifiers", &disk("vda", "", "", 100), disk("vda", "", "", 100), true),
        ("no identifiers, another name", &disk("vda", "", "", 100), disk("vdb", "", "", 100), false),
    ] {
        assert_eq!(first.is_same(&second), want, "{name}");
    }
}

#[test]
fn a_write_protected_disk_is_marked() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    for (name, ro) in [("mmcblk0", "0\n"), ("sda", "1\n")] {
        root.put(&format!("/sys/block/{name}/size"), "2097152\n");
        root.put(&format!("/sys/block/{name}/ro"), ro);
    }
    let disks: Vec<_> = read_disks(&root).into_iter().map(|disk| (disk.name, disk.state)).collect();
    let want = [("mmcblk0", DiskState::Writable), ("sda", DiskState::ReadOnly)];
    assert_eq!(disks, want.map(|(name, state)| (name.to_owned(), state)));
}

#[test]
fn only_the_wwn_leaves_it_open() {
    let disk = |wwn: &str, serial: &str| Disk { wwn: wwn.into(), serial: serial.into(), ..Disk::default() };
    for (name, first, second, want) in [
        ("another serial number", disk("0x5", "S1"), disk("0x5", "S2"), true),
        ("the same", disk("0x5", "S1"), disk("0x5", "S1"), false),
        ("another WWN", disk("0x5", "S1"), disk("0x6", "S1"), false),
        ("no WWN", disk("", "S1"), disk("", "S2"), false),
    ] {
        assert_eq!(first.may_be(&second), want, "{name}");
    }
}

#[test]
fn stable_paths_are_preferred() {
    for (links, want) in [
        (&[][..], "/dev/sda"),
        (&["/dev/disk/by-path/pci-1"], "/dev/sda"),
        (&["/dev/disk/by-id/ata-x", "/dev/disk/by-path/pci-1"], "/dev/disk/by-id/ata-x"),
        (&["/dev/disk/by-id/ata-x", "/dev/disk/by-id/wwn-0x5"], "/dev/disk/by-id/wwn-0x5"),
    ] {
        let links = links.iter().map(ToString::to_string).collect();
        let disk = Disk { name: "sda".into(), links, ..Disk::default() };
        assert_eq!(disk.stable_path(), Path::new(want));
    }
}
