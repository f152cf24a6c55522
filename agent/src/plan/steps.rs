//! The properties and the work of each step: check whether the step has taken effect, do it, check
//! again.

mod custom;
mod node;
mod node_state;
mod prepare;
mod upgrade;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use proto::plan::{PlanId, Step};
use proto::v1alpha1::{FailureReason, StepDone};

use crate::ground::backoff::Backoff;
use crate::ground::failure::{Failure, FailureClass};
use crate::ground::paths::Root;
use crate::host::system::{Job, System};
use crate::state::duty;

pub(crate) use self::upgrade::next_snapshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepSpec {
    /// The name in journals, logs and reports.
    pub(crate) name: &'static str,
    /// The step is given up at this deadline, which is longer than that of each command that the
    /// step runs.
    pub(crate) deadline: Duration,
    /// True if the step may run again although its progress is unknown, because it first checks
    /// whether it has taken effect.
    pub(crate) repeatable: bool,
    /// The attempts within the deadline.
    pub(crate) retries: RetryPolicy,
    /// The operator's next action after the deadline.
    pub(crate) timeout_action: &'static str,
}

/// The reaction to a failure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// The step is given up.
    Never,
    /// Another attempt, after a wait whose upper bound doubles.
    Backoff { first: Duration, longest: Duration },
}

/// Number of attempts if the failure is neither transient nor terminal.
const UNKNOWN_ATTEMPTS: u32 = 3;
/// Number of attempts if the disk is full: nothing frees it in between, and each attempt may pull an
/// image from the registry.
const NO_SPACE_ATTEMPTS: u32 = 3;

impl RetryPolicy {
    /// The waits between attempts; `None` if there is only one attempt.
    pub(crate) fn backoff(self) -> Option<Backoff> {
        match self {
            Self::Never => None,
            Self::Backoff { first, longest } => Some(Backoff::between(first, longest)),
        }
    }

    /// True if another attempt follows this number of failed ones, the last of which failed with
    /// this class.
    pub(crate) fn allows_another(self, class: FailureClass, attempts: u32) -> bool {
        self != Self::Never
            && match class {
                FailureClass::Transient => true,
                FailureClass::NoSpace => attempts < NO_SPACE_ATTEMPTS,
                FailureClass::Unknown => attempts < UNKNOWN_ATTEMPTS,
                FailureClass::Terminal => false,
            }
    }
}

const fn backoff(first: u64, longest: u64) -> RetryPolicy {
    RetryPolicy::Backoff { first: Duration::from_secs(first), longest: Duration::from_secs(longest) }
}

pub(crate) struct Context<'a, S> {
    pub(crate) root: &'a Root,
    pub(crate) system: &'a S,
    pub(crate) plan_id: &'a PlanId,
    pub(crate) job: Job,
    /// The boot in which the plan requested its reboot.
    pub(crate) rebooted_from: Option<&'a str>,
    /// The snapshot that was to boot next when this boot first started the step.
    pub(crate) active_at_start: Option<u32>,
}

/// The outcome of a step that took effect.
fn step_done(output: impl Into<String>) -> StepDone {
    StepDone { output: output.into(), system: None }
}

/// Runs one step to its end. The executor carries out reboots itself.
pub(crate) async fn run_step<S: System>(step: &Step, context: &Context<'_, S>) -> Result<StepDone, Failure> {
    match step {
        Step::RequestCleanup => {
            node::refuse_unsupported(context.root, context.system).await?;
            prepare::request_cleanup(context.root, context.plan_id)
        }
        Step::CleanCloudInit => prepare::clean_cloud_init(context).await,
        Step::WriteSeed(seed) => prepare::write_seed(context.root, context.plan_id, seed),
        Step::WriteNodeIdentity(identity) => prepare::write_identity(context.root, identity),
        Step::RemoveNodeIdentity => prepare::remove_identity(context.root),
        Step::UpgradeSystem(upgrade) => upgrade::upgrade_system(context, upgrade).await,
        Step::SyncFileSystems => {
            context.system.sync().await?;
            let system = node_state::state_after_clean(context).await?;
            Ok(StepDone { output: String::new(), system: system.map(Box::new) })
        }
        Step::Reboot => Ok(StepDone::default()),
        Step::VerifySystem { image } => verify::verify_system(context, image).await,
        Step::StopKubelet => {
            node::refuse_unsupported(context.root, context.system).await?;
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

const CHECK_HOST: &str = "check the host's disk and its system log";

impl StepSpec {
    /// The properties of a step.
    pub(crate) fn spec_of(step: &Step) -> Self {
        let spec = |minutes| Self {
            name: step.name(),
            deadline: Duration::from_mins(minutes),
            repeatable: true,
            retries: backoff(2, 30),
            timeout_action: CHECK_HOST,
        };
        match step {
            Step::RequestCleanup
            | Step::WriteSeed(_)
            | Step::WriteNodeIdentity(_)
            | Step::RemoveNodeIdentity => Self { retries: backoff(1, 10), ..spec(1) },
            // A job of systemd may take a minute longer than its command.
            Step::CleanCloudInit | Step::StopKubelet | Step::WriteCustomFile(_) => spec(6),
            // The executor requests the reboot by each method once.
            Step::Reboot => Self { retries: RetryPolicy::Never, ..spec(6) },
            Step::SyncFileSystems => spec(10),
            Step::RemoveWorkload | Step::StopContainerd => spec(20),
            // The step overwrites secrets, and the database of etcd may have gigabytes.
            Step::RemoveNodeState => spec(30),
            Step::VerifySystem { .. } => Self {
                timeout_action: "look at cloud-init's log on the host (/var/log/cloud-init-output.log)",
                ..spec(30)
            },
            Step::UpgradeSystem(_) => Self {
                timeout_action: "check that the image's source is reachable and fast enough",
                retries: backoff(5, 120),
                ..spec(60)
            },
            // The command is not the coordinator's own, so the agent cannot find out whether it
            // took effect.
            Step::RunCustomInstruction(_) => {
                Self { repeatable: false, retries: RetryPolicy::Never, ..spec(30) }
            }
        }
    }
}

/// The failure of a step at its deadline; `last` is the failure of the previous attempt.
pub(crate) fn timed_out(spec: &StepSpec, last: Option<Failure>) -> Failure {
    let minutes = spec.deadline.as_secs() / 60;
    let message = format!("{} did not end within {minutes} minutes", spec.name);
    match last {
        Some(last) => Failure { message: format!("{message}: {}", last.message), ..last },
        None => Failure::new(FailureReason::Timeout, message, spec.timeout_action),
    }
}

fn list_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
