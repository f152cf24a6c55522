//! Makes the firmware boot the installed disk, through the variables in efivarfs. A BIOS keeps its
//! own order.

mod entry;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use self::entry::{EfiPartition, is_ours};
use crate::ground::paths::Root;
use crate::host::facts::disks::Disk;

/// The vendor GUID of the variables that UEFI defines.
const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// efivarfs puts the attributes of a variable before its value.
const ATTRIBUTES: usize = 4;
/// Attributes of a persistent variable that firmware and system can read.
const LASTING: [u8; ATTRIBUTES] = [7, 0, 0, 0];

/// The change of the boot order, for the console and the inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootOrder {
    /// The disk is first now, and at the next start.
    Set,
    /// The disk was first already. It is booted at the next start even if the firmware puts a
    /// medium in front of it.
    Unchanged,
    /// This firmware has no order that a system can change, or no entry fits.
    LeftAlone,
    /// The firmware did not take the change, for this reason.
    Failed(String),
}

impl std::fmt::Display for BootOrder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Set => formatter.write_str("the boot order was changed to boot it first"),
            Self::Unchanged => formatter.write_str("the firmware boots it first"),
            Self::LeftAlone => formatter.write_str("the firmware's boot order is as it was"),
            Self::Failed(cause) => write!(formatter, "the firmware's boot order is as it was: {cause}"),
        }
    }
}

/// Puts the entry of `disk` first in the firmware's boot order.
pub fn prefer_disk(root: &Root, disk: &Disk) -> BootOrder {
    change_order(root, |variables| variables.prefer_partitions(&partition_uuids(root, disk)))
}

/// Makes an entry for `disk` if there is none, and puts it first.
///
/// `elemental install` does not make the entry, because it would do so before the record of the
/// install is written. After a power cut in between, the firmware would boot a system without
/// identity (decision 60).
pub fn add_disk(root: &Root, disk: &Disk) -> BootOrder {
    change_order(root, |variables| {
        let partitions = partition_uuids(root, disk);
        let preferred = variables.prefer_partitions(&partitions)?;
        let partition = entry::find_partition(root, disk).filter(|_| preferred == BootOrder::LeftAlone);
        let Some(partition) = partition else { return Ok(preferred) };
        variables.write_entry(&partition)?;
        variables.prefer_partitions(&partitions)
    })
}

fn change_order(root: &Root, change: impl FnOnce(&Variables) -> io::Result<BootOrder>) -> BootOrder {
    let variables = Variables(root.join("/sys/firmware/efi/efivars"));
    if !variables.0.exists() {
        return BootOrder::LeftAlone;
    }
    change(&variables).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot change the firmware's boot order");
        BootOrder::Failed(describe_refusal(&error))
    })
}

fn describe_refusal(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "the firmware has no room for its variables".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "the firmware's variables are read-only (efivarfs)".to_owned(),
        _ => format!("the firmware did not take its variables: {error}"),
    }
}

fn partition_uuids(root: &Root, disk: &Disk) -> Vec<[u8; 16]> {
    disk.partitions.iter().filter_map(|partition| entry::read_id(root, partition)).collect()
}

/// The directory of an efivarfs.
struct Variables(PathBuf);

impl Variables {
    fn prefer_partitions(&self, partitions: &[[u8; 16]]) -> io::Result<BootOrder> {
        let path = self.path("BootOrder");
        let stored = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => LASTING.to_vec(),
            read => read?,
        };
        let (attributes, value) = stored.split_at_checked(ATTRIBUTES).ok_or(io::ErrorKind::InvalidData)?;
        let order: Vec<[u8; 2]> = value.as_chunks().0.to_vec();
        let Some(wanted) = self.find_entry(&order, partitions)? else {
            return Ok(BootOrder::LeftAlone);
        };
        // Firmware that sorts the order at each start, or that puts a virtual medium first, still
        // follows BootNext. It is deleted by the firmware when it is followed.
        let next = [&LASTING[..], &wanted].concat();
        let is_next = write_variable(&self.path("BootNext"), &next);
        if order.first() == Some(&wanted) {
            return is_next.map(|()| BootOrder::Unchanged);
        }
        let rest = order.into_iter().filter(|other| *other != wanted);
        let changed: Vec<_> = std::iter::once(wanted).chain(rest).flatten().collect();
        write_variable(&path, &[attributes, changed.as_slice()].concat())?;
        is_next.map(|()| BootOrder::Set)
    }

    /// Finds an entry whose device path names one of the partitions, preferably in the boot order,
    /// else the lowest one.
    fn find_entry(&self, order: &[[u8; 2]], partitions: &[[u8; 16]]) -> io::Result<Option<[u8; 2]>> {
        let all = self.list_entries()?.into_iter().map(u16::to_le_bytes);
        Ok(order.iter().copied().chain(all).find(|entry| self.names_partition(*entry, partitions)))
    }

    fn names_partition(&self, entry: [u8; 2], partitions: &[[u8; 16]]) -> bool {
        fs::read(self.entry_path(u16::from_le_bytes(entry))).is_ok_and(|option| {
            partitions.iter().any(|partition| option.windows(partition.len()).any(|part| part == partition))
        })
    }

    /// Replaces the entry of an earlier install, whose partition no longer exists, or takes the
    /// first free number.
    fn write_entry(&self, partition: &EfiPartition) -> io::Result<()> {
        let used = self.list_entries()?;
        let replaced = used
            .iter()
            .copied()
            .find(|number| fs::read(self.entry_path(*number)).is_ok_and(|read| is_ours(&read)));
        let number = replaced.or_else(|| (0..=u16::MAX).find(|number| !used.contains(number)));
        let number = number.ok_or(io::ErrorKind::StorageFull)?;
        write_variable(&self.entry_path(number), &[&LASTING[..], &partition.load_option()].concat())
    }

    fn list_entries(&self) -> io::Result<Vec<u16>> {
        let files = fs::read_dir(&self.0)?;
        let mut entries: Vec<_> =
            files.filter_map(|found| parse_entry(found.ok()?.file_name().to_str()?)).collect();
        entries.sort_unstable();
        Ok(entries)
    }

    fn entry_path(&self, number: u16) -> PathBuf {
        self.path(&format!("Boot{number:04X}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}-{GLOBAL}"))
    }
}

/// The number in the name of an entry's variable.
fn parse_entry(name: &str) -> Option<u16> {
    let number = name.strip_suffix(GLOBAL)?.strip_suffix('-')?.strip_prefix("Boot")?;
    u16::from_str_radix(number, 16).ok().filter(|_| number.len() == 4)
}

/// The kernel makes variables immutable to protect them from a stray `rm`, and accepts a value only
/// in one write.
fn write_variable(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Ok(readable) = fs::File::open(path)
        && let Ok(flags) = ioctl_getflags(&readable)
        && flags.contains(IFlags::IMMUTABLE)
    {
        ioctl_setflags(&readable, flags - IFlags::IMMUTABLE)?;
    }
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests;
