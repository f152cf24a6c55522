//! A real agent process is killed at every failpoint, before, during and after
//! each step and each write of the journal; then it is started again until the
//! plan is over, and what it left is compared with an undisturbed run.
//!
//! Two kinds of death: the agent alone, or the whole host, which then loses
//! every file of the agent that was not flushed.

// All of it is test code, also what stands outside of test functions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "common/flushes.rs"]
mod flushes;
#[path = "common/kept.rs"]
mod kept;
#[path = "common/places.rs"]
mod places;
#[path = "common/plans.rs"]
mod plans;
#[path = "common/state.rs"]
mod state;
#[path = "common/state_kills.rs"]
mod state_kills;
#[path = "common/sync.rs"]
mod sync;
#[path = "common/update.rs"]
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use agent::boot;
use agent::ground::durable::shadow::Shadow;
use agent::ground::paths::Root;
use agent::host::observed;
use agent::host::system::{RebootMethod, System as _};
use agent::plan::engine::{self, Next};
use agent::plan::executor::{Advance, CustomInstructions, Executor, Policy};
use agent::state::journal::{self, State};
use agent::state::network_trial::{self, Phase};
use agent::state::seed;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use proto::plan::{Plan, Secret, Seed};
use proto::v1alpha1::PlanOutcome;
use simulated_host::SimulatedSystem;
use state_kills::Records;

const REBOOTING: u8 = 3;
const PLANS: [&str; 5] = ["reprovision", "clean", "custom", UNREACHABLE, UPDATE];
/// A reprovision whose network does not reach the coordinator.
const UNREACHABLE: &str = "unreachable";
/// Instead of a plan: another agent.
const UPDATE: &str = "update";
/// Instead of a plan: what registration and install write.
const STATE: &str = "state";
/// Instead of a plan: what an installed host keeps beside its plans.
const KEPT: &str = "kept";
/// Instead of a plan: the flush before a reboot.
const SYNC: &str = "sync";
const RECORDS: [Records; 2] =
    [Records { name: STATE, compare: state::compare }, Records { name: KEPT, compare: kept::compare }];
/// Starts that a disturbed run may need: its own, one for each reboot, and the
/// one after the kill.
const STARTS: usize = 8;

fn main() -> Result<ExitCode> {
    if let Some(root) = std::env::var_os("CRASH_ROOT") {
        flushes::await_tracer()?;
        let root = Root::at(PathBuf::from(root));
        let plan = std::env::var("CRASH_PLAN")?;
        return match plan.as_str() {
            STATE => state::write(&root).map(|()| ExitCode::SUCCESS),
            KEPT => kept::write(&root).map(|()| ExitCode::SUCCESS),
            UPDATE => update::play(&root),
            SYNC => sync::play(&root),
            _ => play(&root, &plan),
        };
    }
    for records in &RECORDS {
        records.compare_after_power_cut()?;
    }
    for name in PLANS.into_iter().chain([STATE, KEPT, SYNC]) {
        compare_flushes(name)?;
    }
    let mut hit = BTreeSet::new();
    for name in PLANS {
        for death in [Death::Agent, Death::Host] {
            let points = kill_everywhere(name, death, &mut hit)?;
            println!("{name}, {death:?}: killed at {points} points, all as the undisturbed run");
        }
    }
    for records in &RECORDS {
        for death in [Death::Agent, Death::Host] {
            let points = records.kill_everywhere(death, &mut hit)?;
            println!("{}, {death:?}: killed at {points} points, all written again", records.name);
        }
    }
    places::compare(&hit)?;
    Ok(ExitCode::SUCCESS)
}

/// What is recorded as flushed was flushed.
fn compare_flushes(name: &'static str) -> Result<()> {
    let directory = scratch()?;
    let (root, host) = prepare_host(directory.path(), name)?;
    for _ in 0..STARTS {
        let mut child = start_child(directory.path(), name)?;
        let (code, asked) = flushes::compare(&mut child, &directory.path().join("flushes")).context(name)?;
        match code {
            0 if name == STATE => return state::check_overwriting(&asked),
            0 if name == SYNC => return sync::check(&root, &asked),
            0 => return Ok(()),
            code if code == i32::from(REBOOTING) => host.power_cycle()?,
            code => bail!("{name}: the agent ended with {code}"),
        }
    }
    bail!("{name} is not over after {STARTS} starts")
}

// The child: one life of the agent.

fn play(root: &Root, name: &str) -> Result<ExitCode> {
    let plan = plan_named(name)?;
    let host = SimulatedSystem::new(root.clone());
    if host.is_booting() {
        let summary = boot::run(root);
        ensure!(summary.problems.is_empty(), "{:?}", summary.problems);
        let has_begun = journal::read(&root.state().journal())?
            .is_some_and(|journal| journal.outcome() == PlanOutcome::InProgress);
        let may_start = root.node_gate().exists();
        ensure!(name != "clean" || !(has_begun && may_start), "the node may start beneath its clean");
        host.run_cloud_init()?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if is_silent(root, name)? {
        runtime.block_on(host.reboot(RebootMethod::Orderly))?;
        return Ok(ExitCode::from(REBOOTING));
    }
    let policy = Policy { custom: CustomInstructions::Allow };
    runtime.block_on(async {
        let mut executor = Executor::open(root.clone(), host, policy)?;
        executor.accept(plan.clone())?;
        loop {
            match executor.advance().await? {
                Advance::Idle => return Ok(ExitCode::SUCCESS),
                Advance::Rebooting => return Ok(ExitCode::from(REBOOTING)),
                Advance::Report(report) => {
                    let line = format!("{} {}", report.step, kind_of(&report));
                    fs::write(root.join(format!("/reports/{line}")), "")?;
                    executor.reported(&report)?;
                }
            }
        }
    })
}

/// Whether the coordinator is not reached in this boot, which ends then.
fn is_silent(root: &Root, name: &str) -> Result<bool> {
    let boot = observed::boot_id(root)?;
    let Some(trial) = network_trial::read_trial(&root.state()) else { return Ok(false) };
    match trial.phase(&boot) {
        Phase::Running if name == UNREACHABLE => {
            network_trial::revert_network(root, trial, &boot, "silence")?;
            Ok(true)
        }
        Phase::Running => Ok(network_trial::confirm_network(root, &boot).map(|()| false)?),
        Phase::Ending => Ok(true),
        Phase::NotBegun | Phase::Reverted => Ok(false),
    }
}

fn kind_of(report: &proto::v1alpha1::StepReport) -> &'static str {
    use proto::v1alpha1::step_report::Outcome;
    match &report.outcome {
        Some(Outcome::Done(_)) => "done",
        Some(Outcome::Failed(_)) => "failed",
        None => "nothing",
    }
}

// The parent: kills and compares.

#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    Agent,
    Host,
}

/// What a run left, without what differs from run to run.
#[derive(Debug, PartialEq)]
struct Left {
    files: BTreeMap<PathBuf, String>,
    effects: Vec<String>,
}

/// A custom instruction that was running when the agent died.
#[derive(Debug)]
struct Interruption {
    step: usize,
    /// The instruction had taken effect.
    has_run: bool,
}

struct Run {
    left: Left,
    interruption: Option<Interruption>,
}

fn kill_everywhere(name: &str, death: Death, hit: &mut BTreeSet<String>) -> Result<usize> {
    let undisturbed = run(name, None, hit)?.context("the agent was killed")?;
    for point in 1.. {
        let killed = || format!("{name}: {death:?} killed at point {point}");
        let Some(run) = run(name, Some((point, death)), hit).with_context(killed)? else {
            return Ok(point - 1);
        };
        compare(name, death, &undisturbed.left, &run).with_context(killed)?;
    }
    Ok(0)
}

/// Plays the plan to its end. `None` when the point was never reached.
fn run(name: &str, kill: Option<(usize, Death)>, hit: &mut BTreeSet<String>) -> Result<Option<Run>> {
    let directory = scratch()?;
    let (root, host) = prepare_host(directory.path(), name)?;
    let shadow = Shadow::at(directory.path().join("shadow"));
    host.flush_to(&shadow)?;
    let log = directory.path().join("failpoints");
    let (mut killed, mut interruption) = (false, None);
    for _ in 0..STARTS {
        let passed = fs::read_to_string(&log).unwrap_or_default();
        let mut child = start_child(directory.path(), name)?;
        child.env("FAILPOINT_LOG", &log);
        if let Some((point, _)) = kill.filter(|_| !killed) {
            child.env("FAILPOINT_KILL_AT", (point - passed.lines().count()).to_string());
        }
        let status = child.status()?;
        let passed = fs::read_to_string(&log)?;
        hit.extend(passed.lines().map(str::to_owned));
        let died = status.signal();
        match (status.code(), kill) {
            (Some(0), Some(_)) if !killed => return Ok(None),
            (Some(0), _) => return Ok(Some(Run { left: read_left(&root, name)?, interruption })),
            (Some(code), _) if code == i32::from(REBOOTING) => {}
            (None, Some((point, _))) if !killed && died == Some(Signal::SIGKILL as i32) => {
                ensure!(passed.lines().count() == point, "it died before the failpoint killed it");
                killed = true;
            }
            (code, _) => bail!("the agent ended with {code:?}, signal {died:?}"),
        }
        let power_cut = died.is_some() && kill.is_some_and(|(_, death)| death == Death::Host);
        if power_cut {
            host.lose_unflushed(&shadow)?;
        } else {
            host.flush_to(&shadow)?;
        }
        if power_cut || host.reboot_was_asked_for() {
            host.power_cycle()?;
        }
        if died.is_some() {
            interruption = find_interruption(&root, &passed)?;
        }
    }
    bail!("not over after {STARTS} starts: {:?}", host.effects())
}

/// An installed host below `directory`, before the plan.
fn prepare_host(directory: &Path, name: &str) -> Result<(Root, SimulatedSystem)> {
    let root = Root::at(directory.join("host"));
    let host = SimulatedSystem::installed(root.clone(), "oci:lab/os:v1")?.with_node()?;
    host.run_cloud_init()?;
    // The plan of an operator has no seed, and an early boot would place this one.
    if name != "custom" {
        seed::store(&root.state(), &former_seed())?;
    }
    fs::create_dir_all(root.join("/reports"))?;
    Ok((root, host))
}

/// One life of the agent of that host.
fn start_child(directory: &Path, name: &str) -> Result<Command> {
    let mut child = Command::new(std::env::current_exe()?);
    child.env("CRASH_ROOT", directory.join("host/")).env("CRASH_PLAN", name);
    child.env("DURABLE_SHADOW", directory.join("shadow"));
    Ok(child)
}

/// What the host was installed with.
fn former_seed() -> Seed {
    Seed {
        user_data: None,
        meta_data: "instance-id: installed\n".into(),
        network_config: Some("version: 2\nbonds: {}\n".into()),
        connections: BTreeMap::from([("bond0".into(), Secret::new(b"[connection]\n".to_vec()))]),
        network_data: None,
    }
}

/// `passed`: the failpoints up to the kill.
fn find_interruption(root: &Root, passed: &str) -> Result<Option<Interruption>> {
    let Some(journal) = journal::read(&root.state().journal())? else { return Ok(None) };
    let running = journal.steps().iter().position(|entry| {
        entry.name == "run-custom-instruction" && matches!(entry.state, State::Started { .. })
    });
    // Only instructions have these failpoints in the plan of an operator.
    let has_run = |step| passed.lines().filter(|line| line.starts_with("simulated::after ")).count() == step;
    Ok(running.map(|step| Interruption { step, has_run: has_run(step) }))
}

/// In memory where there is room: the kills are real, the disk need not be.
fn scratch() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? })
}

fn read_left(root: &Root, name: &str) -> Result<Left> {
    if name == UPDATE {
        update::check(root)?;
    } else {
        let plan = plan_named(name)?;
        let journal = journal::read(&root.state().journal())?;
        let next = engine::next(&plan, journal.as_ref(), &observed::boot_id(root)?);
        ensure!(next == Next::Finished, "{next:?}");
    }
    let mut files = BTreeMap::new();
    collect(&root.join("/"), &mut files)?;
    Ok(Left { files, effects: SimulatedSystem::new(root.clone()).effects() })
}

fn collect(directory: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    // Numbers of boots and attempts differ from run to run, a trial ends with a boot,
    // cloud-init runs in every boot that finds a new seed, and a run may have had
    // no early boot.
    const DIFFERENT: [&str; 9] = [
        "/simulation",
        "/proc",
        "/var/lib/baremetal-agent/journal",
        "/var/lib/baremetal-agent/before-node.json",
        "/var/lib/baremetal-agent/cleanup-receipt.json",
        "/var/lib/baremetal-agent/network-trial",
        "/run/elemental",
        "/run/baremetal-agent",
        "/var/lib/cloud/data",
    ];
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            let inside = Path::new("/").join(path.strip_prefix(directory)?);
            if DIFFERENT.iter().any(|name| inside == Path::new(name)) {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else {
                files.insert(inside, fs::read_to_string(path)?);
            }
        }
    }
    Ok(())
}

fn compare(name: &str, death: Death, undisturbed: &Left, run: &Run) -> Result<()> {
    let Run { left, interruption } = run;
    if let Some(interruption) = interruption {
        return compare_interrupted(undisturbed, left, interruption);
    }
    if name == UNREACHABLE {
        return compare_reverted(left);
    }
    ensure!(
        left.files == undisturbed.files,
        "other files: {:?} instead of {:?}",
        left.files,
        undisturbed.files
    );
    match death {
        Death::Agent => compare_effects(undisturbed, left),
        // No instruction is lost or done again.
        Death::Host if name == "custom" => compare_effects(undisturbed, left),
        Death::Host => compare_effects_after_power_cut(name, left),
    }
}

/// Wherever it was cut off: the former network is back, the plan has failed
/// once, and no node runs with a network that it was not meant for.
fn compare_reverted(left: &Left) -> Result<()> {
    let former = former_seed().network_config;
    for path in ["/var/lib/baremetal-agent/seed", "/var/lib/cloud/seed/nocloud"] {
        let found = left.files.get(&Path::new(path).join("network-config"));
        ensure!(found == former.as_ref(), "{path} has {found:?}");
    }
    let reports = left.files.keys().filter(|path| path.starts_with("/reports"));
    let failures = reports.filter(|path| path.to_string_lossy().ends_with(" failed")).count();
    ensure!(failures == 1, "{failures} failures: {:?}", left.files.keys());
    let joins = left.effects.iter().filter(|effect| effect.starts_with("node joins")).count();
    ensure!(joins <= 1, "{:?}", left.effects);
    Ok(())
}

/// The instruction is given up: it takes no effect again, nothing after it takes any, and its
/// failure is reported instead of its end and of every later step.
fn compare_interrupted(undisturbed: &Left, left: &Left, interruption: &Interruption) -> Result<()> {
    // Step 0 is a file, which is no effect.
    let instructions = interruption.step - 1 + usize::from(interruption.has_run);
    let effects = &undisturbed.effects[..instructions];
    ensure!(left.effects == effects, "{:?} after {interruption:?}", left.effects);
    let mut files = undisturbed.files.clone();
    for step in interruption.step..=2 {
        files.remove(Path::new(&format!("/reports/{step} done")));
    }
    files.insert(format!("/reports/{} failed", interruption.step).into(), String::new());
    ensure!(left.files == files, "other files: {:?} instead of {files:?}", left.files);
    Ok(())
}

/// No effect twice, none lacking, none out of order; a step that only repeats
/// what it finds undone is the exception.
fn compare_effects(undisturbed: &Left, left: &Left) -> Result<()> {
    let mut effects = left.effects.clone();
    effects.dedup_by(|one, other| one == other && one == "cloud-init clean");
    ensure!(effects == undisturbed.effects, "{effects:?} instead of {:?}", undisturbed.effects);
    Ok(())
}

/// What was lost may be done again, but never a reboot, never a second node, and never a node on
/// the old system.
fn compare_effects_after_power_cut(name: &str, left: &Left) -> Result<()> {
    let count = |wanted: &str| left.effects.iter().filter(|effect| *effect == wanted).count();
    for once in ["reboot ", "stop kubelet.service"] {
        let times = left.effects.iter().filter(|effect| effect.starts_with(once)).count();
        ensure!(times <= 1, "{once} twice: {:?}", left.effects);
    }
    if name == "reprovision" {
        let instance = format!("cloud-init {}", plan_named(name)?.id);
        ensure!(count("node joins on lab/os:v2") == 1, "{:?}", left.effects);
        ensure!(count("node joins on lab/os:v1") == 0, "{:?}", left.effects);
        ensure!(count(&instance) == 1, "{:?}", left.effects);
    }
    Ok(())
}

fn plan_named(name: &str) -> Result<Plan> {
    Ok(match name {
        "reprovision" => plans::reprovision(1),
        "clean" => plans::clean(1),
        "custom" => plans::custom(1),
        UNREACHABLE => plans::unreachable(1),
        other => bail!("no plan {other}"),
    })
}
