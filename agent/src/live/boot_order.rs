//! Makes the firmware boot the installed disk, by the variables that the kernel
//! shows in efivarfs. A BIOS keeps its own order.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::error::describe_error;
use crate::host::facts::disks::{self, Disk};
use crate::paths::Root;

/// The vendor of the variables that UEFI itself defines.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// efivarfs puts a variable's attributes before its value.
const ATTRIBUTES: usize = 4;

/// What became of the boot order, for the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootOrder {
    /// The disk comes first.
    Set,
    /// It came first already.
    Unchanged,
    /// This firmware cannot be changed, or no entry fits.
    LeftAlone,
}

impl std::fmt::Display for BootOrder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Set => "the boot order was changed to boot it first",
            Self::Unchanged => "the firmware boots it first",
            Self::LeftAlone => "the firmware's boot order is as it was",
        })
    }
}

/// Puts the entry of `disk` first in the firmware's boot order.
#[must_use]
pub fn prefer_disk(root: &Root, disk: &Disk) -> BootOrder {
    let variables = Variables(root.join("/sys/firmware/efi/efivars"));
    if !variables.0.exists() {
        return BootOrder::LeftAlone;
    }
    variables.prefer_partitions(&partition_uuids(root, disk)).unwrap_or_else(|error| {
        tracing::warn!(error = describe_error(&error), "cannot change the firmware's boot order");
        BootOrder::LeftAlone
    })
}

fn partition_uuids(root: &Root, disk: &Disk) -> Vec<[u8; 16]> {
    let uuid = |partition: &disks::Partition| {
        let directory = root.join("/sys/class/block").join(&partition.name);
        parse_guid(&disks::parse_udev(&disks::read_udev(root, &directory), "ID_PART_ENTRY_UUID"))
    };
    disk.partitions.iter().filter_map(uuid).collect()
}

/// The bytes of a GUID as UEFI stores it: the first three groups are
/// little-endian.
fn parse_guid(text: &str) -> Option<[u8; 16]> {
    let mut bytes: [u8; 16] = hex::decode(text.replace('-', "")).ok()?.try_into().ok()?;
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    Some(bytes)
}

/// The directory of an efivarfs.
struct Variables(PathBuf);

impl Variables {
    fn prefer_partitions(&self, partitions: &[[u8; 16]]) -> io::Result<BootOrder> {
        let path = self.path("BootOrder");
        let stored = fs::read(&path)?;
        let (attributes, value) = stored.split_at_checked(ATTRIBUTES).ok_or(io::ErrorKind::InvalidData)?;
        let order: Vec<[u8; 2]> = value.as_chunks().0.to_vec();
        let Some(wanted) = self.find_entry(&order, partitions)? else {
            return Ok(BootOrder::LeftAlone);
        };
        if order.first() == Some(&wanted) {
            return Ok(BootOrder::Unchanged);
        }
        let rest = order.into_iter().filter(|other| *other != wanted);
        let changed: Vec<_> = std::iter::once(wanted).chain(rest).flatten().collect();
        write_variable(&path, &[attributes, changed.as_slice()].concat())?;
        Ok(BootOrder::Set)
    }

    /// An entry whose device path names one of the partitions: of the boot
    /// order if possible, else the lowest one.
    fn find_entry(&self, order: &[[u8; 2]], partitions: &[[u8; 16]]) -> io::Result<Option<[u8; 2]>> {
        let names_partition = |entry: &[u8; 2]| {
            let name = format!("Boot{:04X}", u16::from_le_bytes(*entry));
            let option = fs::read(self.path(&name)).unwrap_or_default();
            partitions.iter().any(|partition| option.windows(partition.len()).any(|part| part == partition))
        };
        if let Some(entry) = order.iter().find(|entry| names_partition(entry)) {
            return Ok(Some(*entry));
        }
        let mut others: Vec<_> = fs::read_dir(&self.0)?
            .filter_map(|found| parse_entry(found.ok()?.file_name().to_str()?))
            .collect();
        others.sort_unstable();
        Ok(others.into_iter().map(u16::to_le_bytes).find(names_partition))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}-{GLOBAL}"))
    }
}

/// The number of a boot entry's variable.
fn parse_entry(name: &str) -> Option<u16> {
    let number = name.strip_suffix(GLOBAL)?.strip_suffix('-')?.strip_prefix("Boot")?;
    u16::from_str_radix(number, 16).ok().filter(|_| number.len() == 4)
}

/// The kernel marks variables immutable against a stray `rm`, and takes a value
/// in one write only.
fn write_variable(path: &Path, content: &[u8]) -> io::Result<()> {
    let readable = fs::File::open(path)?;
    if let Ok(flags) = ioctl_getflags(&readable)
        && flags.contains(IFlags::IMMUTABLE)
    {
        ioctl_setflags(&readable, flags - IFlags::IMMUTABLE)?;
    }
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }

    #[test]
    fn guids_are_stored_as_uefi_has_them() {
        let bytes = parse_guid(OURS).unwrap();
        assert_eq!(hex::encode(bytes), "28732ac11ff8d211ba4b00a0c93ec93b");
        assert_eq!(parse_guid("c12a7328"), None);
    }
}
