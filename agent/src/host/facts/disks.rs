//! Whole disks, from `/sys/block`, udev's database and `/dev/disk`.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use proto::v1alpha1 as wire;
use serde::Serialize;

use super::probe::{Answer, read_start};
use super::{disk_paths, joined_disks};
use crate::ground::paths::{Root, read_or_empty};
use crate::host::sysfs::{list_children, read_line};

/// Mount point of the live medium.
const LIVE_MOUNT: &str = "/run/initramfs/live";
/// Prefixes of devices that are no disks: memory, loops, optical and floppy drives, and devices
/// stacked on disks or on the network, except for [`joined_disks`].
const NOT_DISKS: [&str; 14] =
    ["loop", "ram", "zram", "sr", "dm-", "md", "nbd", "fd", "mtd", "zd", "drbd", "rbd", "bcache", "ublkb"];
const SECTOR: u64 = 512;
/// The size covers the labels of ext and FAT file systems.
const SUPERBLOCK: usize = 2048;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Kernel name without `/dev/`.
    pub name: String,
    /// Kernel names of further paths to the same disk.
    pub other_paths: Vec<String>,
    pub size_bytes: u64,
    pub model: String,
    pub serial: String,
    /// World wide name as udev writes it, `0x5000…` or `eui.…`.
    pub wwn: String,
    pub rotational: bool,
    /// The disk can be pulled out.
    pub removable: bool,
    pub state: DiskState,
    /// Stable links: `/dev/disk/by-id/…`, `/dev/disk/by-path/…`.
    pub links: Vec<String>,
    /// The live system runs from this disk.
    pub live_medium: bool,
    /// Devices that are built on the disk or on its partitions: md, LVM, multipath.
    pub holders: Vec<String>,
    /// Type of the partition table.
    pub table: String,
    /// The content of the disk as a whole; `None` if udev does not know the disk.
    pub signature: Option<Signature>,
    /// Sorted by name.
    pub partitions: Vec<Partition>,
}

/// The use that the live system can make of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskState {
    #[default]
    Writable,
    /// The disk is write-protected.
    ReadOnly,
    /// The disk did not answer a read within its deadline.
    Silent,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// Kernel name without `/dev/`.
    pub name: String,
    /// The name in the partition table.
    pub label: String,
    /// Label of the file system.
    pub file_system: String,
    pub signature: Signature,
}

/// The content that udev found on a device; empty if it found nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// For example `ext4` or `LVM2_member`.
    pub kind: String,
    /// For example `filesystem` or `raid`.
    pub usage: String,
}

impl Signature {
    fn parse(record: &str) -> Self {
        Self { kind: parse_udev(record, "ID_FS_TYPE"), usage: parse_udev(record, "ID_FS_USAGE") }
    }
}

impl Disk {
    pub fn device_path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// A path that leads to this disk after a restart too, if there is one: by WWN, else by another
    /// identifier.
    pub fn stable_path(&self) -> PathBuf {
        // Each path of a SAN has the WWN of the volume, so the multipath device is preferred.
        let prefixes = ["/dev/disk/by-id/dm-uuid-", "/dev/disk/by-id/wwn-", "/dev/disk/by-id/"];
        let mut preferred =
            prefixes.iter().filter_map(|prefix| self.links.iter().find(|link| link.starts_with(prefix)));
        preferred.next().map_or_else(|| self.device_path(), PathBuf::from)
    }

    /// The kernel names of all paths to the disk.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.other_paths).map(String::as_str)
    }

    /// True if the kernel name is that of a path to this disk.
    pub fn has_name(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// The kernel names and the stable path, for messages.
    pub fn name_and_path(&self) -> String {
        let names: Vec<_> = self.names().collect();
        format!("{} = {}", names.join(" and "), self.stable_path().display())
    }

    /// True if both are one disk: by WWN, serial number and size, and by kernel name if the disk
    /// has neither WWN nor serial number.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_identified = !self.wwn.is_empty() || !self.serial.is_empty();
        self.identifiers() == other.identifiers() && (is_identified || self.name == other.name)
    }

    fn identifiers(&self) -> (&str, &str, u64) {
        (&self.wwn, &self.serial, self.size_bytes)
    }

    /// True if both have one WWN and yet differ, so that they may be two disks or two paths to one.
    pub fn may_be(&self, other: &Self) -> bool {
        !self.wwn.is_empty() && self.wwn == other.wwn && !self.is_same(other)
    }

    /// The partition that Elemental calls persistent: by its name in the partition table, else by
    /// the label of its file system.
    pub fn persistent_partition(&self) -> Option<&Partition> {
        let named = self.partitions.iter().find(|partition| partition.label == "persistent");
        named.or_else(|| self.partitions.iter().find(|partition| partition.file_system == "COS_PERSISTENT"))
    }

    /// True if this disk is a part of `other`, a RAID volume or a multipath device.
    pub fn is_part_of(&self, other: &Self) -> bool {
        self.holders.contains(&other.name)
    }

    /// Labels of Elemental's file systems on the disk.
    pub fn elemental_labels(&self) -> Vec<&str> {
        let labels = self.partitions.iter().map(|partition| partition.file_system.as_str());
        labels.filter(|label| label.starts_with("COS_") && *label != "COS_LIVE").collect()
    }
}

/// The type of the controller, derived from the kernel name of the disk.
fn controller(name: &str) -> &'static str {
    let controllers = [
        ("md", "RAID"),
        ("dm-", "multipath"),
        ("nvme", "NVMe"),
        ("sd", "SCSI"),
        ("vd", "virtio"),
        ("mmcblk", "MMC"),
        ("xvd", "xen"),
    ];
    controllers.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or("", |(_, controller)| controller)
}

impl From<Disk> for wire::Disk {
    fn from(disk: Disk) -> Self {
        Self {
            storage_controller: controller(&disk.name).to_owned(),
            name: disk.name,
            size_bytes: disk.size_bytes,
            model: disk.model,
            serial: disk.serial,
            rotational: disk.rotational,
            removable: disk.removable,
        }
    }
}

/// Every disk, read on a thread of its own, because a dying disk is waited for.
pub async fn look_at_disks(root: &Root) -> Vec<Disk> {
    let of_thread = root.clone();
    match tokio::task::spawn_blocking(move || read_disks(&of_thread)).await {
        Ok(disks) => disks,
        Err(_) => read_disks(root),
    }
}

/// Every disk once, sorted by name, without paths that the kernel has joined with others and hidden.
pub fn read_disks(root: &Root) -> Vec<Disk> {
    let links = read_links(root);
    let mounts = read_or_empty(root.join("/proc/self/mountinfo"));
    let live = parse_mounted_device(&mounts, LIVE_MOUNT);
    let mut disks: Vec<_> = list_children(&root.join("/sys/block"))
        .into_iter()
        .filter(|name| is_disk_name(name) || joined_disks::is_joined(&root.join("/sys/block").join(name)))
        .filter(|name| read_line(&root.join("/sys/block").join(name).join("hidden")) != "1")
        .map(|name| read_disk(root, name, &links, live.as_deref()))
        .filter(|disk| disk.size_bytes > 0)
        .collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disk_paths::join_paths(disks)
}

fn is_disk_name(name: &str) -> bool {
    // The boot and replay-protected areas of an MMC are devices of their own.
    let is_area = name.strip_prefix("mmcblk").is_some_and(|rest| rest.contains(char::is_alphabetic));
    !is_area && !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix))
}

fn read_disk(root: &Root, name: String, links: &HashMap<String, Vec<String>>, live: Option<&str>) -> Disk {
    let path = root.join("/sys/block").join(&name);
    let number = read_line(&path.join("dev"));
    let record = read_udev(root, &path);
    let udev = |key: &str| parse_udev(&record, key);
    let mut partitions: Vec<(String, PathBuf)> = list_children(&path)
        .into_iter()
        .map(|child| (child.clone(), path.join(child)))
        .filter(|(_, directory)| directory.join("partition").exists())
        .collect();
    partitions.extend(joined_disks::list_partitions(root, &path));
    let mut numbers = partitions.iter().map(|(_, part)| read_line(&part.join("dev")));
    let holds_live = live.is_some_and(|live| number == live || numbers.any(|number| number == live));
    let silent = read_start(&root.join("/dev").join(&name), SUPERBLOCK) == Answer::Silent;
    let holders = list_holders(&path, &partitions);
    let parts: Vec<_> = partitions.into_iter().map(|part| read_partition(root, part, silent)).collect();
    let is_silent = silent || parts.iter().any(|(_, is_silent)| *is_silent);
    let state = match (is_silent, read_line(&path.join("ro")) == "1") {
        (true, _) => DiskState::Silent,
        (false, true) => DiskState::ReadOnly,
        (false, false) => DiskState::Writable,
    };
    Disk {
        size_bytes: read_line(&path.join("size")).parse::<u64>().unwrap_or(0).saturating_mul(SECTOR),
        model: first_of([read_line(&path.join("device/model")), udev("ID_MODEL")]),
        serial: first_of([
            udev("ID_SERIAL_SHORT"),
            read_line(&path.join("serial")),
            read_line(&path.join("device/serial")),
            udev("ID_SERIAL"),
            [udev("DM_SERIAL"), udev("MD_UUID")].concat(),
        ]),
        wwn: first_of([
            udev("ID_WWN_WITH_EXTENSION"),
            udev("ID_WWN"),
            read_line(&path.join("wwid")),
            read_line(&path.join("device/wwid")),
            udev("DM_WWN"),
        ]),
        rotational: read_line(&path.join("queue/rotational")) == "1",
        removable: read_line(&path.join("removable")) == "1",
        state,
        other_paths: vec![],
        links: links.get(&name).map_or_else(Vec::new, Vec::clone),
        live_medium: holds_live,
        holders,
        table: udev("ID_PART_TABLE_TYPE"),
        signature: (!record.is_empty()).then(|| Signature::parse(&record)),
        partitions: parts.into_iter().map(|(partition, _)| partition).collect(),
        name,
    }
}

/// The first value that is not empty.
fn first_of<const N: usize>(values: [String; N]) -> String {
    // A driver that knows no serial number prints a null pointer.
    values.into_iter().find(|value| !["", "(null)"].contains(&&**value)).unwrap_or_default()
}

/// Also returns true if the partition did not answer. Of a silent disk only the kernel and udev are
/// asked, so that the deadline passes once.
fn read_partition(root: &Root, (name, path): (String, PathBuf), silent: bool) -> (Partition, bool) {
    let record = read_udev(root, &path);
    let uevent = read_or_empty(path.join("uevent"));
    // The kernel does not report the name of a partition that was added to a table in use.
    let label = match uevent.lines().find_map(|line| line.strip_prefix("PARTNAME=")) {
        Some(label) => label.to_owned(),
        None => parse_udev(&record, "ID_PART_ENTRY_NAME"),
    };
    let answer = if silent { Answer::Silent } else { read_start(&root.join("/dev").join(&name), SUPERBLOCK) };
    let read = match &answer {
        Answer::Bytes(superblock) => parse_label(superblock),
        Answer::Silent | Answer::Unreadable => String::new(),
    };
    let file_system = if read.is_empty() { parse_udev(&record, "ID_FS_LABEL") } else { read };
    let partition = Partition { name, label, file_system, signature: Signature::parse(&record) };
    (partition, answer == Answer::Silent)
}

fn list_holders(disk: &Path, partitions: &[(String, PathBuf)]) -> Vec<String> {
    let directories =
        std::iter::once(disk).chain(partitions.iter().map(|(_, directory)| directory.as_path()));
    let holders = directories.flat_map(|directory| list_children(&directory.join("holders")));
    holders.filter(|holder| !partitions.iter().any(|(name, _)| name == holder)).collect()
}

/// udev's record of the block device with this directory in sysfs; empty if udev does not know it.
pub fn read_udev(root: &Root, directory: &Path) -> String {
    let number = read_line(&directory.join("dev"));
    read_or_empty(root.join("/run/udev/data").join(format!("b{number}")))
}

/// The disk to which a path such as `/dev/disk/by-id/…` leads.
pub fn find_by_path<'a>(root: &Root, disks: &'a [Disk], path: &str) -> Option<&'a Disk> {
    let name = resolve_path(root, path)?;
    disks.iter().find(|disk| disk.has_name(&name))
}

/// Kernel name of the device to which the path leads.
pub fn resolve_path(root: &Root, path: &str) -> Option<String> {
    let device = root.join(Path::new(path)).canonicalize().ok()?;
    Some(device.file_name()?.to_str()?.to_owned())
}

fn read_links(root: &Root) -> HashMap<String, Vec<String>> {
    let mut links: HashMap<String, Vec<String>> = HashMap::new();
    for kind in ["by-id", "by-path"] {
        let directory = Path::new("/dev/disk").join(kind);
        for child in list_children(&root.join(&directory)) {
            let target = fs::read_link(root.join(directory.join(&child)));
            let target = target.as_deref().ok().and_then(|target| target.file_name()?.to_str());
            if let Some(target) = target {
                links.entry(target.to_owned()).or_default().push(format!("/dev/disk/{kind}/{child}"));
            }
        }
    }
    links
}

/// A property of a record of udev's database (`E:KEY=value`).
pub fn parse_udev(text: &str, key: &str) -> String {
    let mut properties = text.lines().filter_map(|line| line.strip_prefix("E:")?.split_once('='));
    properties.find(|(found, _)| *found == key).map_or("", |(_, value)| value.trim()).to_owned()
}

/// `major:minor` of the device that is mounted at `point` (proc(5), mountinfo).
fn parse_mounted_device(mountinfo: &str, point: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        (fields.get(4) == Some(&point)).then(|| fields[2].to_owned())
    })
}

/// Label of the ext or FAT file system that starts with these bytes; empty for other content. The
/// label is read here, because `/dev/disk/by-label` shows only one of two disks with the same
/// label.
fn parse_label(bytes: &[u8]) -> String {
    // Offset and bytes of the magic number, then the place of the label.
    let formats: [(usize, &[u8], Range<usize>); 3] =
        [(0x438, &[0x53, 0xef], 0x478..0x488), (0x52, b"FAT32", 0x47..0x52), (0x36, b"FAT", 0x2b..0x36)];
    let format = formats
        .into_iter()
        .find(|(offset, magic, _)| bytes.get(*offset..).is_some_and(|rest| rest.starts_with(magic)));
    let Some(field) = format.and_then(|(_, _, label)| bytes.get(label)) else { return String::new() };
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
}

#[cfg(test)]
mod tests;
