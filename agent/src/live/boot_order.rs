//! Makes the firmware boot the installed disk. Only UEFI can be changed from
//! here; a BIOS keeps its own order.

use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::host::facts::disks::{self, Disk};
use crate::paths::Root;

const DEADLINE: Duration = Duration::from_secs(20);

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
pub async fn prefer_disk(root: &Root, disk: &Disk) -> BootOrder {
    if !root.join("/sys/firmware/efi/efivars").exists() {
        return BootOrder::LeftAlone;
    }
    let Some(listing) = run_efibootmgr(&["-v"]).await else {
        return BootOrder::LeftAlone;
    };
    match preferred_order(&listing, &partition_uuids(root, disk)) {
        None => BootOrder::LeftAlone,
        Some(Preferred::Already) => BootOrder::Unchanged,
        Some(Preferred::Order(order)) => match run_efibootmgr(&["-o", &order]).await {
            Some(_) => BootOrder::Set,
            None => BootOrder::LeftAlone,
        },
    }
}

async fn run_efibootmgr(arguments: &[&str]) -> Option<String> {
    let run = Command::new("efibootmgr").args(arguments).kill_on_drop(true).output();
    let output = timeout(DEADLINE, run).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn partition_uuids(root: &Root, disk: &Disk) -> Vec<String> {
    let uuid = |partition: &disks::Partition| {
        let record = disks::read_udev(root, &root.join("/sys/class/block").join(&partition.name));
        let uuid = disks::parse_udev(&record, "ID_PART_ENTRY_UUID");
        (!uuid.is_empty()).then(|| uuid.to_ascii_lowercase())
    };
    disk.partitions.iter().filter_map(uuid).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Preferred {
    Already,
    Order(String),
}

/// The order with the first entry of these partitions in front, in the words
/// of `efibootmgr -v`; nothing when there is no such entry.
fn preferred_order(listing: &str, partitions: &[String]) -> Option<Preferred> {
    let order: Vec<_> =
        listing.lines().find_map(|line| line.strip_prefix("BootOrder: "))?.trim().split(',').collect();
    let entry = listing.lines().find_map(|line| {
        let number = line.strip_prefix("Boot")?.get(..4)?;
        let known = number.chars().all(|c| c.is_ascii_hexdigit());
        let lower = line.to_ascii_lowercase();
        (known && partitions.iter().any(|uuid| lower.contains(uuid))).then_some(number)
    })?;
    if order.first() == Some(&entry) {
        return Some(Preferred::Already);
    }
    let rest = order.iter().copied().filter(|other| *other != entry);
    Some(Preferred::Order(std::iter::once(entry).chain(rest).collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_the_disk_comes_first() {
        let listing = |order: &str| {
            format!(
                "BootCurrent: 0001\nBootOrder: {order}\nBoot0001* UEFI DVD\tPciRoot(0x0)\nBoot0004* elemental-shim\tHD(1,GPT,AAAA-BB,0x800,0x20000)/File(\\EFI\\elemental\\shimx64.efi)\nBoot0005* other\tHD(1,GPT,cccc,0x800)\n"
            )
        };
        let ours = vec!["aaaa-bb".to_owned()];
        for (name, order, partitions, want) in [
            ("behind", "0001,0005,0004", ours.clone(), Some(Preferred::Order("0004,0001,0005".into()))),
            ("not in the order", "0001", ours.clone(), Some(Preferred::Order("0004,0001".into()))),
            ("in front", "0004,0001", ours, Some(Preferred::Already)),
            ("no entry", "0001", vec!["dddd".to_owned()], None),
            ("nothing known of the disk", "0001", vec![], None),
        ] {
            assert_eq!(preferred_order(&listing(order), &partitions), want, "{name}");
        }
        assert_eq!(preferred_order("", &["a".to_owned()]), None);
    }
}
