//! Systems that this agent installed before: found by the record on the
//! persistent partition of each disk, never by a label alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use proto::v1alpha1::InstallDone;
use serde::{Deserialize, Serialize};

use crate::durable::{self, DurableError};
use crate::error::NextAction;
use crate::host::facts::disks::{Disk, Partition};
use crate::paths::{Root, StateDir};

/// `install.json`: this disk is ours and was installed completely. Written
/// last, so that an install that was cut off has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallRecord {
    /// The disk as the install knew it.
    pub device: String,
    /// The image that was installed.
    pub image: String,
    /// `namespace/name` of the host's `MachineInventory`.
    pub inventory: String,
}

impl InstallRecord {
    /// The record of `state`; nothing where no install was completed. One that
    /// cannot be parsed is still a record.
    ///
    /// # Errors
    /// [`DurableError`] when it cannot be read.
    pub fn read(state: &StateDir) -> Result<Option<Self>, DurableError> {
        let path = state.install_record();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(serde_json::from_str(&text).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DurableError { attempt: "read", path, source }),
        }
    }
}

impl From<InstallRecord> for InstallDone {
    fn from(record: InstallRecord) -> Self {
        Self { device: record.device, image: record.image }
    }
}

/// Whether a partition may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Looking only.
    Read,
    /// Leaving something.
    Write,
}

/// Mounting partitions: the real one, or directories in tests.
pub trait Mounts {
    /// Makes the partition `/dev/NAME` readable below a directory, until the
    /// returned value is dropped.
    ///
    /// # Errors
    /// The error of the system call; `InvalidInput` when it holds no file system.
    fn mount(&self, partition: &str, access: Access) -> io::Result<Mounted>;
}

/// A mounted partition.
#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    ours: bool,
}

impl Mounted {
    /// A directory in place of a partition, for tests.
    #[must_use]
    pub fn directory(path: PathBuf) -> Self {
        Self { path, ours: false }
    }

    /// The agent's state on it.
    #[must_use]
    pub fn state(&self) -> StateDir {
        StateDir::on_persistent_partition(&self.path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = umount2(&self.path, MntFlags::MNT_DETACH)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot unmount");
        }
    }
}

/// mount(2) below `/run/baremetal-agent`.
#[derive(Clone, Debug)]
pub struct KernelMounts {
    directory: PathBuf,
}

impl KernelMounts {
    /// Mounts below this root's `/run`.
    #[must_use]
    pub fn below(root: &Root) -> Self {
        Self { directory: root.join("/run/baremetal-agent") }
    }
}

impl Mounts for KernelMounts {
    fn mount(&self, partition: &str, access: Access) -> io::Result<Mounted> {
        let path = self.directory.join(partition);
        durable::create_directory(&path).map_err(|error| error.source)?;
        let device = Path::new("/dev").join(partition);
        let mut flags = MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID;
        flags.set(MsFlags::MS_RDONLY, access == Access::Read);
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        // What Elemental makes, and what its configuration allows.
        for kind in ["ext4", "btrfs", "xfs"] {
            match mount(Some(&device), &path, Some(kind), flags, None::<&str>) {
                Ok(()) => return Ok(Mounted { path, ours: true }),
                // Another file system, or a kernel that lacks a rare one.
                Err(nix::Error::EINVAL) => {}
                Err(nix::Error::ENODEV) if kind != "ext4" => {}
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

/// A disk that carries an install of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledDisk {
    /// Kernel name of the disk, now.
    pub disk: String,
    /// Kernel name of its persistent partition.
    pub partition: String,
    /// What the install left.
    pub record: InstallRecord,
}

/// Why it is not known whether this host is installed.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Two records: whatever we did could be wrong.
    #[error("{count} disks carry an installed system of this agent ({disks}), so nothing is touched", count = .names.len(), disks = .names.join(", "))]
    Several {
        /// Which disks.
        names: Vec<String>,
    },
    /// A partition that may hold a record cannot be read: installing over it
    /// could destroy a system.
    #[error(
        "cannot read the persistent partition {partition}, so it is not known whether this host is installed"
    )]
    Mount {
        /// Which.
        partition: String,
        /// The error of the system call.
        source: io::Error,
    },
}

impl NextAction for FindError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::Several { .. } => "take out or wipe (wipefs -a) all but one, then boot again",
            Self::Mount { .. } => "check the disk, or wipe it (wipefs -a) to install again",
        })
    }
}

/// Looks on every disk.
///
/// # Errors
/// [`FindError`]: nothing may be installed then.
pub fn find_installed_disk(disks: &[Disk], mounts: &impl Mounts) -> Result<Option<InstalledDisk>, FindError> {
    let mut found = Vec::new();
    for disk in disks.iter().filter(|disk| !disk.live_medium) {
        if let Some(partition) = disk.persistent_partition()
            && let Some(record) = read_record(partition, mounts)?
        {
            found.push(InstalledDisk { disk: disk.name.clone(), partition: partition.name.clone(), record });
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(FindError::Several { names: found.into_iter().map(|found| found.disk).collect() }),
    }
}

fn read_record(partition: &Partition, mounts: &impl Mounts) -> Result<Option<InstallRecord>, FindError> {
    let failed = |source| FindError::Mount { partition: partition.name.clone(), source };
    let formatted = !partition.file_system.is_empty();
    let mounted = match mounts.mount(&partition.name, Access::Read) {
        Ok(mounted) => mounted,
        // Named but not formatted: an install was cut off before.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && !formatted => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    InstallRecord::read(&mounted.state()).map_err(|error| failed(error.source))
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    /// Partitions as directories of one directory; one that is missing is not
    /// formatted.
    pub(crate) struct Directories(pub(crate) PathBuf);

    impl Mounts for Directories {
        fn mount(&self, partition: &str, _: Access) -> io::Result<Mounted> {
            let path = self.0.join(partition);
            if path.is_file() {
                return Err(io::ErrorKind::Other.into());
            }
            if !path.is_dir() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            Ok(Mounted::directory(path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::Directories;
    use super::*;

    fn disk(name: &str) -> Disk {
        let partition =
            Partition { name: format!("{name}5"), label: "persistent".to_owned(), ..Partition::default() };
        Disk { name: name.to_owned(), partitions: vec![partition], ..Disk::default() }
    }

    fn record(directory: &Path, partition: &str, text: &str) {
        let state = Mounted::directory(directory.join(partition)).state();
        fs::create_dir_all(state.path()).unwrap();
        fs::write(state.install_record(), text).unwrap();
    }

    #[test]
    fn an_installed_disk_is_found_by_its_record() {
        let directory = tempfile::tempdir().unwrap();
        let mounts = Directories(directory.path().to_owned());
        let disks = [disk("sda"), disk("sdb"), Disk { name: "sdc".into(), ..Disk::default() }];
        assert_eq!(find_installed_disk(&disks, &mounts).unwrap(), None, "not formatted");
        fs::create_dir_all(directory.path().join("sda5")).unwrap();
        assert_eq!(find_installed_disk(&disks, &mounts).unwrap(), None, "no record");
        record(directory.path(), "sdb5", r#"{"device":"/dev/sda","image":"os:v1"}"#);
        let found = find_installed_disk(&disks, &mounts).unwrap().unwrap();
        assert_eq!((found.disk.as_str(), found.record.image.as_str()), ("sdb", "os:v1"));
        record(directory.path(), "sdb5", "garbled");
        assert!(find_installed_disk(&disks, &mounts).unwrap().is_some(), "still a record");
        record(directory.path(), "sda5", "{}");
        let message = crate::error::explain(&find_installed_disk(&disks, &mounts).unwrap_err());
        assert!(message.contains("sda, sdb") && message.contains("wipefs"), "{message}");
    }

    #[test]
    fn a_partition_that_cannot_be_read_stops_everything() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("sda5"), "").unwrap();
        let mounts = Directories(directory.path().to_owned());
        assert!(matches!(find_installed_disk(&[disk("sda")], &mounts), Err(FindError::Mount { .. })));
        let mut damaged = disk("sdb");
        damaged.partitions[0].file_system = "COS_PERSISTENT".to_owned();
        assert!(
            matches!(find_installed_disk(&[damaged], &mounts), Err(FindError::Mount { .. })),
            "formatted, not mountable"
        );
    }
}
