//! The block devices of a host with their relations, from sysfs, udev and the mounts.

use std::collections::BTreeSet;
use std::path::Path;

use super::volume_group;
use crate::ground::paths::{Root, read_or_empty};
use crate::host::facts::disks::{parse_udev, read_udev};
use crate::host::facts::probe::{Answer, read_start};
use crate::host::sysfs::{list_children, read_line};

const SECTOR: u64 = 512;

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layer {
    /// Kernel name without `/dev/`.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The whole disk of a partition.
    pub(super) disk: Option<String>,
    pub(super) size_bytes: u64,
    /// Devices on which this one is built.
    pub(super) slaves: Vec<String>,
    /// Devices that are built on this one.
    pub(super) holders: Vec<String>,
    pub(super) membership: Option<Membership>,
    /// Mount points of the device, and `swap`.
    pub(super) uses: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A disk, or a partition.
    #[default]
    Plain,
    /// A device of the device mapper with its name there: LVM, LUKS, a partition of a multipath
    /// device.
    Mapped(String),
    /// A multipath device, which the firmware sees as a disk.
    Multipath,
    Array,
    /// The container of a firmware RAID, which is stopped after its volumes.
    Container,
    /// A device that the agent cannot take apart.
    Other,
}

/// The set of devices to which a device belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) kind: SetKind,
    /// Empty if it is not known.
    pub(super) name: String,
    /// Equal for all members.
    pub(super) id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetKind {
    VolumeGroup,
    Array,
    Pool,
    Datastore,
}

impl SetKind {
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::VolumeGroup => "volume group",
            Self::Array => "array",
            Self::Pool => "pool",
            Self::Datastore => "datastore",
        }
    }
}

/// All block devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layers(pub(super) Vec<Layer>);

impl Layers {
    pub(super) fn get(&self, name: &str) -> Option<&Layer> {
        self.0.iter().find(|layer| layer.name == name)
    }

    pub(super) fn partitions<'a>(&'a self, disk: &'a str) -> impl Iterator<Item = &'a Layer> {
        self.0.iter().filter(move |layer| layer.disk.as_deref() == Some(disk))
    }

    /// The whole disks on which a device lies.
    pub(super) fn base_disks(&self, name: &str) -> BTreeSet<String> {
        let (mut bases, mut pending, mut seen) = (BTreeSet::new(), vec![name.to_owned()], BTreeSet::new());
        while let Some(name) = pending.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            match self.get(&name) {
                Some(Layer { disk: Some(disk), .. }) => pending.push(disk.clone()),
                Some(layer) if !layer.slaves.is_empty() => pending.extend(layer.slaves.iter().cloned()),
                _ => {
                    bases.insert(name);
                }
            }
        }
        bases
    }
}

/// Reads the first bytes of physical volumes, so that the call belongs on a thread of its own.
pub(super) fn read_layers(root: &Root) -> Layers {
    let uses = Uses::read(root);
    let mut layers = Vec::new();
    for name in list_children(&root.join("/sys/block")) {
        let directory = root.join("/sys/block").join(&name);
        for child in list_children(&directory) {
            let below = directory.join(&child);
            if below.join("partition").exists() {
                let layer = read_layer(root, &uses, child, &below);
                layers.push(Layer { disk: Some(name.clone()), ..layer });
            }
        }
        layers.push(read_layer(root, &uses, name, &directory));
    }
    Layers(layers)
}

fn read_layer(root: &Root, uses: &Uses, name: String, directory: &Path) -> Layer {
    let record = read_udev(root, directory);
    Layer {
        kind: read_kind(&name, directory),
        disk: None,
        size_bytes: read_line(&directory.join("size")).parse::<u64>().unwrap_or(0).saturating_mul(SECTOR),
        slaves: list_children(&directory.join("slaves")),
        holders: list_children(&directory.join("holders")),
        membership: read_membership(root, &name, &record),
        uses: uses.find(&name, &read_line(&directory.join("dev"))),
        name,
    }
}

fn read_kind(name: &str, directory: &Path) -> Kind {
    if directory.join("dm").exists() {
        let uuid = read_line(&directory.join("dm/uuid"));
        if uuid.starts_with("mpath-") {
            return Kind::Multipath;
        }
        return Kind::Mapped(read_line(&directory.join("dm/name")));
    }
    if directory.join("md").exists() {
        let version = read_line(&directory.join("md/metadata_version"));
        let is_container = version.starts_with("external:") && !version.starts_with("external:/");
        return if is_container { Kind::Container } else { Kind::Array };
    }
    let others = ["bcache", "drbd", "zd", "loop", "rbd"];
    if others.iter().any(|prefix| name.starts_with(prefix)) { Kind::Other } else { Kind::Plain }
}

/// Old labels of a RAID controller do not count as a set, because every disk of the controller has
/// the same id.
fn read_membership(root: &Root, name: &str, record: &str) -> Option<Membership> {
    let value = |key: &str| parse_udev(record, key);
    let kind = match value("ID_FS_TYPE").as_str() {
        "LVM2_member" => {
            let (name, id) = read_volume_group(root, name)?;
            return Some(Membership { kind: SetKind::VolumeGroup, name, id });
        }
        "linux_raid_member" => SetKind::Array,
        "zfs_member" => SetKind::Pool,
        "VMFS_volume_member" => SetKind::Datastore,
        _ => return None,
    };
    let id = value("ID_FS_UUID");
    (!id.is_empty()).then(|| Membership { kind, name: value("ID_FS_LABEL"), id })
}

fn read_volume_group(root: &Root, name: &str) -> Option<(String, String)> {
    match read_start(&root.join("/dev").join(name), volume_group::AREA) {
        Answer::Bytes(bytes) => volume_group::parse(&bytes),
        Answer::Silent | Answer::Unreadable => None,
    }
}

/// The mounts and swap areas of the live system.
struct Uses {
    mounts: String,
    swaps: String,
}

impl Uses {
    fn read(root: &Root) -> Self {
        let [mounts, swaps] =
            ["/proc/self/mountinfo", "/proc/swaps"].map(|path| read_or_empty(root.join(path)));
        Self { mounts, swaps }
    }

    fn find(&self, name: &str, number: &str) -> Vec<String> {
        let mounts = self.mounts.lines().filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            (!number.is_empty() && fields.get(2) == Some(&number)).then(|| fields.get(4).copied())?
        });
        let device = format!("/dev/{name}");
        let swaps = self.swaps.lines().filter(|line| line.split_whitespace().next() == Some(&device));
        mounts.map(str::to_owned).chain(swaps.map(|_| "swap".to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_read_with_relations_and_uses() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (path, text) in [
            ("sda/size", "2048\n"),
            ("sda/sda1/partition", "1\n"),
            ("sda/sda1/dev", "8:1\n"),
            ("sda/sda1/holders/md127", ""),
            ("md127/md/metadata_version", "1.2\n"),
            ("md127/slaves/sda1", ""),
            ("md127/holders/dm-0", ""),
            ("md126/md/metadata_version", "external:imsm\n"),
            ("dm-0/dm/uuid", "LVM-x\n"),
            ("dm-0/dm/name", "vg0-root\n"),
            ("dm-0/dev", "253:0\n"),
            ("dm-1/dm/uuid", "mpath-3600\n"),
        ] {
            root.put(&format!("/sys/block/{path}"), text);
        }
        root.put(
            "/run/udev/data/b8:1",
            "E:ID_FS_TYPE=linux_raid_member\nE:ID_FS_UUID=u-1\nE:ID_FS_LABEL=old:0\n",
        );
        root.put("/proc/self/mountinfo", "30 1 253:0 / /mnt rw - ext4 /dev/dm-0 rw\n");
        root.put("/proc/swaps", "Filename Type\n/dev/dm-0 partition 1 0 -2\n");
        let layers = read_layers(&root);
        let get = |name: &str| layers.get(name).unwrap();
        assert_eq!((get("sda").size_bytes, get("sda1").disk.as_deref()), (1 << 20, Some("sda")));
        assert_eq!(get("sda1").holders, ["md127"]);
        let membership = get("sda1").membership.clone().unwrap();
        assert_eq!((membership.kind, membership.id.as_str()), (SetKind::Array, "u-1"));
        assert_eq!((&get("md127").kind, &get("md126").kind), (&Kind::Array, &Kind::Container));
        assert_eq!(get("dm-0").kind, Kind::Mapped("vg0-root".to_owned()));
        assert_eq!(get("dm-0").uses, ["/mnt", "swap"]);
        assert_eq!(get("dm-1").kind, Kind::Multipath);
        assert_eq!(layers.base_disks("md127").into_iter().collect::<Vec<_>>(), ["sda"]);
    }
}
