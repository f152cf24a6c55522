//! An entry of the firmware's boot manager for the boot loader on the EFI partition of a disk.

use crate::ground::paths::Root;
use crate::host::facts::disks::{Disk, Partition, parse_udev, read_udev};

/// The toolkit uses this name for its own entries.
const DESCRIPTION: &str = "elemental-shim";
/// `elemental install` also puts its boot loader where each firmware looks for one.
const LOADER: Option<&str> = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => Some("\\EFI\\BOOT\\BOOTX64.EFI"),
    b"aarch64" => Some("\\EFI\\BOOT\\BOOTAA64.EFI"),
    _ => None,
};
/// The firmware may boot the entry.
const ACTIVE: u32 = 1;
/// Type and subtype of the nodes of a device path.
const PARTITION: [u8; 2] = [4, 1];
const FILE: [u8; 2] = [4, 4];
const END: [u8; 4] = [0x7f, 0xff, 4, 0];
/// The partition table is a GPT, and the GUID identifies the partition.
const BY_GUID: [u8; 2] = [2, 2];

/// An EFI system partition, with the values of the partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EfiPartition {
    number: u32,
    /// Start in blocks of the disk.
    start: u64,
    blocks: u64,
    id: [u8; 16],
    loader: &'static str,
}

/// The EFI partition that Elemental made on `disk`; `None` if no boot loader is known for this
/// processor.
pub(super) fn find_partition(root: &Root, disk: &Disk) -> Option<EfiPartition> {
    let mut partitions = disk.partitions.iter();
    let partition =
        partitions.find(|partition| partition.file_system == "COS_GRUB" || partition.label == "efi")?;
    let record = read_record(root, partition);
    let number = parse_udev(&record, "ID_PART_ENTRY_NUMBER").parse().ok()?;
    let [start, blocks] = ["ID_PART_ENTRY_OFFSET", "ID_PART_ENTRY_SIZE"]
        .map(|key| parse_udev(&record, key).parse::<u64>().ok()?.checked_mul(512));
    // udev counts in units of 512 bytes, even if the blocks of the disk are larger.
    let size = root.join("/sys/block").join(&disk.name).join("queue/logical_block_size");
    let size: u64 =
        std::fs::read_to_string(size).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(512);
    Some(EfiPartition {
        number,
        start: start?.checked_div(size)?,
        blocks: blocks?.checked_div(size)?,
        id: read_id(root, partition)?,
        loader: LOADER?,
    })
}

/// The GUID of a partition, as UEFI stores it.
pub(super) fn read_id(root: &Root, partition: &Partition) -> Option<[u8; 16]> {
    parse_guid(&parse_udev(&read_record(root, partition), "ID_PART_ENTRY_UUID"))
}

fn read_record(root: &Root, partition: &Partition) -> String {
    read_udev(root, &root.join("/sys/class/block").join(&partition.name))
}

/// The bytes of a GUID as UEFI stores it: the first three groups are
/// little-endian.
pub(super) fn parse_guid(text: &str) -> Option<[u8; 16]> {
    let mut bytes: [u8; 16] = hex::decode(text.replace('-', "")).ok()?.try_into().ok()?;
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    Some(bytes)
}

impl EfiPartition {
    /// The value of the variable of an entry (UEFI, `EFI_LOAD_OPTION`).
    pub(super) fn load_option(&self) -> Vec<u8> {
        let partition = [
            &self.number.to_le_bytes()[..],
            &self.start.to_le_bytes(),
            &self.blocks.to_le_bytes(),
            &self.id,
            &BY_GUID,
        ];
        let mut path = build_node(PARTITION, &partition.concat());
        path.extend(build_node(FILE, &encode_text(self.loader)));
        path.extend(END);
        let length = u16::try_from(path.len()).unwrap_or(u16::MAX);
        let head = [&ACTIVE.to_le_bytes()[..], &length.to_le_bytes(), &encode_text(DESCRIPTION)];
        [head.concat(), path].concat()
    }
}

fn build_node(kind: [u8; 2], content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 4).unwrap_or(u16::MAX);
    [&kind[..], &length.to_le_bytes(), content].concat()
}

/// Encodes a text for UEFI: UTF-16 with a zero at the end.
fn encode_text(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// True if the variable, including its attributes, is an entry with this agent's name.
pub(super) fn is_ours(variable: &[u8]) -> bool {
    let before_description = 4 + 4 + 2;
    variable.get(before_description..).is_some_and(|rest| rest.starts_with(&encode_text(DESCRIPTION)))
}
