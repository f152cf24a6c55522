//! The verb `run-plan`: runs a plan that an upstream system-agent has staged (decision 67).
//!
//! The upstream agent writes the files of a plan record, runs its one instruction, and repeats both
//! at each of its starts. The journal makes each repetition continue where the plan stands.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;

use proto::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Inline, Plan, PlanId, ReplaceContents, Secret, Step,
    TypedPlan,
};
use proto::staged::{self, Named, NeverStaged};
use proto::v1alpha1::step_report::Outcome;
use proto::v1alpha1::{StepFailed, StepReport};
use tokio::time::sleep;

use crate::ground::durable;
use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::Root;
use crate::host::system::System;
use crate::plan::executor::{Advance, Executor, Policy, REBOOT_DEADLINE, RefusedPlan};

/// Runs the staged plan to its end, and writes a line to `output` for each step that ends.
///
/// `execution` is the directory of the instruction. The process waits for the plan's reboot, so that
/// the upstream agent records the plan as applied only after the new system is verified.
pub async fn run_staged_plan<S: System>(
    root: &Root,
    system: S,
    id: &PlanId,
    execution: Option<&OsStr>,
    output: &mut impl Write,
) -> Result<(), Failure> {
    // The files are removed also if another process holds the lock, because they hold secrets.
    let (lock, plan) = (lock_plans(root), take_plan(root, id, execution));
    let (_lock, plan) = (lock?, plan?);
    let steps: Vec<_> = plan.steps.iter().map(Step::name).collect();
    let mut executor = Executor::open(root.clone(), system, Policy::default())?;
    executor.accept(plan).map_err(|refused| match refused {
        RefusedPlan::Refused(failure) | RefusedPlan::NotJournaled(failure) => failure,
    })?;
    loop {
        match executor.advance().await? {
            Advance::Idle => return Ok(()),
            Advance::Rebooting => sleep(REBOOT_DEADLINE).await,
            Advance::Report(report) => {
                executor.reported(&report)?;
                print_outcome(&steps, report, output)?;
            }
        }
    }
}

/// The lock of a host's plans; dropping it unlocks them.
#[derive(Debug)]
pub struct PlansLock(File);

impl Drop for PlansLock {
    /// A child that was forked meanwhile may have the file until it executes its program, so that
    /// closing the file would not unlock it.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "cannot unlock the plans of this host; the end of the process unlocks them");
        }
    }
}

/// Locks the plans of this host for the process that holds the result, because two processes would
/// overwrite each other's journal.
pub fn lock_plans(root: &Root) -> Result<PlansLock, Failure> {
    let path = root.runtime().join("plans.lock");
    let lock = fs::create_dir_all(root.runtime()).and_then(|()| File::create(&path)).on("open", &path)?;
    match lock.try_lock() {
        Ok(()) => Ok(PlansLock(lock)),
        Err(TryLockError::WouldBlock) => Err(Failure::refused(
            "another process of baremetal-agent runs the plans of this host",
            "disable the upstream agent of this host, or stop and disable baremetal-agent.service",
        )),
        Err(TryLockError::Error(error)) => Err(error).on("lock", &path),
    }
}

/// Reads the plan and removes its files, because they hold secrets and the upstream agent writes
/// them again before each run.
fn take_plan(root: &Root, id: &PlanId, execution: Option<&OsStr>) -> Result<Plan, Failure> {
    let staging = root.join(staged::DIRECTORY);
    let plan = read_plan(&staging.join(id.as_str()), execution);
    durable::remove_directory(&staging)?;
    plan
}

fn read_plan(directory: &Path, execution: Option<&OsStr>) -> Result<Plan, Failure> {
    let path = directory.join(staged::PLAN);
    let text = fs::read(&path).on("read", &path)?;
    // The text of serde's error quotes the file.
    let typed: TypedPlan<Named> = serde_json::from_slice(&text)
        .map_err(|_| refuse_format(format!("{} is not a plan of the known format", path.display())))?;
    let steps = typed.steps.iter().map(|step| step.replace_contents(&mut StagedFiles(directory)));
    let plan = Plan {
        id: PlanId::parse(&typed.id).map_err(|error| refuse_format(error.to_string()))?,
        generation: Generation(typed.generation),
        checksum: execution.and_then(read_checksum).unwrap_or_else(|| Checksum::of(&text)),
        kind: typed.kind,
        steps: steps.collect::<Result<_, _>>()?,
    };
    // A streamed plan passes the same checks.
    Plan::try_from(proto::v1alpha1::Plan::from(&plan)).map_err(|error| refuse_format(error.to_string()))
}

/// The checksum of the plan record, which a coordinator announces for a streamed plan: either agent
/// continues the plan of the other one.
fn read_checksum(execution: &OsStr) -> Option<Checksum> {
    let name = Path::new(execution).file_name()?.to_str()?;
    Checksum::parse(name.split_once('_')?.0).ok()
}

fn refuse_format(message: String) -> Failure {
    Failure::refused(message, "bring agent and coordinator to the same version")
}

/// The contents of the steps, which are files of this directory.
struct StagedFiles<'a>(&'a Path);

impl ReplaceContents<Named, Inline> for StagedFiles<'_> {
    type Error = Failure;

    fn replace_secret(&mut self, _: &str, name: &String) -> Result<Secret, Failure> {
        let path = self.0.join(name);
        fs::read(&path).map(Secret::new).on("read", &path)
    }

    fn replace_text(&mut self, _: &str, name: &String) -> Result<String, Failure> {
        let path = self.0.join(name);
        fs::read_to_string(&path).on("read", &path)
    }

    fn replace_file(&mut self, file: &NeverStaged) -> Result<CustomFile, Failure> {
        match *file {}
    }

    fn replace_instruction(&mut self, found: &NeverStaged) -> Result<CustomInstruction, Failure> {
        match *found {}
    }
}

/// The upstream agent keeps standard output as the result of the instruction.
fn print_outcome(steps: &[&str], report: StepReport, output: &mut impl Write) -> Result<(), Failure> {
    let name = usize::try_from(report.step).ok().and_then(|index| steps.get(index)).unwrap_or(&"");
    match report.outcome {
        Some(Outcome::Failed(StepFailed { failure: Some(failure), .. })) => {
            let (reason, message) = (failure.reason(), format!("step {name}: {}", failure.message));
            Err(Failure::new(reason, message, failure.next_action))
        }
        _ => writeln!(output, "step {name}: done").on("write", Path::new("/dev/stdout")),
    }
}
