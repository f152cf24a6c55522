//! The work of each step: check whether it has taken effect, do it, check again.

mod custom;
mod node;
mod node_state;
mod prepare;
mod upgrade;
mod verify;

use std::path::{Path, PathBuf};

use proto::plan::{PlanId, Step};
use proto::v1alpha1::{Failure, FailureReason, StepDone, StepFailed};

use crate::ground::durable::DurableError;
use crate::ground::error::{NextAction, describe_error};
use crate::ground::paths::Root;
use crate::host::system::{FailureClass, Job, Output, System, SystemError};
use crate::host::wipe::WipeError;
use crate::plan::step_spec::StepSpec;
use crate::state::duty::{self, DutyFileError};
use crate::state::node_identity::NodeIdentityError;
use crate::state::seed::SeedError;

pub(crate) use self::upgrade::next_snapshot;

/// What a step can see.
pub(crate) struct Context<'a, S> {
    pub(crate) root: &'a Root,
    pub(crate) system: &'a S,
    pub(crate) plan_id: &'a PlanId,
    pub(crate) job: Job,
    /// The boot in which the plan asked for its reboot.
    pub(crate) rebooted_from: Option<&'a str>,
    /// The snapshot that was to boot next when this boot first started the step.
    pub(crate) active_at_start: Option<u32>,
}

/// The outcome of a step that took effect.
fn step_done(output: impl Into<String>) -> StepDone {
    StepDone { output: output.into(), system: None }
}

/// Why a step is given up.
#[derive(Clone, Debug)]
pub(crate) struct StepError {
    pub(crate) reason: FailureReason,
    pub(crate) message: String,
    pub(crate) next_action: String,
    pub(crate) output: String,
    pub(crate) class: FailureClass,
}

impl StepError {
    /// A failure that another attempt does not change.
    pub(crate) fn new(
        reason: FailureReason,
        message: impl Into<String>,
        next_action: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            message: message.into(),
            next_action: next_action.into(),
            output: String::new(),
            class: FailureClass::Terminal,
        }
    }

    fn with_class(self, class: FailureClass) -> Self {
        Self { class, ..self }
    }

    fn with_output(self, output: Output) -> Self {
        Self { output: output.0, ..self }
    }

    fn from_error(reason: FailureReason, error: &(impl NextAction + 'static)) -> Self {
        Self::new(reason, describe_error(error), error.next_action().unwrap_or_default())
    }
}

impl From<StepError> for StepFailed {
    fn from(error: StepError) -> Self {
        let StepError { reason, message, next_action, output, class: _ } = error;
        Self { failure: Some(Failure { reason: reason.into(), message, next_action }), output }
    }
}

/// The reason of a file that cannot be written, read or removed.
pub(crate) fn file_reason(kind: std::io::ErrorKind) -> FailureReason {
    match kind {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => FailureReason::NoSpace,
        _ => FailureReason::InputOutput,
    }
}

fn file_class(kind: std::io::ErrorKind) -> FailureClass {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match kind {
        StorageFull | QuotaExceeded => FailureClass::NoSpace,
        ReadOnlyFilesystem => FailureClass::Terminal,
        _ => FailureClass::Unknown,
    }
}

fn file_error(kind: std::io::ErrorKind, error: &(impl NextAction + 'static)) -> StepError {
    StepError::from_error(file_reason(kind), error).with_class(file_class(kind))
}

impl From<DurableError> for StepError {
    fn from(error: DurableError) -> Self {
        file_error(error.source.kind(), &error)
    }
}

impl From<WipeError> for StepError {
    fn from(error: WipeError) -> Self {
        match &error {
            WipeError::Remove { source, .. } => file_error(source.kind(), &error),
            WipeError::Link(_) => Self::from_error(FailureReason::InputOutput, &error),
        }
    }
}

impl From<SeedError> for StepError {
    fn from(error: SeedError) -> Self {
        match error {
            SeedError::Write(error) => error.into(),
            SeedError::Read { ref source, .. } => file_error(source.kind(), &error),
        }
    }
}

impl From<DutyFileError> for StepError {
    fn from(error: DutyFileError) -> Self {
        match error {
            DutyFileError::Write(error) => error.into(),
            DutyFileError::Read { ref source, .. } => file_error(source.kind(), &error),
            DutyFileError::Parse { .. } | DutyFileError::Refused(_) | DutyFileError::Stale { .. } => {
                Self::from_error(FailureReason::InputOutput, &error)
            }
        }
    }
}

impl From<NodeIdentityError> for StepError {
    fn from(error: NodeIdentityError) -> Self {
        match error {
            NodeIdentityError::Write(error) => error.into(),
            NodeIdentityError::Read { ref source, .. } => file_error(source.kind(), &error),
            NodeIdentityError::Parse(_) | NodeIdentityError::Unsafe(_) => {
                Self::from_error(FailureReason::Refused, &error)
            }
        }
    }
}

impl From<SystemError> for StepError {
    fn from(error: SystemError) -> Self {
        let class = error.class();
        let reason = match &error {
            SystemError::Failed { .. } if class == FailureClass::NoSpace => FailureReason::NoSpace,
            SystemError::Run { .. } | SystemError::Parse { .. } | SystemError::Failed { .. } => {
                FailureReason::Command
            }
            SystemError::TimedOut { .. } | SystemError::Busy { .. } => FailureReason::Timeout,
            SystemError::Read { .. } => FailureReason::InputOutput,
        };
        let failure = Self::from_error(reason, &error).with_class(class);
        match error {
            SystemError::Failed { output, .. } | SystemError::TimedOut { output, .. } => {
                failure.with_output(output)
            }
            _ => failure,
        }
    }
}

/// Runs one step to its end. A reboot is not run here: it has none.
pub(crate) async fn run_step<S: System>(
    step: &Step,
    context: &Context<'_, S>,
) -> Result<StepDone, StepError> {
    match step {
        Step::RequestCleanup => prepare::request_cleanup(context.root, context.plan_id),
        Step::CleanCloudInit => prepare::clean_cloud_init(context).await,
        Step::WriteSeed(seed) => prepare::write_seed(context.root, context.plan_id, seed),
        Step::WriteNodeIdentity(identity) => prepare::write_identity(context.root, identity),
        Step::RemoveNodeIdentity => prepare::remove_identity(context.root),
        Step::UpgradeSystem(upgrade) => upgrade::upgrade_system(context, upgrade).await,
        Step::SyncFileSystems => Ok(context.system.sync().await.map(|()| StepDone::default())?),
        Step::Reboot => Ok(StepDone::default()),
        Step::VerifySystem(image) => verify::verify_system(context, image).await,
        Step::StopKubelet => {
            duty::end_duty(context.root)?;
            node::stop_kubelet(context.system).await
        }
        Step::RemoveWorkload => node::remove_workload(context.system).await,
        Step::StopContainerd => node::stop_containerd(context.system).await,
        Step::RemoveNodeState => node_state::remove_node_state(context).await,
        Step::WriteCustomFile(file) => custom::write_file(context, file).await,
        Step::RunCustomInstruction(instruction) => custom::run_instruction(context, instruction).await,
    }
}

/// The error of a step whose deadline has passed; `last` is the failure of the
/// attempt before.
pub(crate) fn timed_out(spec: &StepSpec, last: Option<StepError>) -> StepError {
    let minutes = spec.deadline.as_secs() / 60;
    let message = format!("{} did not end within {minutes} minutes", spec.name);
    match last {
        Some(last) => StepError { message: format!("{message}: {}", last.message), ..last },
        None => StepError::new(FailureReason::Timeout, message, spec.timeout_action),
    }
}

/// Paths for a message.
fn list_paths(paths: &[PathBuf]) -> String {
    let shown = |path: &PathBuf| Path::display(path).to_string();
    paths.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
