//! A real agent process is killed at every failpoint, before, during and after
//! each step and each write of the journal; then it is started again until the
//! plan is over, and what it left is compared with a run that nobody disturbed.
//!
//! Two kinds of death: the agent alone, or the whole host with all that was
//! not flushed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use agent::boot;
use agent::host::observed;
use agent::paths::Root;
use agent::plan::engine::{self, Next};
use agent::plan::executor::{Advance, CustomInstructions, Executor, Policy};
use agent::plan::journal;
use anyhow::{Context, Result, bail, ensure};
use proto::plan::{
    Checksum, CustomFile, CustomInstruction, Generation, Image, Kind, NodeIdentity, Plan, PlanId, Secret,
    Seed, Step,
};
use simulated_host::SimulatedSystem;

const REBOOTING: u8 = 3;
const PLANS: [&str; 3] = ["reprovision", "clean", "custom"];
/// Starts that a disturbed run may need: its own, one for each reboot, and the
/// one after the kill.
const STARTS: usize = 8;

fn main() -> Result<ExitCode> {
    if let Some(root) = std::env::var_os("CRASH_ROOT") {
        let plan = std::env::var("CRASH_PLAN")?;
        return play(&Root::at(PathBuf::from(root)), &plan_named(&plan)?);
    }
    for name in PLANS {
        for death in [Death::Agent, Death::Host] {
            let points = kill_everywhere(name, death)?;
            println!("{name}, {death:?}: killed at {points} points, all as the undisturbed run");
        }
    }
    Ok(ExitCode::SUCCESS)
}

// The child: one life of the agent.

fn play(root: &Root, plan: &Plan) -> Result<ExitCode> {
    let host = SimulatedSystem::new(root.clone());
    if host.is_booting() {
        let summary = boot::run(root);
        ensure!(summary.problems.is_empty(), "{:?}", summary.problems);
        host.run_cloud_init()?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
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

fn kind_of(report: &proto::v1alpha1::StepReport) -> &'static str {
    use proto::v1alpha1::step_report::Outcome;
    match &report.outcome {
        Some(Outcome::Done(_)) => "done",
        Some(Outcome::Failed(_)) => "failed",
        None => "nothing",
    }
}

// The parent: the hand that kills, and the judge.

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

fn kill_everywhere(name: &str, death: Death) -> Result<usize> {
    let undisturbed = run(name, None)?.context("nobody was killed")?;
    for point in 1.. {
        let Some(left) = run(name, Some((point, death)))
            .with_context(|| format!("{name}: {death:?} killed at point {point}"))?
        else {
            ensure!(point > 30, "only {point} failpoints were reached");
            return Ok(point - 1);
        };
        compare(name, death, &undisturbed, &left)
            .with_context(|| format!("{name}: {death:?} killed at point {point}"))?;
    }
    Ok(0)
}

/// Plays the plan to its end. `None` when the point was never reached.
fn run(name: &str, kill: Option<(usize, Death)>) -> Result<Option<Left>> {
    let directory = scratch()?;
    let root = Root::at(directory.path().join("host"));
    let host = SimulatedSystem::installed(root.clone(), "oci:lab/os:v1")?.with_node()?;
    host.run_cloud_init()?;
    fs::create_dir_all(root.join("/reports"))?;
    let log = directory.path().join("failpoints");
    let mut killed = false;
    for _ in 0..STARTS {
        let passed = fs::read_to_string(&log).unwrap_or_default().lines().count();
        let mut child = Command::new(std::env::current_exe()?);
        child.env("CRASH_ROOT", root.join("/")).env("CRASH_PLAN", name).env("FAILPOINT_LOG", &log);
        if let Some((point, _)) = kill.filter(|_| !killed) {
            child.env("FAILPOINT_KILL_AT", (point - passed).to_string());
        }
        let status = child.status()?;
        let died = status.signal().is_some();
        match (status.code(), kill) {
            (Some(0), Some(_)) if !killed => return Ok(None),
            (Some(0), _) => return finished(&root, name).map(Some),
            (Some(code), _) if code == i32::from(REBOOTING) => {}
            (None, Some(_)) if !killed => killed = true,
            (code, _) => bail!("the agent ended with {code:?}"),
        }
        let power_cut = died && kill.is_some_and(|(_, death)| death == Death::Host);
        if power_cut || host.reboot_was_asked_for() {
            host.power_cycle()?;
        }
    }
    bail!("not over after {STARTS} starts: {:?}", host.effects())
}

/// In memory where there is room: the kills are real, the disk need not be.
fn scratch() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? })
}

fn finished(root: &Root, name: &str) -> Result<Left> {
    let plan = plan_named(name)?;
    let journal = journal::read(&root.state().journal())?;
    let next = engine::next(&plan, journal.as_ref(), &observed::boot_id(root)?);
    ensure!(next == Next::Finished, "{next:?}");
    let mut files = BTreeMap::new();
    collect(&root.join("/"), &mut files)?;
    Ok(Left { files, effects: SimulatedSystem::new(root.clone()).effects() })
}

fn collect(directory: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    // Numbers of boots and attempts differ from run to run, and cloud-init
    // runs in every boot that finds a new seed.
    const DIFFERENT: [&str; 6] = [
        "/simulation",
        "/proc",
        "/var/lib/baremetal-agent/journal",
        "/var/lib/baremetal-agent/cleanup-receipt.json",
        "/run/elemental",
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

fn compare(name: &str, death: Death, undisturbed: &Left, left: &Left) -> Result<()> {
    // A foreign command that was cut short is given up, and the plan with it.
    let failed = |path: &PathBuf| path.to_string_lossy().ends_with(" failed");
    let given_up = left.files.keys().any(failed);
    ensure!(!given_up || name == "custom", "a step failed: {:?}", left.files);
    if !given_up {
        ensure!(
            left.files == undisturbed.files,
            "other files: {:?} instead of {:?}",
            left.files,
            undisturbed.files
        );
    }
    match death {
        Death::Agent => agent_died(undisturbed, left),
        Death::Host => host_died(name, left),
    }
}

/// No effect twice, none lacking, none out of order; a step that only repeats
/// what it finds undone is the exception.
fn agent_died(undisturbed: &Left, left: &Left) -> Result<()> {
    let mut effects = left.effects.clone();
    effects.dedup_by(|one, other| one == other && one == "cloud-init clean");
    for effect in &mut effects {
        // The killed agent's attempt counts as one.
        if effect == "reboot Forced" {
            "reboot Orderly".clone_into(effect);
        }
    }
    let whole = &undisturbed.effects;
    let cut_short = whole.starts_with(&effects) && whole.contains(&"custom first".to_owned());
    ensure!(effects == *whole || cut_short, "{effects:?} instead of {whole:?}");
    Ok(())
}

/// What was lost may be done again, but never a foreign command, never a
/// second node, and never a node on the old system.
fn host_died(name: &str, left: &Left) -> Result<()> {
    let count = |wanted: &str| left.effects.iter().filter(|effect| *effect == wanted).count();
    for once in ["custom first", "custom second", "reboot Orderly", "stop kubelet.service"] {
        ensure!(count(once) <= 1, "{once} twice: {:?}", left.effects);
    }
    if name == "reprovision" {
        ensure!(count("node joins on lab/os:v2") == 1, "{:?}", left.effects);
        ensure!(count("node joins on lab/os:v1") == 0, "{:?}", left.effects);
        ensure!(count("cloud-init reprovision-1") == 1, "{:?}", left.effects);
    }
    Ok(())
}

fn plan_named(name: &str) -> Result<Plan> {
    let (kind, steps) = match name {
        "reprovision" => (Kind::Reprovision, reprovision()?),
        "clean" => (Kind::Clean, clean()),
        "custom" => (Kind::Custom, custom()),
        other => bail!("no plan {other}"),
    };
    let id = PlanId::parse(&format!("{name}-1"))?;
    let plan = Plan { checksum: Checksum::of(name.as_bytes()), id, generation: Generation(1), kind, steps };
    Ok(plan.check()?)
}

fn reprovision() -> Result<Vec<Step>> {
    let image = Image::parse("oci:lab/os:v2")?;
    Ok(vec![
        Step::RequestCleanup,
        Step::CleanCloudInit,
        Step::WriteSeed(Seed {
            user_data: Some(Secret::new(b"#cloud-config\n".to_vec())),
            meta_data: "instance-id: reprovision-1\nlocal-hostname: node-1\n".into(),
            network_config: Some("version: 2\n".into()),
        }),
        Step::WriteNodeIdentity(NodeIdentity {
            uuid: "u-1".into(),
            provider_id: "baremetal:///host-1".into(),
        }),
        Step::UpgradeSystem(image.clone()),
        Step::SyncFileSystems,
        Step::Reboot,
        Step::VerifySystem(image),
    ])
}

fn clean() -> Vec<Step> {
    vec![
        Step::StopKubelet,
        Step::RemoveWorkload,
        Step::StopContainerd,
        Step::RemoveNodeIdentity,
        Step::RemoveNodeState,
        Step::WriteSeed(Seed {
            user_data: None,
            meta_data: "instance-id: clean-1\n".into(),
            network_config: Some("version: 2\n".into()),
        }),
    ]
}

fn custom() -> Vec<Step> {
    let instruction = |name: &str| {
        Step::RunCustomInstruction(CustomInstruction {
            name: name.into(),
            command: "/bin/true".into(),
            args: vec![],
            env: vec![],
        })
    };
    vec![
        Step::WriteCustomFile(CustomFile {
            path: "/srv/file".into(),
            content: Secret::new(b"content".to_vec()),
            permissions: "0600".into(),
            directory: false,
        }),
        instruction("first"),
        instruction("second"),
    ]
}
