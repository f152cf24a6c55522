//! Runs one plan at a time: asks the engine for the next action, journals the intent, acts,
//! journals the outcome, and passes the outcome on to be reported.

mod progress;

use std::sync::Arc;

use proto::plan::{Kind, Plan, Step};
use proto::v1alpha1::{CarriedPlan, FailureReason, StepDone, StepProgress, StepReport};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::ground::failpoint::failpoint;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::observed;
use crate::host::system::{Job, RebootMethod, System};
use crate::plan::engine::{self, Next};
use crate::plan::steps::{self, Context, StepSpec};
use crate::state::journal::Outcome;
use crate::state::network_trial;
pub use progress::LostJournal;
use progress::PlanProgress;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The rule for plans that the coordinator did not write.
    pub custom: CustomInstructions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CustomInstructions {
    /// A plan with files or instructions of its own is refused.
    #[default]
    Refuse,
    /// `--allow-custom-instructions`.
    Allow,
}

/// The newest plan in the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum NewestPlan {
    /// This host never had a plan.
    None,
    /// The plan as Hello states it.
    Known(CarriedPlan),
    Unknown(LostJournal),
}

/// Why a plan is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RefusedPlan {
    #[error(transparent)]
    Refused(Failure),
    /// The plan cannot be journaled, so it must not begin. The plan is offered again later.
    #[error(transparent)]
    NotJournaled(Failure),
}

/// The result of one call of [`Executor::advance`].
#[derive(Clone, Debug, PartialEq)]
pub enum Advance {
    /// There is nothing to do until another plan arrives.
    Idle,
    /// The report is returned again until [`Executor::reported`].
    Report(StepReport),
    /// A reboot was requested, and the process is about to end. If the process still runs after
    /// [`REBOOT_DEADLINE`], the next call uses a harder method.
    Rebooting,
}

/// Time to wait after [`Advance::Rebooting`] before the next call.
pub const REBOOT_DEADLINE: std::time::Duration = std::time::Duration::from_mins(3);

pub struct Executor<S> {
    root: Root,
    system: S,
    policy: Policy,
    progress: PlanProgress,
    plan: Option<Arc<Plan>>,
    reboot: Option<OrderedReboot>,
    running: watch::Sender<Option<StepProgress>>,
}

/// A reboot that is no step of a plan. In a boot with another id it has been carried out.
struct OrderedReboot {
    boot_id: String,
    /// Number of requests.
    requests: u32,
}

impl<S: System> Executor<S> {
    /// Resumes from the journal. An unreadable journal is no error here, because the executor then
    /// refuses every plan with the cause.
    pub fn open(root: Root, system: S, policy: Policy) -> Result<Self, Failure> {
        let progress = PlanProgress::open(&root)?;
        let running = watch::Sender::new(None);
        Ok(Self { root, system, policy, progress, plan: None, reboot: None, running })
    }

    /// The newest plan that this host has accepted, and its progress.
    pub fn newest_plan(&self) -> NewestPlan {
        match self.progress.readable_journal() {
            Ok(None) => NewestPlan::None,
            Ok(Some(journal)) => NewestPlan::Known(journal.carried()),
            Err(lost) => NewestPlan::Unknown(lost.clone()),
        }
    }

    /// The running step; the value changes when a step starts and ends.
    pub fn running_step(&self) -> watch::Receiver<Option<StepProgress>> {
        self.running.subscribe()
    }

    /// Accepts a plan durably, or resumes it.
    ///
    /// A finished plan is not run again; its last outcome is reported again because the coordinator
    /// lost it. A refusal changes nothing, except that no step of an older plan begins while the
    /// new plan waits for the journal.
    pub fn accept(&mut self, plan: Plan) -> Result<(), RefusedPlan> {
        self.running.send_replace(None);
        let journal = self
            .progress
            .readable_journal()
            .map_err(|lost| RefusedPlan::Refused(refuse_without_journal(lost)))?;
        let boot = observed::boot_id(&self.root).map_err(RefusedPlan::Refused)?;
        match engine::next(&plan, journal, &boot) {
            Next::Refuse(outdated) => return Err(RefusedPlan::Refused(outdated)),
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
        if plan.steps.iter().any(Step::is_custom) && self.policy.custom == CustomInstructions::Refuse {
            let next_action = "start its agent with --allow-custom-instructions, or write another plan";
            let refusal = Failure::refused("this host does not run custom instructions", next_action);
            return Err(RefusedPlan::Refused(refusal));
        }
        if let Err(error) = self.progress.begin_plan(plan) {
            self.plan = None;
            let last_failure = error.message.clone();
            self.publish_running(plan, 0, Retry { failures: self.progress.failed_writes(), last_failure });
            return Err(RefusedPlan::NotJournaled(error));
        }
        tracing::info!(plan = %plan.id, generation = %plan.generation, "plan accepted");
        Ok(())
    }

    /// Runs at most one step; an outcome that is not acknowledged yet comes first.
    ///
    /// The future must run to its end, because dropping it leaves the step as a crash would.
    pub async fn advance(&mut self) -> Result<Advance, Failure> {
        if let Some(report) = self.progress.unreported() {
            return Ok(Advance::Report(report));
        }
        let Some(plan) = self.plan.clone() else {
            return self.advance_reboot().await;
        };
        let advanced = self.advance_plan(&plan).await;
        // The plan holds secrets, so it is dropped as soon as it is not needed.
        if matches!(advanced, Ok(Advance::Idle)) {
            self.plan = None;
        }
        match advanced {
            Ok(Advance::Idle) => self.advance_reboot().await,
            advanced => advanced,
        }
    }

    /// Removes the journal that cannot be read, if it is the one with this checksum.
    pub fn forget_journal(&mut self, checksum: &str) -> Result<(), Failure> {
        self.progress.forget_journal(checksum)
    }

    /// Ends the boot with this id after the running plan.
    pub fn order_reboot(&mut self, boot_id: String) {
        if self.reboot.as_ref().is_none_or(|known| known.boot_id != boot_id) {
            self.reboot = Some(OrderedReboot { boot_id, requests: 0 });
        }
    }

    /// Tries each method once, as the reboot of a plan does.
    async fn advance_reboot(&mut self) -> Result<Advance, Failure> {
        let Some(OrderedReboot { boot_id, requests }) = &self.reboot else { return Ok(Advance::Idle) };
        let (requests, boot) = (*requests, observed::boot_id(&self.root)?);
        let method = reboot_method(requests).filter(|_| *boot_id == boot);
        let Some(method) = method else {
            if *boot_id == boot {
                tracing::error!(
                    "host did not reboot by any method, look at its console and reboot it by hand"
                );
            }
            self.reboot = None;
            return Ok(Advance::Idle);
        };
        tracing::info!(?method, "rebooting on an operator's request");
        self.reboot = Some(OrderedReboot { boot_id: boot, requests: requests + 1 });
        self.request_reboot(method).await;
        Ok(Advance::Rebooting)
    }

    async fn advance_plan(&mut self, plan: &Plan) -> Result<Advance, Failure> {
        let boot = observed::boot_id(&self.root)?;
        match engine::next(plan, self.progress.journal(), &boot) {
            Next::Refuse(_) | Next::Begin | Next::Finished => Ok(Advance::Idle),
            Next::Run { index, .. } if let Some(error) = self.find_network_failure(plan) => {
                log_failure(index, &error);
                self.end_step(plan, index, failed_outcome(error))
            }
            Next::Rebooted { index } => self.end_step(plan, index, Outcome::Done(StepDone::default())),
            Next::Interrupted { index } => {
                // The instruction may still run without the agent that began it.
                let earlier = self.system.earlier_jobs().await;
                let error = earlier.err().unwrap_or_else(interrupted_failure);
                self.end_step(plan, index, failed_outcome(error))
            }
            Next::Run { index, step: Step::Reboot } => self.ask_for_reboot(plan, index, &boot).await,
            Next::Run { index, step } => self.run_step(plan, index, step, &boot).await,
        }
    }

    /// A node without its network is not worth another step.
    fn find_network_failure(&self, plan: &Plan) -> Option<Failure> {
        let trial = network_trial::read_trial(&self.root.state())?;
        let why = trial.reverted().filter(|_| trial.plan_id() == plan.id.as_str())?;
        (plan.kind == Kind::Reprovision).then(|| {
            Failure::new(
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
    ) -> Result<Advance, Failure> {
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
        let ended =
            run_attempts(step, &spec, context, |retry| self.publish_running(plan, index, retry)).await;
        failpoint("executor::step::done");
        match ended {
            Ok(done) => Outcome::Done(done),
            Err(error) => {
                log_failure(index, &error);
                failed_outcome(error)
            }
        }
    }

    /// Tries each method once; a request after the last method is a failure. Only another boot id
    /// completes this step.
    async fn ask_for_reboot(&mut self, plan: &Plan, index: usize, boot: &str) -> Result<Advance, Failure> {
        let requests = self.progress.reboot_requests(plan);
        let Some(method) = reboot_method(requests) else {
            let error = Failure::new(
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
        self.progress.record_reboot_request(plan, requests + 1);
        failpoint("executor::reboot::asked");
        Ok(Advance::Rebooting)
    }

    async fn request_reboot(&self, method: RebootMethod) {
        if let Err(error) = self.system.reboot(method).await {
            // The next attempt uses a harder method.
            tracing::warn!(?method, %error, "cannot request a reboot");
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
    ) -> Result<(), Failure> {
        let started = self.progress.start_step(index, boot, active_snapshot);
        started.map_err(|error| self.record_unjournaled(plan, index, error))?;
        self.publish_running(plan, index, Retry::default());
        Ok(())
    }

    fn end_step(&mut self, plan: &Plan, index: usize, outcome: Outcome) -> Result<Advance, Failure> {
        self.running.send_replace(None);
        let ended = self.progress.end_step(index, outcome);
        ended.map_err(|error| self.record_unjournaled(plan, index, error))?;
        Ok(self.progress.unreported().map_or(Advance::Idle, Advance::Report))
    }

    /// A failure that is not in the journal is not reported as a failure of the step, because the
    /// next boot would start the node of a plan that has failed.
    fn record_unjournaled(&self, plan: &Plan, index: usize, failure: Failure) -> Failure {
        let last_failure = failure.message.clone();
        self.publish_running(plan, index, Retry { failures: self.progress.failed_writes(), last_failure });
        failure.context(format_args!("cannot journal step {index}"))
    }

    /// Records that the coordinator has `report`. The report is not returned again, unless
    /// [`Executor::accept`] shows that the coordinator has lost it.
    pub fn reported(&mut self, report: &StepReport) -> Result<(), Failure> {
        self.progress.acknowledge_report(report)
    }
}

fn log_failure(index: usize, error: &Failure) {
    tracing::error!(step = index, reason = ?error.reason, %error, "step failed");
}

fn failed_outcome(error: Failure) -> Outcome {
    Outcome::Failed(error.into())
}

fn refuse_without_journal(lost: &LostJournal) -> Failure {
    Failure::input_output(
        format!("{}: this host runs no plan, so that none runs twice", lost.message),
        "the condition JournalReadable of the MachineInventory has the command that removes the journal",
    )
}

fn step_number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn interrupted_failure() -> Failure {
    Failure::new(
        FailureReason::Command,
        "the agent or the host stopped while this custom instruction ran; its progress is unknown, so it is not run again",
        "look at the host for what the instruction did, correct it, then write a new plan",
    )
}

/// The method after this many requests without a reboot.
const fn reboot_method(requests: u32) -> Option<RebootMethod> {
    match requests {
        0 => Some(RebootMethod::Orderly),
        1 => Some(RebootMethod::Forced),
        2 => Some(RebootMethod::Immediate),
        _ => None,
    }
}

/// Progress of a step that runs again.
#[derive(Debug, Default)]
struct Retry {
    /// Number of failed attempts of this agent.
    failures: u32,
    /// The message of the last failure.
    last_failure: String,
}

/// Runs the step until it succeeds, cannot succeed or reaches its deadline. `publish` is called
/// before each attempt but the first.
async fn run_attempts<S: System>(
    step: &Step,
    spec: &StepSpec,
    context: Context<'_, S>,
    publish: impl Fn(Retry),
) -> Result<StepDone, Failure> {
    let mut deadline = Instant::now() + spec.deadline;
    let mut backoff = spec.retries.backoff();
    let mut failures = 0;
    let mut last = None;
    loop {
        let Ok(ended) = run_attempt(step, &context, &mut deadline).await else {
            return Err(steps::timed_out(spec, last));
        };
        let error = match ended {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failures += 1;
        let Some(backoff) = backoff.as_mut().filter(|_| spec.retries.allows_another(error.class, failures))
        else {
            return Err(error);
        };
        tracing::warn!(step = spec.name, failures, %error, "attempt failed, retrying");
        publish(Retry { failures, last_failure: error.message.clone() });
        if timeout_at(deadline, backoff.wait()).await.is_err() {
            return Err(steps::timed_out(spec, Some(error)));
        }
        last = Some(error);
    }
}

/// Waits for the jobs of earlier agents, because a step that checks its effect would judge a system
/// that still changes. This time does not count towards the deadline of the step.
async fn run_attempt<S: System>(
    step: &Step,
    context: &Context<'_, S>,
    deadline: &mut Instant,
) -> Result<Result<StepDone, Failure>, Elapsed> {
    let start = Instant::now();
    if let Err(error) = context.system.earlier_jobs().await {
        return Ok(Err(error));
    }
    *deadline += start.elapsed();
    timeout_at(*deadline, steps::run_step(step, context)).await
}
