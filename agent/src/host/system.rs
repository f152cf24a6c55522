//! The operating system below the agent, as one trait: everything that is not
//! a small file of our own goes through it.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::plan::{CustomInstruction, RegistryAccess, Upgrade};
use proto::v1alpha1::{Install, SystemState};

use crate::error::NextAction;

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

    /// What runs now.
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
    /// It boots next.
    pub active: bool,
}

/// Parameters of `elemental install`.
#[derive(Clone, Copy)]
pub struct Installation<'a> {
    /// The whole disk.
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
    /// Absolute.
    pub path: &'a Path,
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What to do.
    pub action: PlacementAction<'a>,
}

/// What to do with a file of a custom plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementAction<'a> {
    /// Remove it, with all below.
    Delete,
    /// Make it a directory.
    Directory,
    /// Replace it.
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
    #[must_use]
    pub fn step(plan: &proto::plan::PlanId, index: usize) -> Self {
        Self(format!("{JOB_PREFIX}{plan}-{index}"))
    }

    /// Work that belongs to no plan.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(format!("{JOB_PREFIX}{name}"))
    }

    /// The unit's name without `.service`.
    #[must_use]
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
    /// Reboot at once.
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

/// Why OS work did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The command could not be started or waited for.
    #[error("cannot run {program}")]
    Run {
        /// Its name.
        program: String,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The command ended with an error.
    #[error("{program} failed with {status}{diagnosis}")]
    Failed {
        /// Its name.
        program: String,
        /// Exit code or signal.
        status: Status,
        /// Why, where that is known.
        diagnosis: Box<Diagnosis>,
        /// What it printed.
        output: Output,
    },
    /// The command did not end in time and was killed.
    #[error("{program} did not end within {} s and was stopped", .deadline.as_secs())]
    TimedOut {
        /// Its name.
        program: String,
        /// How long it had.
        deadline: Duration,
        /// What it printed until then.
        output: Output,
    },
    /// A job of an earlier agent does not end.
    #[error("{unit}, which an earlier agent began, still runs after {} s", .limit.as_secs())]
    Busy {
        /// Its unit.
        unit: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// What a command printed or a file holds is not what it should be.
    #[error("cannot understand {what}: {why}")]
    Parse {
        /// Of what.
        what: &'static str,
        /// The parser's words.
        why: String,
    },
}

/// Why a command failed, from what it printed and its exit code; empty where it
/// is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// The cause.
    pub cause: &'static str,
    /// What the operator does about it.
    pub next_action: Option<&'static str>,
    /// Whether trying again can help.
    pub class: FailureClass,
    /// The last line of its output that tells of an error.
    pub line: String,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureClass {
    /// It is not known: a few times are tried.
    #[default]
    Unknown,
    /// It cannot.
    Terminal,
    /// It does once something else has changed, as a registry that is down.
    Transient,
    /// It does once there is room on the disk.
    NoSpace,
}

impl std::fmt::Display for Diagnosis {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.cause.is_empty() {
            write!(formatter, ": {}", self.cause)?;
        }
        if !self.line.is_empty() {
            write!(formatter, " ({})", self.line)?;
        }
        Ok(())
    }
}

impl SystemError {
    /// Whether trying again can help.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Failed { diagnosis, .. } => diagnosis.class,
            Self::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => FailureClass::Terminal,
            Self::Run { .. } | Self::TimedOut { .. } => FailureClass::Transient,
            // Each job has an end: what still runs after it does not end.
            Self::Busy { .. } => FailureClass::Terminal,
            Self::Read { .. } | Self::Parse { .. } => FailureClass::Unknown,
        }
    }
}

impl NextAction for SystemError {
    fn next_action(&self) -> Option<&str> {
        const LOG: &str = "look at the host's system log (`journalctl -b`)";
        Some(match self {
            Self::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "use an image that holds this program"
            }
            Self::Failed { diagnosis, .. } => diagnosis.next_action.unwrap_or(LOG),
            Self::Busy { .. } => "stop it on the host (`systemctl stop`)",
            Self::Run { .. } | Self::TimedOut { .. } | Self::Read { .. } | Self::Parse { .. } => LOG,
        })
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}
