//! The operating system below the agent, as one trait. Everything but the agent's own small files
//! goes through the trait.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::plan::{CustomInstruction, RegistryAccess, Upgrade};
use proto::v1alpha1::{Install, SystemState};

use crate::ground::failure::Failure;
use crate::state::before_node::{KernelItem, OwnItems};

/// The OS work of steps and of the installer. The driver for real hosts is
/// [`super::elemental::Elemental`].
///
/// Long work runs as a job that outlives the agent; a job starts after all earlier jobs have ended.
pub trait System: Send + Sync {
    /// Installs the running live system, or the image of the request, on `installation.device`.
    /// Never reboots or powers off.
    fn install(&self, installation: Installation<'_>)
    -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Writes the image beside the running system and makes it the next one to boot. The files are
    /// not flushed: see [`System::sync`].
    fn upgrade(&self, job: &Job, upgrade: &Upgrade) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// The room for another system on the disk; `None` if it cannot be measured.
    fn upgrade_room(&self) -> impl Future<Output = Option<UpgradeRoom>> + Send {
        async { None }
    }

    /// Messages of the kernel about failed writes, since this time after the boot.
    fn write_errors(&self, _since: Duration) -> impl Future<Output = Vec<String>> + Send {
        async { Vec::new() }
    }

    /// Reads the snapshot that boots next, and compares its files with the digests that its image
    /// brings. By default no snapshot can be read.
    fn check_snapshot(&self, _snapshot: &Snapshot) -> impl Future<Output = Result<Output, Failure>> + Send {
        async { Ok(Output::default()) }
    }

    /// The systems on the disk, as `elemental state` lists them.
    fn snapshots(&self) -> impl Future<Output = Result<Vec<Snapshot>, Failure>> + Send;

    /// Waits for the jobs of earlier agents. By default there are none, because the work ends with
    /// the process that began it.
    fn earlier_jobs(&self) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Ok(()) }
    }

    fn running(&self) -> impl Future<Output = Result<SystemState, Failure>> + Send;

    /// Requests a reboot. `Ok` only means that the reboot was requested; another boot id proves
    /// that it happened.
    fn reboot(&self, method: RebootMethod) -> impl Future<Output = Result<RebootAsked, Failure>> + Send;

    /// Flushes the file systems of the installed system.
    fn sync(&self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Runs `cloud-init clean --logs --seed`, which removes the instance and deletes the seed.
    fn cloud_init_clean(&self, job: &Job) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// The progress of cloud-init in this boot.
    fn cloud_init(&self) -> impl Future<Output = Result<CloudInit, Failure>> + Send;

    /// Stops a unit; a unit that does not exist counts as stopped.
    fn stop_unit(&self, unit: &str) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// True if the unit is running, starting or stopping.
    fn unit_runs(&self, unit: &str) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Names of all pods and containers of Kubernetes, and of control groups in which its processes
    /// run.
    fn workload(&self) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

    /// Removes everything that [`System::workload`] lists.
    fn remove_workload(&self) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// The networks and devices in the kernel.
    fn kernel_items(&self) -> impl Future<Output = Result<BTreeSet<KernelItem>, Failure>> + Send;

    /// Removes from the kernel what is not the host's own, as far as it can be removed.
    fn remove_foreign_items(
        &self,
        job: &Job,
        own: &OwnItems,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Unmounts one mount point in the host's own mount namespace.
    fn unmount(&self, job: &Job, path: &Path) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Tells the disk which blocks of the persistent partition are free.
    fn trim(&self, job: &Job) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Removes the past entries of the system's journal.
    fn clear_journal(&self, job: &Job) -> impl Future<Output = Result<Output, Failure>> + Send;

    /// Makes, replaces or removes a file of a custom plan.
    fn place_file(
        &self,
        job: &Job,
        placement: &Placement<'_>,
    ) -> impl Future<Output = Result<Output, Failure>> + Send;

    fn run_custom(
        &self,
        job: &Job,
        instruction: &CustomInstruction,
    ) -> impl Future<Output = Result<Output, Failure>> + Send;
}

/// A system on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The number grows with each snapshot that is written.
    pub number: u32,
    /// The reference from which the snapshot was written; may be empty.
    pub source: String,
    /// The digest of the image; empty if the image has none.
    pub digest: String,
    pub active: bool,
}

/// The room on the partition to which an upgrade writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradeRoom {
    pub free_bytes: u64,
    /// The size of the running system on the disk.
    pub image_bytes: u64,
}

/// Parameters of `elemental install`.
#[derive(Clone, Copy)]
pub struct Installation<'a> {
    pub device: &'a Path,
    /// The request of the coordinator. Device, selector, seed and power action of the request are
    /// handled by the caller.
    pub request: &'a Install,
    /// Cloud-init files that Elemental copies to the disk (`--cloud-init`).
    pub cloud_init: &'a [PathBuf],
    /// Access to the registry of the request's image.
    pub registry: Option<&'a RegistryAccess>,
}

/// A file of a custom plan, and its wanted state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    pub path: &'a Path,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub action: PlacementAction<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementAction<'a> {
    /// Remove the path with all content.
    Delete,
    Directory,
    File {
        /// The file that holds the content.
        staged: &'a Path,
    },
}

/// Deadlines of the commands of [`System`].
pub mod deadlines {
    use std::time::Duration;

    /// The install includes partitioning and the boot loader.
    pub const INSTALL: Duration = Duration::from_hours(1);
    /// The image may come over a slow network.
    pub const UPGRADE: Duration = Duration::from_mins(48);
    /// A custom instruction, which the coordinator did not write.
    pub const CUSTOM: Duration = Duration::from_mins(25);
    /// A unit may use its whole `TimeoutStopSec`.
    pub const STOP_UNIT: Duration = Duration::from_mins(4);
    pub const CLEAN_CLOUD_INIT: Duration = Duration::from_mins(4);
    /// Removes every pod, with shortened grace periods.
    pub const REMOVE_WORKLOAD: Duration = Duration::from_mins(5);
    /// A journal may have gigabytes.
    pub const CLEAR_JOURNAL: Duration = Duration::from_mins(2);
    /// A disk may be large.
    pub const TRIM: Duration = Duration::from_mins(5);
    /// An image is read once, and each file is compared.
    pub const CHECK_SNAPSHOT: Duration = Duration::from_mins(5);
    /// Queries and small changes.
    pub const QUERY: Duration = Duration::from_mins(1);
    /// systemd stops a job at its deadline; the agent waits this much longer for the end of the
    /// job.
    pub const JOB_END: Duration = Duration::from_mins(1);
}

/// Common prefix of the names of all jobs.
pub const JOB_PREFIX: &str = "baremetal-step-";

/// Name of a job. All names have one prefix, so that a restarted agent finds the jobs of its
/// predecessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job(String);

impl Job {
    pub fn step(plan: &proto::plan::PlanId, index: usize) -> Self {
        Self(format!("{JOB_PREFIX}{plan}-{index}"))
    }

    /// A job that belongs to no plan.
    pub fn named(name: &str) -> Self {
        Self(format!("{JOB_PREFIX}{name}"))
    }

    /// The name of the unit without `.service`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The ways to ask for a reboot. The next way is tried after the one before did not lead to another
/// boot id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootMethod {
    /// Stop every unit, then reboot.
    Orderly,
    /// Kill every process, unmount, reboot.
    Forced,
    Immediate,
}

/// The reboot was requested, which does not prove that it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebootAsked;

/// The progress of cloud-init.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudInit {
    /// cloud-init has not ended in this boot.
    Running,
    /// The last stage has ended.
    Finished {
        /// The instance for which cloud-init ran.
        instance_id: Option<String>,
        /// Reported errors; empty means success.
        errors: Vec<String>,
    },
}

/// Head and tail of the output of a command, both streams together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output(pub String);
