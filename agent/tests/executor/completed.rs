//! Plans that end as intended, and what they leave on the host.

use std::fs;
use std::path::Path;

use proto::plan::{Plan, Step};
use proto::v1alpha1::FailureReason;
use proto::v1alpha1::step_report::Outcome as Reported;

use super::plans::{clean, reprovision};
use super::{Host, failure};

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
    assert_eq!(host.simulated.flushes(), [2, 2], "by the upgrade, and by the step before the reboot");
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
    assert_eq!(host.simulated.flushes(), [2, 2, before + 3], "and by the last step of the clean");
    for path in ["/var/lib/kubelet", "/etc/kubernetes"] {
        assert_eq!(fs::read_dir(host.root.join(path)).unwrap().count(), 0, "{path}");
    }
    assert!(!host.root.state().node_identity().exists());
    let kubelet = fs::read_to_string(host.root.join("/etc/default/kubelet")).unwrap();
    assert_eq!(kubelet, "");
}

#[tokio::test(start_paused = true)]
async fn every_distribution_is_stopped_and_removed() {
    let directories = [
        "/etc/rancher/DISTRIBUTION/config.yaml.d",
        "/etc/rancher/node",
        "/run/k3s",
        "/var/lib/rancher/DISTRIBUTION/agent",
        "/var/lib/rancher/DISTRIBUTION/server",
    ];
    for (unit, distribution) in
        [("k3s", "k3s"), ("k3s-agent", "k3s"), ("rke2-server", "rke2"), ("rke2-agent", "rke2")]
    {
        let host = Host::new();
        fs::remove_dir_all(host.root.join("/simulation/units")).unwrap();
        let unit = format!("{unit}.service");
        let host = Host { simulated: host.simulated.clone().with_unit(&unit).unwrap(), ..host };
        let directories = directories.map(|path| host.root.join(path.replace("DISTRIBUTION", distribution)));
        for directory in &directories {
            fs::create_dir_all(directory).unwrap();
            fs::write(directory.join("secret"), "secret").unwrap();
        }
        let before = host.simulated.effects().len();
        let reports = host.play(&clean(1)).await;
        assert!(matches!(reports[6].outcome, Some(Reported::Done(_))), "{unit}: {:?}", reports[6]);
        let effects = &host.simulated.effects()[before..];
        assert_eq!(effects, [format!("stop {unit}"), "remove workload".to_owned()], "{unit}");
        for directory in &directories {
            assert!(!directory.join("secret").exists(), "{unit}: {}", directory.display());
        }
    }
}

// Fault: the host carries a node of a distribution that the table does not have.
// Shown: the first step of the plan fails with its name; nothing of the node is stopped or removed.
#[tokio::test(start_paused = true)]
async fn unsupported_node_is_refused_untouched() {
    for plan in [clean(1), reprovision(1)] {
        for is_running in [false, true] {
            let host = Host::new();
            let credentials = host.root.join("/var/lib/k0s/kubelet.conf");
            let host = if is_running {
                Host { simulated: host.simulated.clone().with_unit("k0sworker.service").unwrap(), ..host }
            } else {
                fs::create_dir_all(credentials.parent().unwrap()).unwrap();
                fs::write(&credentials, "secret").unwrap();
                host
            };
            let before = host.simulated.effects().len();
            let reports = host.play(&plan).await;
            let Some(Reported::Failed(failed)) = reports[0].outcome.clone() else { panic!("{reports:?}") };
            let failure = failed.failure.unwrap();
            assert!(failure.message.contains("k0s") && !failure.next_action.is_empty(), "{failure:?}");
            assert_eq!(host.simulated.effects()[before..], [""; 0]);
            assert_eq!(credentials.exists(), !is_running);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_empties_the_journal() {
    let host = Host::new();
    let journal = host.root.join("/var/log/journal");
    fs::create_dir_all(&journal).unwrap();
    fs::write(journal.join("system.journal"), "kubeadm join --token x").unwrap();
    host.play(&clean(1)).await;
    assert!(!journal.exists());
}

// Fault: a reprovision fails after it asked for the wipe, and its host is cleaned.
// Shown: nothing: the host boots like any free host.
#[tokio::test(start_paused = true)]
async fn a_clean_ends_the_hold_of_boots() {
    let host = Host::new();
    host.simulated.fail("upgrade", 18).unwrap();
    host.play(&reprovision(1)).await;
    host.reboot();
    assert!(!host.root.node_gate().exists(), "the plan has failed");
    host.play(&clean(2)).await;
    host.reboot();
    assert!(host.root.node_gate().exists());
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
    let [sandbox, others] =
        ["io.containerd.grpc.v1.cri/sandboxes/a/shm", "io.containerd.runtime.v2.task/default/b"]
            .map(|mount| format!("/run/containerd/{mount}"));
    let mount = || {
        fs::create_dir_all(&volume).unwrap();
        let table = host.root.join("/proc/1/mountinfo");
        fs::create_dir_all(table.parent().unwrap()).unwrap();
        let mounts = format!(
            "36 35 98:0 / /var/lib/kubelet/pods/a/volume rw - ext4 /dev/x rw\n\
             37 35 0:9 / {sandbox} rw - tmpfs shm rw\n38 35 0:9 / {others} rw - tmpfs tmpfs rw\n"
        );
        fs::write(&table, mounts).unwrap();
    };
    let plan = |generation| Plan { steps: vec![Step::RemoveNodeState], ..clean(generation) };
    mount();
    host.play(&plan(1)).await;
    let effects = host.simulated.effects();
    let is_unmounted = |path: &Path| effects.contains(&format!("unmount {}", path.display()));
    assert!(is_unmounted(&volume) && is_unmounted(&host.root.join(&sandbox)));
    assert!(!is_unmounted(&host.root.join(&others)), "a container of an operator keeps its mounts");
    assert!(!volume.exists());
    mount();
    host.simulated.fail("unmount", 32).unwrap();
    let reports = host.play(&plan(2)).await;
    assert_eq!(failure(reports.last()).1, FailureReason::Command);
    assert!(volume.exists());
}
