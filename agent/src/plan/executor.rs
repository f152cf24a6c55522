//! Carries out one plan at a time: asks the engine what comes next, journals
//! the intent, does it, journals the outcome, hands the outcome to be reported.

mod attempts;
mod error;
mod progress;

use std::sync::Arc;

use proto::plan::{Kind, Plan, Step};
use proto::v1alpha1::{CarriedPlan, FailureReason, StepDone, StepProgress, StepReport};
use tokio::sync::watch;

use crate::ground::error::{describe_error, explain, format_line};
use crate::ground::failpoint::failpoint;
use crate::ground::paths::Root;
use crate::host::observed;
use crate::host::system::{Job, RebootMethod, System};
use crate::plan::engine::{self, Next};
use crate::plan::step_spec::StepSpec;
use crate::plan::steps::{self, Context, StepError};
use crate::state::journal::{JournalError, Outcome};
use crate::state::network_trial;
use attempts::Retry;
pub use error::{ExecutorError, RefusedPlan};
use progress::PlanProgress;

/// What the host allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Plans that the coordinator did not write.
    pub custom: CustomInstructions,
}

/// Whether files and instructions of custom plans are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CustomInstructions {
    /// The plan is refused.
    #[default]
    Refuse,
    /// `--allow-custom-instructions`.
    Allow,
}

/// The newest plan in the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum NewestPlan {
    /// This host never had one.
    None,
    /// As Hello states it.
    Known(CarriedPlan),
    /// The journal cannot be read.
    Unknown,
}

/// What one call of [`Executor::advance`] came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Advance {
    /// There is nothing to do until another plan comes.
    Idle,
    /// To be reported; returned again until [`Executor::reported`].
    Report(StepReport),
    /// A reboot was requested. The process is about to end. If it still runs
    /// after [`REBOOT_DEADLINE`], the next call asks harder.
    Rebooting,
}

/// How long to wait after [`Advance::Rebooting`] before advancing again.
pub const REBOOT_DEADLINE: std::time::Duration = std::time::Duration::from_mins(3);

/// Carries out plans on the host below a root.
pub struct Executor<S> {
    root: Root,
    system: S,
    policy: Policy,
    progress: PlanProgress,
    plan: Option<Arc<Plan>>,
    reboot: Option<OrderedReboot>,
    running: watch::Sender<Option<StepProgress>>,
}

/// A reboot that is no step of a plan. The id of the boot that it ends is all
/// there is to remember: in another boot it has been carried out.
struct OrderedReboot {
    boot_id: String,
    /// How often it was asked for.
    requests: u32,
}

impl<S: System> Executor<S> {
    /// Resumes from the journal. A journal that cannot be read is no
    /// error here: the executor then rejects every plan with the cause.
    ///
    /// # Errors
    /// [`JournalError::Write`] when the state directory cannot be made.
    pub fn open(root: Root, system: S, policy: Policy) -> Result<Self, JournalError> {
        let progress = PlanProgress::open(&root)?;
        let running = watch::Sender::new(None);
        Ok(Self { root, system, policy, progress, plan: None, reboot: None, running })
    }

    /// The newest plan that this host has accepted, and how far it is.
    pub fn newest_plan(&self) -> NewestPlan {
        match self.progress.readable_journal() {
            Ok(None) => NewestPlan::None,
            Ok(Some(journal)) => NewestPlan::Known(journal.carried()),
            Err(_) => NewestPlan::Unknown,
        }
    }

    /// The step that runs, as it starts and ends.
    pub fn running_step(&self) -> watch::Receiver<Option<StepProgress>> {
        self.running.subscribe()
    }

    /// Takes a plan, durably. The same plan again is resumed.
    /// One that is over is not run: who sends it lacks its end, which is
    /// reported once more.
    ///
    /// # Errors
    /// [`RefusedPlan`]; nothing has changed then, but that no step of an older
    /// plan is begun while this one waits for the journal.
    pub fn accept(&mut self, plan: Plan) -> Result<(), RefusedPlan> {
        self.running.send_replace(None);
        let journal =
            self.progress.readable_journal().map_err(|why| RefusedPlan::JournalLost(why.to_owned()))?;
        let boot = observed::boot_id(&self.root).map_err(RefusedPlan::BootId)?;
        match engine::next(&plan, journal, &boot) {
            Next::Refuse(outdated) => return Err(outdated.into()),
            Next::Begin => self.begin_plan(&plan)?,
            Next::Finished => {
                self.plan = None;
                self.progress.report_again();
                return Ok(());
            }
            Next::Run { .. } | Next::Rebooted { .. } | Next::Interrupted { .. } => {}
        }
        self.plan = Some(Arc::new(plan));
        Ok(())
    }

    fn begin_plan(&mut self, plan: &Plan) -> Result<(), RefusedPlan> {
        let custom = |step: &Step| matches!(step, Step::WriteCustomFile(_) | Step::RunCustomInstruction(_));
        if self.policy.custom == CustomInstructions::Refuse && plan.steps.iter().any(custom) {
            return Err(RefusedPlan::Custom);
        }
        if let Err(error) = self.progress.begin_plan(plan) {
            self.plan = None;
            let last_failure = describe_error(&error);
            self.publish_running(plan, 0, Retry { failures: self.progress.failed_writes(), last_failure });
            return Err(RefusedPlan::NotJournaled(error));
        }
        tracing::info!(plan = %plan.id, generation = %plan.generation, "plan accepted");
        Ok(())
    }

    /// Runs at most one step. An outcome that is not yet acknowledged comes
    /// first.
    ///
    /// A call that is dropped half-way leaves the step as a crash would: run it
    /// to its end.
    pub async fn advance(&mut self) -> Result<Advance, ExecutorError> {
        if let Some(report) = self.progress.unreported() {
            return Ok(Advance::Report(report));
        }
        let Some(plan) = self.plan.clone() else {
            return self.advance_reboot().await;
        };
        let advanced = self.advance_plan(&plan).await;
        // The plan holds secrets: it stays only while it is needed.
        if matches!(advanced, Ok(Advance::Idle)) {
            self.plan = None;
        }
        match advanced {
            Ok(Advance::Idle) => self.advance_reboot().await,
            advanced => advanced,
        }
    }

    /// Ends the boot with this id, once no plan runs.
    pub fn order_reboot(&mut self, boot_id: String) {
        if self.reboot.as_ref().is_none_or(|known| known.boot_id != boot_id) {
            self.reboot = Some(OrderedReboot { boot_id, requests: 0 });
        }
    }

    /// Asks in each way once, as the step of a plan does.
    async fn advance_reboot(&mut self) -> Result<Advance, ExecutorError> {
        let Some(OrderedReboot { boot_id, requests }) = &self.reboot else { return Ok(Advance::Idle) };
        let (requests, boot) = (*requests, observed::boot_id(&self.root).map_err(ExecutorError::BootId)?);
        let method = reboot_method(requests).filter(|_| *boot_id == boot);
        let Some(method) = method else {
            if *boot_id == boot {
                tracing::error!(
                    "the host was asked to reboot in every way and did not: look at its console, then reboot it by hand"
                );
            }
            self.reboot = None;
            return Ok(Advance::Idle);
        };
        tracing::info!(?method, "rebooting, as an operator asked for it");
        self.reboot = Some(OrderedReboot { boot_id: boot, requests: requests + 1 });
        self.request_reboot(method).await;
        Ok(Advance::Rebooting)
    }

    async fn advance_plan(&mut self, plan: &Plan) -> Result<Advance, ExecutorError> {
        let boot = observed::boot_id(&self.root).map_err(ExecutorError::BootId)?;
        match engine::next(plan, self.progress.journal(), &boot) {
            Next::Refuse(_) | Next::Begin | Next::Finished => Ok(Advance::Idle),
            Next::Run { index, .. } if let Some(error) = self.judge_network(plan) => {
                log_failure(index, &error);
                self.end_step(plan, index, failed_outcome(error))
            }
            Next::Rebooted { index } => self.end_step(plan, index, Outcome::Done(StepDone::default())),
            Next::Interrupted { index } => {
                // The instruction may run on without the agent that began it.
                let earlier = self.system.earlier_jobs().await;
                let error = earlier.err().map_or_else(interrupted_error, StepError::from);
                self.end_step(plan, index, failed_outcome(error))
            }
            Next::Run { index, step: Step::Reboot } => self.ask_for_reboot(plan, index, &boot).await,
            Next::Run { index, step } => self.run_step(plan, index, step, &boot).await,
        }
    }

    /// A node without its network is not worth another step.
    fn judge_network(&self, plan: &Plan) -> Option<StepError> {
        let trial = network_trial::read_trial(&self.root.state())?;
        let why = trial.reverted().filter(|_| trial.plan_id() == plan.id.as_str())?;
        (plan.kind == Kind::Reprovision).then(|| {
            StepError::new(
                FailureReason::NetworkReverted,
                format!("the network of this plan did not work, the host has its former one again: {why}"),
                "correct spec.network of the MachineInventory, or the network that the host is cabled to",
            )
        })
    }

    async fn run_step(
        &mut self,
        plan: &Plan,
        index: usize,
        step: &Step,
        boot: &str,
    ) -> Result<Advance, ExecutorError> {
        let active = match step {
            Step::UpgradeSystem(_) => steps::next_snapshot(&self.system).await.map(|next| next.number),
            _ => None,
        };
        self.start_step(plan, index, boot, active)?;
        let outcome = self.carry_out(plan, index, step).await;
        self.end_step(plan, index, outcome)
    }

    async fn carry_out(&self, plan: &Plan, index: usize, step: &Step) -> Outcome {
        let spec = StepSpec::spec_of(step);
        tracing::info!(plan = %plan.id, step = index, name = spec.name, "step started");
        failpoint("executor::step::started");
        let context = Context {
            root: &self.root,
            system: &self.system,
            plan_id: &plan.id,
            job: Job::step(&plan.id, index),
            rebooted_from: self.progress.rebooted_from(plan),
            active_at_start: self.progress.active_snapshot(index),
        };
        let publish = |retry: Retry| self.publish_running(plan, index, retry);
        let ended = attempts::run_attempts(step, &spec, context, publish).await;
        failpoint("executor::step::done");
        match ended {
            Ok(done) => Outcome::Done(done),
            Err(error) => {
                log_failure(index, &error);
                failed_outcome(error)
            }
        }
    }

    /// Asks once each way; what follows the last is a failure. Only another
    /// boot id ends this step well.
    async fn ask_for_reboot(
        &mut self,
        plan: &Plan,
        index: usize,
        boot: &str,
    ) -> Result<Advance, ExecutorError> {
        let requests = self.progress.reboot_requests(plan);
        let Some(method) = reboot_method(requests) else {
            let error = StepError::new(
                FailureReason::Timeout,
                "the host was asked to reboot in every way and did not",
                "look at its console for what holds it, then reboot it by hand",
            );
            return self.end_step(plan, index, failed_outcome(error));
        };
        self.start_step(plan, index, boot, None)?;
        tracing::info!(plan = %plan.id, step = index, ?method, "rebooting");
        failpoint("executor::reboot::started");
        self.request_reboot(method).await;
        self.progress.note_reboot_request(plan, requests + 1);
        failpoint("executor::reboot::asked");
        Ok(Advance::Rebooting)
    }

    async fn request_reboot(&self, method: RebootMethod) {
        if let Err(error) = self.system.reboot(method).await {
            // The next attempt asks harder.
            tracing::warn!(?method, error = explain(&error), "cannot ask for a reboot");
        }
    }

    fn publish_running(&self, plan: &Plan, index: usize, retry: Retry) {
        let progress = StepProgress {
            plan_id: plan.id.to_string(),
            generation: plan.generation.0,
            step: step_number(index),
            attempt: self.progress.count_attempts(plan, index) + retry.failures,
            last_failure: retry.last_failure,
        };
        self.running.send_replace(Some(progress));
    }

    fn start_step(
        &mut self,
        plan: &Plan,
        index: usize,
        boot: &str,
        active_snapshot: Option<u32>,
    ) -> Result<(), ExecutorError> {
        let started = self.progress.start_step(index, boot, active_snapshot);
        started.map_err(|error| self.note_unjournaled(plan, index, error))?;
        self.publish_running(plan, index, Retry::default());
        Ok(())
    }

    fn end_step(&mut self, plan: &Plan, index: usize, outcome: Outcome) -> Result<Advance, ExecutorError> {
        self.running.send_replace(None);
        let ended = self.progress.end_step(index, outcome);
        ended.map_err(|error| self.note_unjournaled(plan, index, error))?;
        Ok(self.progress.unreported().map_or(Advance::Idle, Advance::Report))
    }

    /// A failure that is not in the journal is not reported as one: the next
    /// boot would start the node of a plan that has failed.
    fn note_unjournaled(&self, plan: &Plan, index: usize, source: JournalError) -> ExecutorError {
        let last_failure = describe_error(&source);
        self.publish_running(plan, index, Retry { failures: self.progress.failed_writes(), last_failure });
        ExecutorError::Journal { step: index, source }
    }

    /// The coordinator has `report`: it is not returned again, unless
    /// [`Executor::accept`] shows that the coordinator has lost it.
    pub fn reported(&mut self, report: &StepReport) -> Result<(), JournalError> {
        self.progress.acknowledge_report(report)
    }
}

fn log_failure(index: usize, error: &StepError) {
    tracing::error!(step = index, reason = ?error.reason, "{}", format_line(&error.message, Some(&error.next_action)));
}

fn failed_outcome(error: StepError) -> Outcome {
    Outcome::Failed(error.into())
}

fn step_number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn interrupted_error() -> StepError {
    StepError::new(
        FailureReason::Command,
        "the agent or the host stopped while this custom instruction ran; its progress is unknown, so it is not run again",
        "look at the host for what the instruction did, correct it, then write a new plan",
    )
}

/// The way to ask for a reboot after so many requests in vain.
const fn reboot_method(requests: u32) -> Option<RebootMethod> {
    match requests {
        0 => Some(RebootMethod::Orderly),
        1 => Some(RebootMethod::Forced),
        2 => Some(RebootMethod::Immediate),
        _ => None,
    }
}
