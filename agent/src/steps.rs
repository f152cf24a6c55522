//! The work of each step: look whether it has taken effect, do it, look again.

mod cleanup;
mod cloud_init;
mod custom;
mod node;
mod node_identity;
mod node_state;
mod seed;
mod upgrade;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::plan::{PlanId, Step};
use proto::v1alpha1::{FailureReason, SystemState};

use crate::boot::kubelet::KubeletError;
use crate::boot::seed::SeedError;
use crate::boot::wipe::WipeError;
use crate::console::{NEXT, chain};
use crate::durable::DurableError;
use crate::paths::Root;
use crate::system::{Job, System, SystemError};

/// What a step can see.
pub(crate) struct Context<'a, S> {
    pub(crate) root: &'a Root,
    pub(crate) system: &'a S,
    pub(crate) plan_id: &'a PlanId,
    pub(crate) job: Job,
    /// The step was started before, in this boot: what it wrote then is there
    /// even if nothing was flushed.
    pub(crate) again: Again,
    /// The boot in which the plan asked for its reboot.
    pub(crate) rebooted_from: Option<&'a str>,
}

/// Whether a step was started before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Never, or in a boot whose unflushed writes are lost.
    No,
    /// In this boot.
    SameBoot,
}

/// A step that has taken effect.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) output: String,
    pub(crate) system: Option<SystemState>,
}

impl Done {
    fn said(output: impl Into<String>) -> Self {
        Self { output: output.into(), system: None }
    }
}

/// A step that is given up, with its cause and the next action.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: FailureReason,
    pub(crate) message: String,
    pub(crate) output: String,
}

impl Failure {
    pub(crate) fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), output: String::new() }
    }

    /// Of a file that could not be written, read or removed.
    fn of_file(error: &dyn std::error::Error, kind: std::io::ErrorKind) -> Self {
        let (reason, action) = match kind {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                (FailureReason::NoSpace, "free space on the host's persistent partition")
            }
            std::io::ErrorKind::ReadOnlyFilesystem => {
                (FailureReason::InputOutput, "check the disk, its file system is read-only")
            }
            _ => (FailureReason::InputOutput, "check the host's disk and its kernel log"),
        };
        Self::new(reason, with_action(chain(error), action))
    }
}

impl From<DurableError> for Failure {
    fn from(error: DurableError) -> Self {
        Self::of_file(&error, error.source.kind())
    }
}

impl From<WipeError> for Failure {
    fn from(error: WipeError) -> Self {
        let kind = match &error {
            WipeError::Remove { source, .. } => source.kind(),
            WipeError::Link(_) => std::io::ErrorKind::Other,
        };
        Self::of_file(&error, kind)
    }
}

impl From<SeedError> for Failure {
    fn from(error: SeedError) -> Self {
        match error {
            SeedError::Write(error) => error.into(),
            SeedError::Read { ref source, .. } => Self::of_file(&error, source.kind()),
        }
    }
}

impl From<KubeletError> for Failure {
    fn from(error: KubeletError) -> Self {
        match error {
            KubeletError::Write(error) => error.into(),
            KubeletError::Read { ref source, .. } => Self::of_file(&error, source.kind()),
            KubeletError::Parse(_) | KubeletError::Unsafe(_) => {
                Self::new(FailureReason::Refused, chain(&error))
            }
        }
    }
}

impl From<SystemError> for Failure {
    fn from(error: SystemError) -> Self {
        let text = chain(&error);
        let log = "look at the host's system log (`journalctl -b`)";
        let (reason, action, output) = match error {
            SystemError::Run { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                (FailureReason::Command, "use an image that holds this program", String::new())
            }
            SystemError::Run { .. } | SystemError::Parse { .. } => {
                (FailureReason::Command, log, String::new())
            }
            SystemError::Failed { output, .. } => (FailureReason::Command, log, output.0),
            SystemError::TimedOut { output, .. } => (FailureReason::Timeout, log, output.0),
            SystemError::Busy { .. } => {
                (FailureReason::Timeout, "stop it on the host (`systemctl stop`)", String::new())
            }
            SystemError::Read { .. } => (FailureReason::InputOutput, log, String::new()),
        };
        Self { reason, message: with_action(text, action), output }
    }
}

/// The action that the error itself names is the better one.
fn with_action(text: String, action: &str) -> String {
    if text.contains(NEXT) { text } else { format!("{text}{NEXT}{action}") }
}

/// Runs one step to its end. A reboot is not run here: it has none.
pub(crate) async fn run<S: System>(step: &Step, context: &Context<'_, S>) -> Result<Done, Failure> {
    match step {
        Step::RequestCleanup => cleanup::request(context.root, context.plan_id),
        Step::CleanCloudInit => cloud_init::clean(context).await,
        Step::WriteSeed(seed) => seed::write(context.root, seed),
        Step::WriteNodeIdentity(identity) => node_identity::write(context.root, identity),
        Step::RemoveNodeIdentity => node_identity::remove(context.root),
        Step::UpgradeSystem(image) => upgrade::upgrade(context, image).await,
        Step::SyncFileSystems => Ok(context.system.sync().await.map(|()| Done::default())?),
        Step::Reboot => Ok(Done::default()),
        Step::VerifySystem(image) => verify::verify(context, image).await,
        Step::StopKubelet => node::stop_kubelet(context.system).await,
        Step::RemoveWorkload => node::remove_workload(context.system).await,
        Step::StopContainerd => node::stop_containerd(context.system).await,
        Step::RemoveNodeState => node_state::remove(context).await,
        Step::WriteCustomFile(file) => custom::write_file(context.root, file),
        Step::RunCustomInstruction(instruction) => custom::run(context, instruction).await,
    }
}

/// How long a step may take before it is given up.
#[must_use]
pub(crate) fn deadline(step: &Step) -> Duration {
    Duration::from_mins(match step {
        Step::RequestCleanup
        | Step::WriteSeed(_)
        | Step::WriteNodeIdentity(_)
        | Step::RemoveNodeIdentity
        | Step::WriteCustomFile(_) => 1,
        Step::CleanCloudInit | Step::StopKubelet | Step::StopContainerd | Step::Reboot => 5,
        Step::SyncFileSystems | Step::RemoveWorkload | Step::RemoveNodeState => 10,
        Step::VerifySystem(_) | Step::RunCustomInstruction(_) => 30,
        Step::UpgradeSystem(_) => 60,
    })
}

/// What a person does when the deadline has passed.
pub(crate) fn timed_out(step: &Step) -> Failure {
    let minutes = deadline(step).as_secs() / 60;
    let action = match step {
        Step::VerifySystem(_) => "look at cloud-init's log on the host (/var/log/cloud-init-output.log)",
        Step::UpgradeSystem(_) => "check that the image's source is reachable and fast enough",
        Step::RequestCleanup
        | Step::CleanCloudInit
        | Step::WriteSeed(_)
        | Step::WriteNodeIdentity(_)
        | Step::RemoveNodeIdentity
        | Step::SyncFileSystems
        | Step::Reboot
        | Step::StopKubelet
        | Step::RemoveWorkload
        | Step::StopContainerd
        | Step::RemoveNodeState
        | Step::WriteCustomFile(_)
        | Step::RunCustomInstruction(_) => "check the host's disk and its system log",
    };
    let name = step.name();
    let message = format!("{name} did not end within {minutes} minutes; next: {action}");
    Failure::new(FailureReason::Timeout, message)
}

/// Paths as a person reads them, without the root of a test.
fn list(paths: &[PathBuf]) -> String {
    let shown = |path: &PathBuf| Path::display(path).to_string();
    paths.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
