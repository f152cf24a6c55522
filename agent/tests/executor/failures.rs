//! Steps that fail: what is retried, and what ends the plan with which reason.

use std::fs;
use std::time::Duration;

use agent::boot;
use agent::plan::executor::Advance;
use agent::state::network_trial::{self, Phase};
use agent::state::seed;
use proto::v1alpha1::step_report::Outcome as Reported;
use proto::v1alpha1::{FailureReason, StepReport};
use tokio::time::Instant;

use super::plans::{clean, reprovision, unreachable};
use super::{Host, V2, failure};

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
        ("full disk", "upgrade", 2, "write /x: no space left on device"),
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
async fn failure_ends_plan_when_retries_cannot_help() {
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
        ("full", "no space left on device", minutes(0)..minutes(5), FailureReason::NoSpace, "free space"),
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

// Fault: the network of a plan does not reach the coordinator.
// Shown: the former network comes back with a reboot; the plan fails: `NetworkReverted`.
#[tokio::test(start_paused = true)]
async fn a_network_that_failed_fails_its_plan() {
    let host = Host::new();
    let state = host.root.state();
    host.play(&reprovision(1)).await;
    network_trial::confirm_network(&host.root, "boot-2").unwrap();
    host.play_boot(&unreachable(2)).await;
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
    host.play_boot(&reprovision(1)).await;
    host.simulated.power_cycle().unwrap();
    // Early boot did not run: what cloud-init finds then starts no node.
    let found = seed::load_nocloud(&host.root).unwrap().unwrap();
    assert!(found.user_data.is_none_or(|data| data.expose().is_empty()), "nothing is run");
    assert!(found.meta_data.contains("instance-id: held-"), "{}", found.meta_data);
    host.simulated.run_cloud_init().unwrap();
    let reports = host.play(&reprovision(1)).await;
    assert_eq!(failure(reports.last()).1, FailureReason::CleanupMissing);
}

// Fault: the new image does not keep a directory of the node over a reboot.
// Shown: no node is started; the plan fails: `PathsNotKept`, with the directories.
#[tokio::test(start_paused = true)]
async fn image_that_loses_a_node_fails_plan() {
    let host = Host::new();
    let joined = host.simulated.joins();
    let mounts = "22 1 0:20 / / rw - overlay overlay rw,lowerdir=/image,upperdir=/run/upper\n\
                  23 22 0:21 / /run rw - tmpfs run rw\n\
                  24 22 254:6 /.state/cloud.bind /var/lib/cloud rw - ext4 /dev/vda6 rw\n";
    for (path, text) in [("/proc/self/mountinfo", mounts), ("/usr/lib/systemd/system/kubelet.service", "")] {
        fs::create_dir_all(host.root.join(path).parent().unwrap()).unwrap();
        fs::write(host.root.join(path), text).unwrap();
    }
    let reports = host.play(&reprovision(1)).await;
    let (step, reason, message) = failure(reports.last());
    assert_eq!((step, reason), (7, FailureReason::PathsNotKept), "{message}");
    let lost = "needs: /etc/kubernetes, /var/lib/containerd, /var/lib/etcd, /var/lib/kubelet; next: ";
    assert!(message.contains(lost), "{message}");
    assert_eq!(host.simulated.joins(), joined);
    assert!(!host.root.node_gate().exists());
}

// Fault: cloud-init does not end.
// Shown: the plan fails: `Timeout`, with the log to read.
#[tokio::test(start_paused = true)]
async fn endless_cloud_init_fails_plan_with_timeout() {
    let host = Host::new();
    host.play_boot(&reprovision(1)).await;
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
