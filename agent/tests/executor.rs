//! The executor on a simulated operating system.

// All of it is test code, also what stands outside of test functions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

use proto::plan::Generation;
use proto::v1alpha1::step_report::Outcome as Reported;

use agent::boot::network_trial::{self, Phase};
use agent::boot::{self, seed};
use agent::error::{explain, format_line};
use agent::host::observed;
use agent::paths::Root;
use agent::plan::executor::{Advance, Executor, NewestPlan, Policy};
use proto::plan::{Plan, Step};
use proto::v1alpha1::{FailureReason, StepReport};
use simulated_host::SimulatedSystem;

use agent::installed::mailbox::{Mailbox, Order};
use agent::installed::worker::{self, Progress};
use plans::{clean, custom, reprovision, unreachable};
use tokio::sync::watch;
use tokio::time::Instant;

const V1: &str = "oci:lab/os:v1";
const V2: &str = plans::IMAGE;

#[path = "common/plans.rs"]
mod plans;

struct Host {
    _directory: tempfile::TempDir,
    root: Root,
    simulated: SimulatedSystem,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let simulated = SimulatedSystem::installed(root.clone(), V1).unwrap().with_node().unwrap();
        simulated.run_cloud_init().unwrap();
        Self { _directory: directory, root, simulated }
    }

    fn executor(&self) -> Executor<SimulatedSystem> {
        Executor::open(self.root.clone(), self.simulated.clone(), Policy::default()).unwrap()
    }

    fn reboot(&self) {
        self.simulated.power_cycle().unwrap();
        let summary = boot::run(&self.root);
        assert!(summary.problems.is_empty(), "{:?}", summary.problems);
        self.simulated.run_cloud_init().unwrap();
    }

    /// Runs `plan` to its end, across its reboot; every report in order.
    async fn play(&self, plan: &Plan) -> Vec<StepReport> {
        let mut reports = Vec::new();
        loop {
            let mut executor = self.executor();
            executor.accept(plan.clone()).unwrap();
            loop {
                match executor.advance().await.unwrap() {
                    Advance::Idle => return reports,
                    Advance::Rebooting => break,
                    Advance::Report(report) => {
                        executor.reported(&report).unwrap();
                        reports.push(report);
                    }
                }
            }
            self.reboot();
        }
    }
}

fn failure(report: Option<&StepReport>) -> (u32, FailureReason, String) {
    match report {
        Some(StepReport { step, outcome: Some(Reported::Failed(failed)), .. }) => {
            let failure = failed.failure.clone().unwrap();
            (*step, failure.reason(), format_line(&failure.message, Some(&failure.next_action)))
        }
        other => panic!("not a failure: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_reprovision_ends_with_the_new_system_observed() {
    let host = Host::new();
    let reports = host.play(&reprovision(1)).await;
    assert_eq!(reports.iter().map(|report| report.step).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    let Some(Reported::Done(last)) = &reports[7].outcome else {
        panic!("{:?}", reports[7]);
    };
    let system = last.system.as_ref().unwrap();
    assert_eq!((system.image.as_str(), system.boot_id.as_str()), ("lab/os:v2", "boot-2"));
    assert_eq!(
        host.simulated.effects(),
        [
            "cloud-init clean",
            "upgrade oci:lab/os:v2",
            "reboot Orderly",
            &format!("cloud-init {}", reprovision(1).id),
            "node joins on lab/os:v2",
        ]
    );
    assert!(!host.root.join("/var/lib/etcd/of").exists());
    let kubelet = fs::read_to_string(host.root.join("/etc/default/kubelet")).unwrap();
    assert!(kubelet.contains("metal3.io/uuid=u-1"), "{kubelet}");
}

#[tokio::test(start_paused = true)]
async fn a_clean_leaves_nothing_of_the_node() {
    let host = Host::new();
    host.play(&reprovision(1)).await;
    let host = Host { simulated: host.simulated.clone().with_node().unwrap(), ..host };
    let before = host.simulated.effects().len();
    let reports = host.play(&clean(2)).await;
    assert_eq!(reports.len(), 7);
    assert_eq!(
        host.simulated.effects()[before..],
        ["stop kubelet.service", "remove workload", "stop containerd.service"]
    );
    for path in ["/var/lib/kubelet", "/etc/kubernetes"] {
        assert_eq!(fs::read_dir(host.root.join(path)).unwrap().count(), 0, "{path}");
    }
    assert!(!host.root.state().node_identity().exists());
    let kubelet = fs::read_to_string(host.root.join("/etc/default/kubelet")).unwrap();
    assert_eq!(kubelet, "");
}

#[tokio::test]
async fn an_outcome_is_returned_until_the_coordinator_has_it() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let first = executor.advance().await.unwrap();
    assert_eq!(executor.advance().await.unwrap(), first);
    let mut restarted = host.executor();
    assert_eq!(restarted.advance().await.unwrap(), first, "even without the plan");
    let Advance::Report(report) = first else { panic!() };
    restarted.reported(&report).unwrap();
    assert_eq!(restarted.advance().await.unwrap(), Advance::Idle);
    restarted.accept(reprovision(1)).unwrap();
    let Advance::Report(second) = restarted.advance().await.unwrap() else { panic!() };
    assert_eq!(second.step, 1);
}

#[tokio::test(start_paused = true)]
async fn a_finished_plan_runs_once() {
    type Spoil = fn(&Host);
    let cases: [(&str, Spoil); 2] =
        [("applied", |_| ()), ("failed half-way", |host| host.simulated.fail("upgrade", 18).unwrap())];
    for (name, spoil) in cases {
        let host = Host::new();
        spoil(&host);
        let end = host.play(&reprovision(1)).await.pop().unwrap();
        let effects = host.simulated.effects();
        let mut executor = host.executor();
        assert_eq!(executor.advance().await.unwrap(), Advance::Idle, "{name}: nothing is asked for");
        for round in ["asked again", "and again"] {
            executor.accept(reprovision(1)).unwrap();
            executor.accept(reprovision(1)).unwrap();
            let again = executor.advance().await.unwrap();
            assert_eq!(again, Advance::Report(end.clone()), "{name}, {round}");
            executor.reported(&end).unwrap();
            assert_eq!(executor.advance().await.unwrap(), Advance::Idle, "{name}, {round}");
        }
        assert_eq!(host.simulated.effects(), effects, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_outliving_its_agent_is_awaited() {
    let host = Host::new();
    let mut executor = host.executor();
    let plan = reprovision(1);
    executor.accept(plan.clone()).unwrap();
    for _ in 0..4 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        executor.reported(&report).unwrap();
    }
    // The agent dies while its job runs on.
    host.simulated.detach_upgrade().unwrap();
    let dies = tokio::time::timeout(Duration::from_secs(1), executor.advance());
    assert!(dies.await.is_err() && host.simulated.has_job());
    let mut restarted = host.executor();
    restarted.accept(plan).unwrap();
    let Advance::Report(report) = restarted.advance().await.unwrap() else { panic!() };
    assert!(matches!(report.outcome, Some(Reported::Done(_))), "{report:?}");
    let upgrades = host.simulated.effects().iter().filter(|effect| effect.starts_with("upgrade")).count();
    assert_eq!(upgrades, 1);
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_cut_off_after_a_fallback_is_repeated() {
    let host = Host::new();
    host.simulated.spoil_image(V2).unwrap();
    host.play(&reprovision(1)).await;
    // The state names the failed snapshot as the next one, and the agent dies
    // while it pulls the same image for another plan.
    let mut executor = host.executor();
    let plan = reprovision(2);
    executor.accept(plan.clone()).unwrap();
    for _ in 0..4 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        executor.reported(&report).unwrap();
    }
    host.simulated.hang("upgrade").unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(1), executor.advance()).await.is_err());
    let mut restarted = host.executor();
    restarted.accept(plan).unwrap();
    restarted.advance().await.unwrap();
    let upgrades = host.simulated.effects().iter().filter(|effect| effect.starts_with("upgrade")).count();
    assert_eq!(upgrades, 2, "{:?}", host.simulated.effects());
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_cannot_be_written_are_paced() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let newest = executor.newest_plan();
    let (publish, mut progress) = watch::channel(Progress { newest, pending: None, is_idle: false });
    let mailbox = Mailbox::default();
    let blocker = host.root.state().path().join(".journal.new");
    let link = async {
        for reports in 0..1000 {
            let pending = progress.borrow_and_update().pending.clone();
            if let Some(report) = pending {
                fs::create_dir_all(&blocker).unwrap();
                mailbox.put(Order::Reported(report));
            }
            if progress.changed().await.is_err() {
                return reports;
            }
        }
        1000
    };
    let minute = tokio::time::sleep(Duration::from_mins(1));
    tokio::select! {
        never = worker::run_worker(executor, &mailbox, publish) => match never {},
        reports = link => panic!("{reports} reports within a minute"),
        () = minute => {}
    }
    assert!(blocker.exists(), "a report was acknowledged");
}

// Fault: the coordinator sends a plan that is older or not allowed.
// Shown: the plan is refused with the reason.
#[tokio::test]
async fn refused_plans_change_nothing() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(5)).unwrap();
    let mut other = clean(5);
    other.generation = Generation(5);
    let cases = [
        ("older", clean(4), "older than generation 5"),
        ("another of the same number", other, "is taken by plan reprovision-"),
        ("custom", custom(6), "--allow-custom-instructions"),
    ];
    for (name, plan, want) in cases {
        let refusal = explain(&executor.accept(plan).unwrap_err());
        assert!(refusal.contains(want), "{name}: {refusal}");
        let NewestPlan::Known(newest) = executor.newest_plan() else { panic!("{name}") };
        assert_eq!((newest.id.as_str(), newest.generation), (reprovision(5).id.as_str(), 5), "{name}");
    }
    executor.accept(clean(6)).unwrap();
    assert!(matches!(executor.newest_plan(), NewestPlan::Known(newest) if newest.generation == 6));
}

#[tokio::test]
async fn a_damaged_journal_refuses_every_plan() {
    let host = Host::new();
    fs::create_dir_all(host.root.state().path()).unwrap();
    for garbage in ["", "torn", "baremetal-journal-1 00\n{}\n"] {
        fs::write(host.root.state().journal(), garbage).unwrap();
        let mut executor = host.executor();
        let refusal = explain(&executor.accept(reprovision(1)).unwrap_err());
        assert!(refusal.contains("remove /var/lib/baremetal-agent/journal"), "{refusal}");
        assert_eq!(executor.advance().await.unwrap(), Advance::Idle);
        assert_eq!(executor.newest_plan(), NewestPlan::Unknown);
        assert_eq!(fs::read_to_string(host.root.state().journal()).unwrap(), garbage);
    }
    assert!(host.simulated.effects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_ends_the_plan() {
    type Spoil = fn(&Host);
    let cases: [(&str, Spoil, u32, FailureReason, &str); 4] = [
        (
            "upgrade",
            |host| host.simulated.fail("upgrade", 18).unwrap(),
            4,
            FailureReason::Command,
            "exit code 18",
        ),
        (
            "fallback",
            |host| host.simulated.spoil_image(V2).unwrap(),
            7,
            FailureReason::BootFallback,
            "lab/os:v1 runs instead of oci:lab/os:v2",
        ),
        (
            "cloud-init",
            |host| host.simulated.spoil_cloud_init("runcmd failed").unwrap(),
            7,
            FailureReason::CloudInit,
            "runcmd failed",
        ),
        (
            "no reboot",
            |host| host.simulated.fail("reboot", 1).unwrap(),
            6,
            FailureReason::Timeout,
            "reboot it by hand",
        ),
    ];
    for (name, spoil, step, reason, text) in cases {
        let host = Host::new();
        spoil(&host);
        let reports = if name == "no reboot" {
            play_without_reboot(&host).await
        } else {
            host.play(&reprovision(1)).await
        };
        let (at, why, message) = failure(reports.last());
        assert_eq!((at, why), (step, reason), "{name}: {message}");
        assert!(message.contains(text) && message.contains("next: "), "{name}: {message}");
        assert_eq!(host.play(&reprovision(1)).await, reports[reports.len() - 1..], "{name}: no retry");
    }
}

// Fault: the registry is away, a disk is full for a while.
// Shown: `status.plan.step` with attempt and last failure; the plan goes on.
#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_retried_until_it_ends() {
    let cases = [
        ("registry", "upgrade", 7, "unexpected status code 503 Service Unavailable"),
        ("name server", "upgrade", 5, "lookup r.example: no such host"),
        ("full disk", "upgrade", 4, "write /x: no space left on device"),
        ("cause not known", "cloud-init-clean", 2, "hm"),
    ];
    for (name, verb, times, output) in cases {
        let host = Host::new();
        host.simulated.fail_times(verb, times, 1, output).unwrap();
        let mut executor = host.executor();
        let mut running = executor.running_step();
        executor.accept(reprovision(1)).unwrap();
        let told = async {
            let mut told = Vec::new();
            while running.changed().await.is_ok() {
                told.extend(running.borrow_and_update().clone());
            }
            told
        };
        let play = async {
            while let Advance::Report(report) = executor.advance().await.unwrap() {
                assert!(matches!(report.outcome, Some(Reported::Done(_))), "{name}: {report:?}");
                executor.reported(&report).unwrap();
                // The other future sees every state.
                tokio::task::yield_now().await;
            }
            drop(executor);
        };
        let (told, ()) = tokio::join!(told, play);
        let retried: Vec<_> = told.iter().filter(|progress| progress.attempt > 1).collect();
        assert_eq!(retried.last().map(|progress| progress.attempt), Some(times + 1), "{name}: {told:?}");
        assert!(retried.iter().all(|progress| progress.last_failure.contains(output)), "{name}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_plan_when_retrying_cannot_help() {
    let minutes = Duration::from_mins;
    let cases = [
        ("refused", "unauthorized: no", minutes(0)..minutes(1), FailureReason::Command, "registry refuses"),
        ("not there", "manifest unknown", minutes(0)..minutes(1), FailureReason::Command, "push the image"),
        ("cause not known", "hm", minutes(0)..minutes(5), FailureReason::Command, "(hm)"),
        (
            "down",
            "connection refused",
            minutes(60)..minutes(63),
            FailureReason::Command,
            "60 minutes: upgrade",
        ),
        ("full", "no space left on device", minutes(60)..minutes(63), FailureReason::NoSpace, "free space"),
    ];
    for (name, output, takes, reason, text) in cases {
        let host = Host::new();
        host.simulated.fail_times("upgrade", u32::MAX, 1, output).unwrap();
        let start = Instant::now();
        let reports = host.play(&reprovision(1)).await;
        let (step, why, message) = failure(reports.last());
        assert_eq!((step, why), (4, reason), "{name}: {message}");
        assert!(message.contains(text), "{name}: {message}");
        assert!(takes.contains(&start.elapsed()), "{name}: {:?}", start.elapsed());
    }
}

/// The host ignores every request.
async fn play_without_reboot(host: &Host) -> Vec<StepReport> {
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let mut reports = Vec::new();
    let mut asked = 0;
    loop {
        match executor.advance().await.unwrap() {
            Advance::Idle => break,
            Advance::Rebooting => asked += 1,
            Advance::Report(report) => {
                executor.reported(&report).unwrap();
                reports.push(report);
            }
        }
    }
    assert_eq!(asked, 3, "each way once");
    reports
}

#[tokio::test(start_paused = true)]
async fn the_first_reboot_that_is_asked_for_is_orderly() {
    let host = Host::new();
    host.simulated.hang("reboot").unwrap();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    for _ in 0..6 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        executor.reported(&report).unwrap();
    }
    // The agent dies after it has journaled the step, before it asks.
    assert!(tokio::time::timeout(Duration::from_secs(1), executor.advance()).await.is_err());
    for want in ["reboot Orderly", "reboot Forced"] {
        let mut restarted = host.executor();
        restarted.accept(reprovision(1)).unwrap();
        assert_eq!(restarted.advance().await.unwrap(), Advance::Rebooting);
        assert_eq!(host.simulated.effects().last().map(String::as_str), Some(want));
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordered_reboot_ends_one_boot_between_plans() {
    let host = Host::new();
    let reboots = || host.simulated.effects().iter().filter(|effect| effect.starts_with("reboot")).count();
    let boot = || observed::boot_id(&host.root).unwrap();
    let mut executor = host.executor();
    executor.accept(clean(1)).unwrap();
    executor.order_reboot(boot());
    for _ in 0..7 {
        let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
        assert_eq!(reboots(), 0, "the plan ends first");
        executor.reported(&report).unwrap();
    }
    let ordered = boot();
    assert_eq!(executor.advance().await.unwrap(), Advance::Rebooting);
    assert_eq!(host.simulated.effects().last().map(String::as_str), Some("reboot Orderly"));
    host.reboot();
    let mut executor = host.executor();
    executor.order_reboot(ordered);
    assert_eq!((executor.advance().await.unwrap(), reboots()), (Advance::Idle, 1), "that boot has ended");

    // A host that stays up is asked in each way, and left alone then.
    executor.order_reboot(boot());
    for _ in 0..3 {
        executor.order_reboot(boot());
        assert_eq!(executor.advance().await.unwrap(), Advance::Rebooting);
    }
    assert_eq!((executor.advance().await.unwrap(), reboots()), (Advance::Idle, 4));
}

#[tokio::test(start_paused = true)]
async fn no_node_joins_after_a_fallback() {
    let host = Host::new();
    host.simulated.spoil_image(V2).unwrap();
    host.play(&reprovision(1)).await;
    let effects = host.simulated.effects();
    assert!(!effects.iter().any(|effect| effect.starts_with("node joins")), "{effects:?}");
}

// Fault: the network of a plan does not reach the coordinator.
// Shown: the former network comes back with a reboot; the plan fails: `NetworkReverted`.
#[tokio::test(start_paused = true)]
async fn a_network_that_failed_fails_its_plan() {
    let host = Host::new();
    let state = host.root.state();
    host.play(&reprovision(1)).await;
    network_trial::confirm_network(&host.root, "boot-2").unwrap();
    let mut executor = host.executor();
    executor.accept(unreachable(2)).unwrap();
    while let Advance::Report(report) = executor.advance().await.unwrap() {
        executor.reported(&report).unwrap();
    }
    host.reboot();
    let trial = network_trial::read_trial(&state).unwrap();
    assert_eq!(trial.phase("boot-3"), Phase::Running);
    network_trial::revert_network(&host.root, trial, "boot-3", "no route to host").unwrap();
    host.reboot();
    let seed = seed::load_nocloud(&host.root).unwrap().unwrap();
    assert_eq!(seed.network_config.as_deref(), Some("version: 2\n"), "the former one");
    assert!(!host.root.node_gate().exists(), "no node starts with a network that is not its own");
    let joined = host.simulated.joins();
    let reports = host.play(&unreachable(2)).await;
    let (step, reason, why) = failure(reports.last());
    assert_eq!((step, reason), (7, FailureReason::NetworkReverted));
    assert!(why.contains("no route to host; next: correct spec.network"), "{why}");
    assert_eq!(host.simulated.joins(), joined);
    host.play(&clean(3)).await;
    assert_eq!(network_trial::read_trial(&state), None, "that network is the proven one");
    host.play(&reprovision(4)).await;
    assert_eq!(host.simulated.joins(), joined + 1);
}

// Fault: the new system starts without a wipe.
// Shown: the plan fails: `CleanupMissing`.
#[tokio::test(start_paused = true)]
async fn a_missing_receipt_fails_the_plan() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    while let Advance::Report(report) = executor.advance().await.unwrap() {
        executor.reported(&report).unwrap();
    }
    host.simulated.power_cycle().unwrap();
    host.simulated.run_cloud_init().unwrap();
    let reports = host.play(&reprovision(1)).await;
    assert_eq!(failure(reports.last()).1, FailureReason::CleanupMissing);
}

// Fault: cloud-init does not end.
// Shown: the plan fails: `Timeout`, with the log to read.
#[tokio::test(start_paused = true)]
async fn cloud_init_that_never_ends_is_a_time_out() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    while let Advance::Report(report) = executor.advance().await.unwrap() {
        executor.reported(&report).unwrap();
    }
    host.simulated.power_cycle().unwrap();
    let _ = boot::run(&host.root);
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let Advance::Report(rebooted) = executor.advance().await.unwrap() else { panic!() };
    executor.reported(&rebooted).unwrap();
    let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
    let (step, reason, message) = failure(Some(&report));
    assert_eq!((step, reason), (7, FailureReason::Timeout), "{message}");
    assert!(message.contains("cloud-init-output.log"), "{message}");
}

#[tokio::test]
async fn a_step_without_journal_is_not_run() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    // The temporary file's name is taken: the journal cannot be replaced.
    let blocker = host.root.state().path().join(".journal.new");
    fs::create_dir(&blocker).unwrap();
    let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
    let (step, reason, message) = failure(Some(&report));
    assert_eq!((step, reason), (0, FailureReason::InputOutput), "{message}");
    assert!(!host.root.state().cleanup_marker().exists());
    executor.reported(&report).unwrap();
    assert_eq!(executor.advance().await.unwrap(), Advance::Idle);
    assert!(explain(&executor.accept(clean(2)).unwrap_err()).contains("cannot write the journal"));
    fs::remove_dir(&blocker).unwrap();
    executor.accept(clean(2)).unwrap();
}

#[tokio::test]
async fn a_report_of_another_plan_acknowledges_nothing() {
    let host = Host::new();
    let mut executor = host.executor();
    executor.accept(reprovision(1)).unwrap();
    let Advance::Report(report) = executor.advance().await.unwrap() else { panic!() };
    executor.reported(&StepReport { step: 3, ..report.clone() }).unwrap();
    assert_eq!(executor.advance().await.unwrap(), Advance::Report(report));
}

#[tokio::test(start_paused = true)]
async fn workload_that_outlives_its_runtime_is_removed() {
    let host = Host::new();
    host.play(&Plan { steps: vec![Step::StopContainerd], ..clean(1) }).await;
    let effects = host.simulated.effects();
    assert_eq!(effects[effects.len() - 2..], ["stop containerd.service", "remove workload"]);
}

#[tokio::test(start_paused = true)]
async fn volumes_of_pods_are_unmounted_before_removal() {
    let host = Host::new();
    let volume = host.root.join("/var/lib/kubelet/pods/a/volume");
    let mount = || {
        fs::create_dir_all(&volume).unwrap();
        let table = host.root.join("/proc/1/mountinfo");
        fs::create_dir_all(table.parent().unwrap()).unwrap();
        fs::write(&table, "36 35 98:0 / /var/lib/kubelet/pods/a/volume rw - ext4 /dev/x rw\n").unwrap();
    };
    let plan = |generation| Plan { steps: vec![Step::RemoveNodeState], ..clean(generation) };
    mount();
    host.play(&plan(1)).await;
    assert!(host.simulated.effects().contains(&format!("unmount {}", volume.display())));
    assert!(!volume.exists());
    mount();
    host.simulated.fail("unmount", 32).unwrap();
    let reports = host.play(&plan(2)).await;
    assert_eq!(failure(reports.last()).1, FailureReason::Command);
    assert!(volume.exists());
}
