//! Joins the paths to one disk that the live system sees as several devices: a volume of a SAN, or a
//! disk with two ports. A live system without multipathd has no device above them.

use super::disks::Disk;

/// Disks with one WWN, serial number and size become one disk. The order stays.
pub(super) fn join_paths(disks: Vec<Disk>) -> Vec<Disk> {
    let mut joined: Vec<Disk> = Vec::with_capacity(disks.len());
    for disk in disks {
        match joined.iter_mut().find(|known| is_path_of(known, &disk)) {
            Some(known) => add_path(known, disk),
            None => joined.push(disk),
        }
    }
    joined
}

/// A device that the kernel built from paths is not a path, although it has their identifiers.
fn is_path_of(known: &Disk, disk: &Disk) -> bool {
    let is_path = |disk: &Disk| !disk.name.starts_with("dm-") && !disk.name.starts_with("md");
    let is_identified = !disk.wwn.is_empty() && !disk.serial.is_empty();
    is_identified && is_path(known) && is_path(disk) && known.is_same(disk)
}

fn add_path(known: &mut Disk, disk: Disk) {
    let is_better = link_rank(&disk) < link_rank(known);
    let (first, second) = if is_better { (disk, known.clone()) } else { (known.clone(), disk) };
    *known = first;
    known.removable |= second.removable;
    known.live_medium |= second.live_medium;
    known.links.extend(second.links);
    let holders = second.holders.into_iter().filter(|holder| !known.holders.contains(holder));
    let holders: Vec<_> = holders.collect();
    known.holders.extend(holders);
    known.other_paths.push(second.name);
    known.other_paths.extend(second.other_paths);
    known.other_paths.sort();
}

/// The path to which the stable link leads is the first one, because the install writes by the link
/// and the kernel shows the new partitions there.
fn link_rank(disk: &Disk) -> usize {
    let starts = ["/dev/disk/by-id/wwn-", "/dev/disk/by-id/", ""];
    let has_link = |start: &&str| start.is_empty() || disk.links.iter().any(|link| link.starts_with(*start));
    starts.iter().position(has_link).unwrap_or(starts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str, identifiers: (&str, &str, u64), links: &[&str]) -> Disk {
        let (wwn, serial, size_bytes) = identifiers;
        Disk {
            name: name.to_owned(),
            wwn: wwn.to_owned(),
            serial: serial.to_owned(),
            size_bytes,
            links: links.iter().map(ToString::to_string).collect(),
            ..Disk::default()
        }
    }

    #[test]
    fn paths_with_equal_identifiers_are_one_disk() {
        let one = ("0x5", "S1", 100);
        for (name, second, want) in [
            ("two paths", path("sdb", one, &[]), 1),
            ("another size", path("sdb", ("0x5", "S1", 200), &[]), 2),
            ("another serial number", path("sdb", ("0x5", "S2", 100), &[]), 2),
            ("another WWN", path("sdb", ("0x6", "S1", 100), &[]), 2),
            ("the device above them", path("dm-0", one, &[]), 2),
        ] {
            assert_eq!(join_paths(vec![path("sda", one, &[]), second]).len(), want, "{name}");
        }
        for identifiers in [("", "S1", 100), ("0x5", "", 100), ("", "", 100)] {
            let two = vec![path("sda", identifiers, &[]), path("sdb", identifiers, &[])];
            assert_eq!(join_paths(two).len(), 2, "{identifiers:?} do not identify a disk");
        }
    }

    #[test]
    fn path_of_stable_link_comes_first() {
        let one = ("0x5", "S1", 100);
        let disks = vec![
            Disk { holders: vec!["dm-0".to_owned()], ..path("sda", one, &["/dev/disk/by-path/pci-1"]) },
            path("sdb", one, &["/dev/disk/by-id/scsi-S1"]),
            Disk { live_medium: true, ..path("sdc", one, &["/dev/disk/by-id/wwn-0x5"]) },
        ];
        let joined = join_paths(disks);
        let [disk] = joined.as_slice() else { panic!("{joined:?}") };
        assert_eq!(
            (disk.name.as_str(), disk.stable_path().to_str()),
            ("sdc", Some("/dev/disk/by-id/wwn-0x5"))
        );
        assert_eq!(disk.other_paths, ["sda", "sdb"]);
        assert!(disk.has_name("sda") && !disk.has_name("sdd"));
        assert!(disk.live_medium && disk.holders == ["dm-0"], "{disk:?}");
        assert_eq!(disk.name_and_path(), "sdc and sda and sdb = /dev/disk/by-id/wwn-0x5");
    }
}
