//! The operating system below the agent, as one trait: everything that is not
//! a small file of our own goes through it.

mod error;

use std::future::Future;
use std::path::{Path, PathBuf};

use proto::plan::{CustomInstruction, RegistryAccess, Upgrade};
use proto::v1alpha1::{Install, SystemState};

pub use error::{Diagnosis, FailureClass, Status, SystemError};

/// The OS work that steps and the installer need. The driver for real hosts is
/// [`super::elemental::Elemental`].
///
/// What takes long runs as a job: it outlives the agent, and one that still
/// runs is waited for before another starts.
pub trait System: Send + Sync {
    /// Installs the running live system, or the image of the request, on
    /// `installation.device`. Never reboots or powers off.
    fn install(
        &self,
        installation: Installation<'_>,
    ) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Writes the image beside the running system and makes it the one that
    /// boots next. Nothing of it is flushed: see [`System::sync`].
    fn upgrade(
        &self,
        job: &Job,
        upgrade: &Upgrade,
    ) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// The systems on the disk, as `elemental state` names them.
    fn snapshots(&self) -> impl Future<Output = Result<Vec<Snapshot>, SystemError>> + Send;

    /// Waits until no job runs that an agent before this one began. By default
    /// there are none: work ends with the process that began it.
    fn earlier_jobs(&self) -> impl Future<Output = Result<(), SystemError>> + Send {
        async { Ok(()) }
    }

    fn running(&self) -> impl Future<Output = Result<SystemState, SystemError>> + Send;

    /// Requests a reboot. `Ok` means that it was requested, nothing more: that
    /// it happened is proven by another boot id.
    fn reboot(&self, method: RebootMethod) -> impl Future<Output = Result<RebootAsked, SystemError>> + Send;

    /// Flushes the file systems of the installed system.
    fn sync(&self) -> impl Future<Output = Result<(), SystemError>> + Send;

    /// `cloud-init clean --logs --seed`: removes the instance, deletes the seed.
    fn cloud_init_clean(&self, job: &Job) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// How far cloud-init is in this boot.
    fn cloud_init(&self) -> impl Future<Output = Result<CloudInit, SystemError>> + Send;

    /// Stops a unit; one that does not exist is stopped already.
    fn stop_unit(&self, unit: &str) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Whether a unit is running, starting or stopping.
    fn unit_runs(&self, unit: &str) -> impl Future<Output = Result<bool, SystemError>> + Send;

    /// Names of what runs or lies in the container runtime for Kubernetes, and
    /// of control groups in which its processes run.
    fn workload(&self) -> impl Future<Output = Result<Vec<String>, SystemError>> + Send;

    /// Removes all of it.
    fn remove_workload(&self) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Unmounts one mount point in the host's own mount namespace.
    fn unmount(&self, job: &Job, path: &Path) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Tells the disk which blocks of the persistent partition are free.
    fn trim(&self, job: &Job) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Removes what the journal of the system has until now.
    fn clear_journal(&self, job: &Job) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Makes, replaces or removes a file of a custom plan.
    fn place_file(
        &self,
        job: &Job,
        placement: &Placement<'_>,
    ) -> impl Future<Output = Result<Output, SystemError>> + Send;

    /// Runs a custom instruction.
    fn run_custom(
        &self,
        job: &Job,
        instruction: &CustomInstruction,
    ) -> impl Future<Output = Result<Output, SystemError>> + Send;
}

/// A system on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Rises with each that is written.
    pub number: u32,
    /// The reference that it was written from; may be empty.
    pub source: String,
    /// Of the image, where it has one.
    pub digest: String,
    pub active: bool,
}

/// Parameters of `elemental install`.
#[derive(Clone, Copy)]
pub struct Installation<'a> {
    pub device: &'a Path,
    /// What the coordinator asks for; its device, selector, seed and power
    /// action are the caller's business.
    pub request: &'a Install,
    /// Cloud-init files that Elemental copies to the disk (`--cloud-init`).
    pub cloud_init: &'a [PathBuf],
    /// For the registry of the request's image.
    pub registry: Option<&'a RegistryAccess>,
}

/// What becomes of a file of a custom plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement<'a> {
    pub path: &'a Path,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub action: PlacementAction<'a>,
}

/// What to do with a file of a custom plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementAction<'a> {
    /// Remove it, with all below.
    Delete,
    /// Make it a directory.
    Directory,
    File {
        /// By the content of this file.
        staged: &'a Path,
    },
}

/// Deadlines of the commands of [`System`].
pub mod deadlines {
    use std::time::Duration;

    /// From partitioning to the boot loader.
    pub const INSTALL: Duration = Duration::from_hours(1);
    /// The image may come over a slow network.
    pub const UPGRADE: Duration = Duration::from_mins(55);
    /// An instruction that the coordinator did not write.
    pub const CUSTOM: Duration = Duration::from_mins(25);
    /// Stopping a unit may take its whole `TimeoutStopSec`.
    pub const STOP_UNIT: Duration = Duration::from_mins(4);
    /// `cloud-init clean`.
    pub const CLEAN_CLOUD_INIT: Duration = Duration::from_mins(4);
    /// Removing every pod, with the pods' own grace periods cut short.
    pub const REMOVE_WORKLOAD: Duration = Duration::from_mins(5);
    /// Removing a journal of gigabytes.
    pub const CLEAR_JOURNAL: Duration = Duration::from_mins(2);
    /// Trimming a large disk.
    pub const TRIM: Duration = Duration::from_mins(5);
    /// A command that only asks, and one that changes little.
    pub const QUERY: Duration = Duration::from_mins(1);
    /// systemd stops a job at its deadline; the agent waits that much longer
    /// for the end of it.
    pub const JOB_END: Duration = Duration::from_mins(1);
}

/// What the names of all jobs begin with.
pub const JOB_PREFIX: &str = "baremetal-step-";

/// Name of long work: all begin alike, so that a restarted agent finds what its
/// predecessor started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job(String);

impl Job {
    /// The job of one step of one plan.
    pub fn step(plan: &proto::plan::PlanId, index: usize) -> Self {
        Self(format!("{JOB_PREFIX}{plan}-{index}"))
    }

    /// Work that belongs to no plan.
    pub fn named(name: &str) -> Self {
        Self(format!("{JOB_PREFIX}{name}"))
    }

    /// The unit's name without `.service`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// How hard to ask for a reboot; each is tried when the one before did not
/// lead to another boot id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootMethod {
    /// Stop every unit, then reboot.
    Orderly,
    /// Kill every process, unmount, reboot.
    Forced,
    Immediate,
}

/// A reboot was requested. Not a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebootAsked;

/// How far cloud-init is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudInit {
    /// Not done in this boot.
    Running,
    /// Its last stage has ended.
    Finished {
        /// The instance that it ran for.
        instance_id: Option<String>,
        /// Errors that it reported; empty is success.
        errors: Vec<String>,
    },
}

/// Head and tail of what a command printed, both streams together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output(pub String);
