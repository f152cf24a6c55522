//! Finds the systems on the disks of a host. An install of this agent is recognised by the record
//! on the persistent partition, never by a label alone.

mod contents;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use self::contents::{Contents, find_registration, read_partition};
use crate::ground::failure::Failure;
use crate::ground::paths::{Root, StateDir};
use crate::host::command::{Captured, CommandError, Invocation};
use crate::host::facts::disks::{Disk, DiskState};
use crate::host::facts::probe::run_within;
use crate::host::system::{Output, deadlines};
use crate::state::install_record::InstallRecord;

/// A large file system whose journal is not replayed is mounted within seconds.
const LOOK_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written, not even to replay a journal, because another host may use the disk. The
    /// record is complete without a replay, because the install unmounted the partition before it
    /// reported.
    Read,
    Write,
}

/// The disks and their partitions; directories in tests.
pub trait Mounts: Sync {
    /// Waits for `pause`, and then until all devices that the kernel has found are known
    /// completely.
    fn settle(&self, pause: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(pause)
    }

    /// Runs a program that changes disks. By default nothing is run.
    fn run_tool(
        &self,
        _invocation: &Invocation,
    ) -> impl Future<Output = Result<Captured, CommandError>> + Send {
        let shown = Output(String::new());
        async { Ok(Captured { stdout: String::new(), shown }) }
    }

    /// Mounts the partition `/dev/NAME` for reading while `look` runs. Fails with `TimedOut` if the
    /// disk does not answer.
    fn look_into<T: Send + 'static>(
        &self,
        partition: &str,
        look: impl FnOnce(io::Result<Mounted>) -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send {
        let found = look(self.mount(partition, Access::Read));
        async { Ok(found) }
    }

    /// Mounts the partition `/dev/NAME` until the returned value is dropped. Fails with
    /// `InvalidInput` if the partition holds no file system.
    fn mount(&self, partition: &str, access: Access) -> io::Result<Mounted>;
}

#[derive(Debug)]
pub struct Mounted {
    path: PathBuf,
    ours: bool,
}

impl Mounted {
    /// A directory in place of a partition, for tests.
    pub fn directory(path: PathBuf) -> Self {
        Self { path, ours: false }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn state(&self) -> StateDir {
        StateDir::on_persistent_partition(&self.path)
    }

    /// Names of the entries, sorted.
    fn list_entries(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = umount2(&self.path, MntFlags::MNT_DETACH)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot unmount partition");
        }
    }
}

/// mount(2) below `/run/baremetal-agent`.
#[derive(Clone, Debug)]
pub struct KernelMounts {
    directory: PathBuf,
}

impl KernelMounts {
    pub fn below(root: &Root) -> Self {
        Self { directory: root.runtime() }
    }
}

/// File systems that Elemental makes or allows, with the options that keep a read-only mount from
/// writing.
const FILE_SYSTEMS: [(&str, &str); 3] =
    [("ext4", "noload"), ("btrfs", "rescue=nologreplay"), ("xfs", "norecovery")];

impl Mounts for KernelMounts {
    async fn settle(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
        let settle = Invocation::new("udevadm", &["settle", "--timeout=50"], deadlines::QUERY);
        if let Err(error) = settle.run().await {
            tracing::warn!(error = %Failure::from(error), "cannot wait for udev");
        }
    }

    async fn look_into<T: Send + 'static>(
        &self,
        partition: &str,
        look: impl FnOnce(io::Result<Mounted>) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (mounts, partition) = (self.clone(), partition.to_owned());
        let look = move || look(mounts.mount(&partition, Access::Read));
        run_within(LOOK_DEADLINE, look).await.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    async fn run_tool(&self, invocation: &Invocation) -> Result<Captured, CommandError> {
        invocation.run().await
    }

    fn mount(&self, partition: &str, access: Access) -> io::Result<Mounted> {
        let path = self.directory.join(partition);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let device = Path::new("/dev").join(partition);
        let mut flags = MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID;
        flags.set(MsFlags::MS_RDONLY, access == Access::Read);
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for (kind, without_writing) in FILE_SYSTEMS {
            let options = (access == Access::Read).then_some(without_writing);
            match mount(Some(&device), &path, Some(kind), flags, options) {
                Ok(()) => return Ok(Mounted { path, ours: true }),
                // The partition has another file system, or the kernel lacks a rare one.
                Err(nix::Error::EINVAL) => {}
                Err(nix::Error::ENODEV) if kind != "ext4" => {}
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

/// A disk with an install of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledDisk {
    /// Current kernel name of the disk.
    pub disk: String,
    /// Kernel name of the persistent partition.
    pub partition: String,
    pub record: InstallRecord,
}

/// A disk with a system of Elemental that this agent did not install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedDisk {
    /// Current kernel name of the disk.
    pub disk: String,
    /// The content that shows that the system was in use.
    pub contents: String,
}

/// The installed systems on the disks of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledDisks {
    pub own: Option<InstalledDisk>,
    /// The systems of other hosts, such as volumes of a SAN or moved disks. They are never adopted.
    pub foreign: Vec<InstalledDisk>,
    /// Systems without a record that were in use, of another operator or of this agent if the
    /// record was lost.
    pub used: Vec<UsedDisk>,
    /// Kernel names of disks that did not answer, and of which nothing is known.
    pub silent: Vec<String>,
}

/// A partition that cannot be read may hold a record, and installing over it could destroy a
/// system.
pub(super) fn unreadable(partition: &str, cause: &str) -> Failure {
    Failure::input_output(
        format!(
            "cannot read the persistent partition {partition}, so it is not known whether this host is installed: {cause}"
        ),
        "check the disk; where it is broken, replace it, delete the MachineInventory and boot the seed ISO again; where its file system is, wipe it (\"Wipe a disk\" in docs/operations.md)",
    )
}

/// Looks on every disk of the host with this UUID.
pub async fn find_installed_disks(
    disks: &[Disk],
    mounts: &impl Mounts,
    uuid: Option<&str>,
) -> Result<InstalledDisks, Failure> {
    let mut own = Vec::new();
    let mut found = InstalledDisks::default();
    // A system on several paths, or on a mirror, counts once.
    let whole = disks.iter().filter(|disk| !disks.iter().any(|other| disk.is_part_of(other)));
    for disk in whole.filter(|disk| !disk.live_medium) {
        let name = disk.name.clone();
        if disk.state == DiskState::Silent {
            found.silent.push(name);
            continue;
        }
        let Some(partition) = disk.persistent_partition() else { continue };
        match read_partition(disk, partition, mounts).await? {
            Contents::Silent => found.silent.push(name),
            Contents::Unused => {
                let contents = find_registration(disk, mounts).await;
                found.used.extend(contents.map(|contents| UsedDisk { disk: name, contents }));
            }
            Contents::Used(contents) => found.used.push(UsedDisk { disk: name, contents }),
            Contents::Installed(record) => {
                let is_foreign = record.is_of_another_host(uuid);
                let systems = if is_foreign { &mut found.foreign } else { &mut own };
                systems.push(InstalledDisk { disk: name, partition: partition.name.clone(), record });
            }
        }
    }
    match own.len() {
        0 | 1 => Ok(InstalledDisks { own: own.pop(), ..found }),
        _ => Err(refuse_several(disks, &own)),
    }
}

fn refuse_several(disks: &[Disk], own: &[InstalledDisk]) -> Failure {
    let systems = disks.iter().filter(|disk| own.iter().any(|found| found.disk == disk.name));
    let systems: Vec<_> = systems.collect();
    let names: Vec<_> = systems.iter().map(|disk| disk.name_and_path()).collect();
    let (count, names) = (systems.len(), names.join(", "));
    // An operator who erased the second path would erase the only system.
    if systems.iter().any(|disk| systems.iter().any(|other| disk.may_be(other))) {
        return Failure::input_output(
            format!(
                "{count} devices with one WWN carry an installed system of this agent ({names}); they differ in serial number or size, and may be paths to one disk, so nothing is touched"
            ),
            "leave one path to the disk connected, or use a live system that joins the paths (multipathd), then boot again",
        );
    }
    Failure::input_output(
        format!("{count} disks carry an installed system of this agent ({names}), so nothing is touched"),
        "take all but one out, or wipe them (\"Wipe a disk\" in docs/operations.md), then boot again",
    )
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
mod tests;
