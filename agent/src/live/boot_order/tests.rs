use super::entry::parse_guid;
use super::*;
use crate::host::facts::disks;

const OURS: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

fn firmware(order: &[u16], entries: &[(u16, &str)]) -> (tempfile::TempDir, Variables) {
    let directory = tempfile::tempdir().unwrap();
    let variables = Variables(directory.path().to_owned());
    let order = order.iter().flat_map(|entry| entry.to_le_bytes());
    fs::write(variables.path("BootOrder"), [7, 0, 0, 0].into_iter().chain(order).collect::<Vec<_>>())
        .unwrap();
    for (entry, partition) in entries {
        let mut option = b"\x07\0\0\0\x01\0\0\0\x5c\0e\0l\0\0\0\x04\x01\x2a\0".to_vec();
        option.extend(parse_guid(partition).unwrap());
        option.extend(b"\x02\x02\x7f\xff\x04\0");
        fs::write(variables.path(&format!("Boot{entry:04X}")), option).unwrap();
    }
    (directory, variables)
}

/// Name, order, entries, what is done, order after it.
type Case<'a> = (&'a str, &'a [u16], &'a [(u16, &'a str)], BootOrder, &'a [u16]);

#[test]
fn the_entry_of_the_disk_comes_first() {
    let other = "11111111-2222-3333-4444-555555555555";
    let cases: [Case<'_>; 5] = [
        ("behind", &[1, 5, 0x1a], &[(5, other), (0x1a, OURS)], BootOrder::Set, &[0x1a, 1, 5]),
        ("not in the order", &[1], &[(1, other), (4, OURS)], BootOrder::Set, &[4, 1]),
        ("in front", &[4, 1], &[(4, OURS)], BootOrder::Unchanged, &[4, 1]),
        ("the one in the order", &[1, 4], &[(2, OURS), (4, OURS)], BootOrder::Set, &[4, 1]),
        ("no entry", &[1, 2], &[(2, other)], BootOrder::LeftAlone, &[1, 2]),
    ];
    for (name, order, entries, want, after) in cases {
        let (_directory, variables) = firmware(order, entries);
        let done = variables.prefer_partitions(&[parse_guid(OURS).unwrap()]).unwrap();
        assert_eq!(done, want, "{name}");
        let stored = fs::read(variables.path("BootOrder")).unwrap();
        let after: Vec<_> = after.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        assert_eq!((&stored[..4], &stored[4..]), (&[7, 0, 0, 0][..], &after[..]), "{name}");
        let next = fs::read(variables.path("BootNext")).ok();
        let is_ours = want != BootOrder::LeftAlone;
        assert_eq!(next, is_ours.then(|| [&LASTING[..], &after[..2]].concat()), "{name}: BootNext");
    }
}

/// A host whose disk has an EFI partition; the firmware has these entries.
fn installed(order: Option<&[u16]>, entries: &[(u16, Vec<u8>)]) -> (tempfile::TempDir, Root, Disk) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let variable = |name: &str| format!("/sys/firmware/efi/efivars/{name}-{GLOBAL}");
    root.put(&variable("BootCurrent"), [6, 0, 0, 0, 1, 0]);
    if let Some(order) = order {
        let order: Vec<_> = order.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        root.put(&variable("BootOrder"), [&LASTING[..], &order].concat());
    }
    for (number, option) in entries {
        root.put(&variable(&format!("Boot{number:04X}")), option);
    }
    root.put("/sys/block/vda/queue/logical_block_size", b"4096\n");
    root.put("/sys/class/block/vda2/dev", b"252:2\n");
    let record = format!(
        "E:ID_PART_ENTRY_UUID={OURS}\nE:ID_PART_ENTRY_NUMBER=2\nE:ID_PART_ENTRY_OFFSET=4096\nE:ID_PART_ENTRY_SIZE=131072\n"
    );
    root.put("/run/udev/data/b252:2", record.as_bytes());
    let partition =
        disks::Partition { name: "vda2".into(), file_system: "COS_GRUB".into(), ..Default::default() };
    let disk = Disk { name: "vda".into(), partitions: vec![partition], ..Disk::default() };
    (directory, root, disk)
}

#[test]
fn a_missing_entry_is_made_and_preferred() {
    let of_another_install = |root: &Root, disk: &Disk| {
        let partition = entry::find_partition(root, disk).unwrap();
        let option = partition.load_option();
        let ours = option.windows(16).position(|part| part == parse_guid(OURS).unwrap()).unwrap();
        [&LASTING[..], &option[..ours], &[9; 16], &option[ours + 16..]].concat()
    };
    let (_directory, root, disk) = installed(None, &[]);
    let stale = of_another_install(&root, &disk);
    let other = b"\x07\0\0\0\x01\0\0\0\x04\0D\0V\0D\0\0\0\x7f\xff\x04\0".to_vec();
    for (name, order, entries, after) in [
        ("the first", None, vec![], &[0][..]),
        ("behind others", Some(&[0, 1][..]), vec![(0, other.clone()), (1, other.clone())], &[2, 0, 1]),
        ("in place of a stale one", Some(&[3, 1]), vec![(1, other), (3, stale)], &[3, 1]),
    ] {
        let (_directory, root, disk) = installed(order, &entries);
        let variables = Variables(root.join("/sys/firmware/efi/efivars"));
        let done = add_disk(&root, &disk);
        assert_eq!(
            done == BootOrder::Set,
            order.is_none_or(|order| order[0] != after[0]),
            "{name}: {done:?}"
        );
        let stored = fs::read(variables.path("BootOrder")).unwrap();
        let want: Vec<_> = after.iter().flat_map(|entry: &u16| entry.to_le_bytes()).collect();
        assert_eq!((&stored[..4], &stored[4..]), (&LASTING[..], &want[..]), "{name}");
        let made = fs::read(variables.entry_path(after[0])).unwrap();
        assert!(is_ours(&made), "{name}");
        assert_eq!(add_disk(&root, &disk), BootOrder::Unchanged, "{name}");
        assert_eq!(variables.list_entries().unwrap().len(), after.len(), "{name}: one entry");
    }
}

#[test]
fn entry_names_partition_and_boot_loader() {
    let (_directory, root, disk) = installed(None, &[]);
    let option = entry::find_partition(&root, &disk).unwrap().load_option();
    let (head, path) = option.split_at(4 + 2 + 2 * "elemental-shim\0".len());
    assert_eq!(head[..4], [1, 0, 0, 0], "active");
    assert_eq!(usize::from(u16::from_le_bytes([head[4], head[5]])), path.len());
    let (partition, file) = path.split_at(42);
    assert_eq!(partition[..8], [4, 1, 42, 0, 2, 0, 0, 0], "the second");
    assert_eq!(
        partition[8..24],
        [[0, 2, 0, 0, 0, 0, 0, 0], [0, 64, 0, 0, 0, 0, 0, 0]].concat(),
        "blocks of 4096"
    );
    assert_eq!(partition[24..], [&parse_guid(OURS).unwrap()[..], &[2, 2]].concat());
    let text: Vec<_> =
        file[4..file.len() - 4].as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
    assert!(String::from_utf16(&text).unwrap().starts_with("\\EFI\\BOOT\\BOOT"));
    assert_eq!(file[file.len() - 4..], [0x7f, 0xff, 4, 0]);
    assert_eq!(usize::from(file[2]), file.len() - 4);
}

#[test]
fn guids_are_stored_as_uefi_has_them() {
    let bytes = parse_guid(OURS).unwrap();
    assert_eq!(hex::encode(bytes), "28732ac11ff8d211ba4b00a0c93ec93b");
    assert_eq!(parse_guid("c12a7328"), None);
}

#[test]
fn refused_variables_are_named() {
    for (error, want) in [
        (nix::Error::ENOSPC, "no room"),
        (nix::Error::EROFS, "read-only"),
        (nix::Error::EPERM, "did not take its variables"),
    ] {
        let (_directory, root, _) = installed(Some(&[1]), &[]);
        let BootOrder::Failed(cause) = change_order(&root, |_| Err(error.into())) else { panic!("{error}") };
        assert!(cause.contains(want), "{cause}");
    }
    let (_directory, root, disk) = installed(Some(&[1]), &[]);
    fs::create_dir(Variables(root.join("/sys/firmware/efi/efivars")).path("BootNext")).unwrap();
    assert!(matches!(add_disk(&root, &disk), BootOrder::Failed(_)), "BootNext cannot be written");
}
