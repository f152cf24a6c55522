use std::collections::BTreeMap;
use std::fs;

use proto::plan::{Checksum, Generation, Image, Kind, NodeIdentity, Plan, Secret, Seed};
use proto::v1alpha1::{StepDone, StepFailed};

use super::*;
use crate::state;
use crate::state::journal::Outcome;

fn plan(kind: Kind) -> Plan {
    let image = Image::parse("lab/os:v1").unwrap();
    Plan {
        id: PlanId::parse("reprovision-01").unwrap(),
        generation: Generation(1),
        checksum: Checksum::of(b"reprovision-01"),
        kind,
        steps: vec![Step::RequestCleanup, Step::Reboot, Step::VerifySystem { image }],
    }
}

fn done() -> Outcome {
    Outcome::Done(StepDone::default())
}

fn failed() -> Outcome {
    Outcome::Failed(StepFailed::default())
}

#[test]
fn only_the_plans_own_reboot_wipes() {
    let id = || PlanId::parse("reprovision-01").unwrap();
    let begun = Journal::begin_plan(&plan(Kind::Reprovision)).with_started(0, "a").with_ended(0, done());
    let rebooting = begun.clone().with_started(1, "a");
    let rebooted = rebooting.clone().with_ended(1, done());
    let mut other = plan(Kind::Reprovision);
    other.id = PlanId::parse("reprovision-02").unwrap();
    let (active, passive) = (BootMode::Active, BootMode::Passive);
    let upstream = |rebooted| Err(Evidence::Upstream { rebooted });
    let cases = [
        ("upstream agent, rebooting", upstream(true), active, true),
        ("upstream agent, fell back", upstream(true), passive, false),
        ("no evidence", upstream(false), active, false),
        ("damaged journal", Err(Evidence::DamagedJournal), active, false),
        ("power cut before the reboot", Ok(begun), active, false),
        ("rebooting", Ok(rebooting.clone()), active, true),
        ("unknown boot mode", Ok(rebooting.clone()), BootMode::Unspecified, false),
        ("fell back", Ok(rebooting.clone()), passive, false),
        ("recovery", Ok(rebooting.clone()), BootMode::Recovery, false),
        ("rebooted", Ok(rebooted.clone()), active, true),
        ("never rebooted", Ok(rebooting.with_ended(1, failed())), active, false),
        ("failed after the reboot", Ok(rebooted.with_started(2, "b").with_ended(2, failed())), active, false),
        ("a newer plan", Ok(Journal::begin_plan(&other).with_started(1, "a")), active, false),
        ("a clean plan", Ok(Journal::begin_plan(&plan(Kind::Clean)).with_started(1, "a")), active, false),
    ];
    for (name, evidence, mode, wipes) in cases {
        let evidence = evidence.as_ref().map_or_else(|upstream| *upstream, Evidence::Journal);
        let decision = decide_cleanup(Some(id()), evidence, mode);
        assert_eq!(decision == Decision::Wipe(id()), wipes, "{name}: {decision:?}");
    }
}

#[test]
fn unapplied_plan_holds_boot_without_marker() {
    let done_until = |kind, count: usize| {
        (0..count).fold(Journal::begin_plan(&plan(kind)), |journal, index| {
            journal.with_started(index, "a").with_ended(index, done())
        })
    };
    let reprovision = |count| done_until(Kind::Reprovision, count);
    let fail = |journal: Journal, index| journal.with_started(index, "b").with_ended(index, failed());
    let (active, passive) = (BootMode::Active, BootMode::Passive);
    let cases = [
        ("wiped, new system", reprovision(2), active, false),
        ("wiped, then fell back", reprovision(2), passive, true),
        ("wiped, unknown boot mode", reprovision(2), BootMode::Unspecified, true),
        ("applied, unknown boot mode", reprovision(3), BootMode::Unspecified, false),
        ("failed, new system", fail(reprovision(2), 2), active, true),
        ("failed, old system", fail(reprovision(2), 2), passive, true),
        ("failed before its marker", fail(reprovision(0), 0), active, true),
        ("applied", reprovision(3), active, false),
        ("applied, then fell back", reprovision(3), passive, false),
        ("applied clean", done_until(Kind::Clean, 3), active, false),
    ];
    for (name, journal, mode, holds) in cases {
        let decision = decide_cleanup(None, Evidence::Journal(&journal), mode);
        assert_eq!(matches!(decision, Decision::Hold { .. }), holds, "{name}: {decision:?}");
        assert_eq!(decision == Decision::Continue, !holds, "{name}: {decision:?}");
    }
    for journal in [done_until(Kind::Clean, 1), fail(done_until(Kind::Clean, 0), 0)] {
        assert_eq!(decide_cleanup(None, Evidence::Journal(&journal), active), Decision::Cleaning);
    }
    assert_eq!(decide_cleanup(None, Evidence::DamagedJournal, active), Decision::Continue);
}

struct Host {
    _directory: tempfile::TempDir,
    root: Root,
}

impl Host {
    /// A host with a former node, a marker and a new seed, in its plan's reboot.
    fn rebooted() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let host = Self { _directory: directory, root };
        host.put("/proc/sys/kernel/random/boot_id", "boot-2\n");
        host.put("/run/elemental/active_mode", "1");
        host.put("/etc/default/kubelet", "");
        for directory in distribution::wiped_directories(Extent::Tree) {
            host.put(&format!("{directory}/of/the/former/node"), "secret");
        }
        let seed = Seed {
            user_data: Some(Secret::new(b"#cloud-config\n".to_vec())),
            meta_data: "instance-id: reprovision-01\n".into(),
            network_config: None,
            connections: BTreeMap::new(),
            network_data: None,
        };
        seed::store(&host.root.state(), &seed).unwrap();
        let identity =
            NodeIdentity { uuid: "u".into(), provider_id: "baremetal:///h".into(), owner: String::new() };
        node_identity::remember(&host.root, &identity).unwrap();
        fs::write(host.root.state().cleanup_marker(), "reprovision-01\n").unwrap();
        host.journal(&Journal::begin_plan(&plan(Kind::Reprovision)).with_started(1, "boot-1"));
        host
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn journal(&self, journal: &Journal) {
        journal::write_journal(&self.root.state(), journal).unwrap();
    }

    fn boot(&self) {
        let summary = run(&self.root);
        assert!(summary.problems.is_empty(), "{:?}", summary.problems);
    }

    fn is_wiped(&self) -> bool {
        let left = |path: &&str| fs::read_dir(self.root.join(path)).unwrap().count();
        distribution::wiped_directories(Extent::Tree).iter().all(|path| left(path) == 0)
    }

    fn may_start_node(&self) -> bool {
        let kubelet = fs::read_to_string(self.root.join("/etc/default/kubelet")).unwrap();
        self.root.node_gate().exists() || !kubelet.is_empty()
    }

    fn user_data(&self) -> Vec<u8> {
        fs::read(self.root.nocloud_seed().join("user-data")).unwrap()
    }
}

#[test]
fn planned_reboot_applies_wipe_seed_and_identity() {
    let host = Host::rebooted();
    host.boot();
    assert!(host.is_wiped() && !host.root.state().cleanup_marker().exists());
    assert_eq!(host.user_data(), b"#cloud-config\n");
    let receipt = receipt::read_receipt(&host.root).unwrap();
    assert_eq!((receipt.plan_id.as_str(), receipt.boot_id.as_str()), ("reprovision-01", "boot-2"));
    let kubelet = fs::read_to_string(host.root.join("/etc/default/kubelet")).unwrap();
    assert!(kubelet.contains("--provider-id=baremetal:///h"), "{kubelet}");
    assert!(host.root.node_gate().exists());
}

#[test]
fn a_wipe_keeps_images_and_removes_credentials() {
    for name in ["rke2", "k3s"] {
        let host = Host::rebooted();
        let agent = format!("/var/lib/rancher/{name}/agent");
        let images = format!("{agent}/images/x.tar.zst");
        let removed = ["client-kubelet.key", "pod-manifests/etcd.yaml", "etc/containerd/config.toml"]
            .map(|path| format!("{agent}/{path}"));
        host.put(&images, "image");
        for path in &removed {
            host.put(path, "former");
        }
        host.boot();
        assert!(host.root.join(&images).exists(), "{name}");
        for path in removed {
            assert!(!host.root.join(&path).exists(), "{path}");
        }
    }
}

#[test]
fn rke2_and_k3s_learn_identity_at_first_boot() {
    let host = Host::rebooted();
    assert!(!host.root.join("/etc/rancher").join("rke2").exists(), "cloud-init makes the directory later");
    host.boot();
    for directory in distribution::fragments() {
        let path = host.root.join(directory).join("90-baremetal-agent.yaml");
        let fragment = fs::read_to_string(path).unwrap();
        assert!(fragment.contains("provider-id=baremetal:///h"), "{directory}: {fragment}");
        assert!(fragment.contains("metal3.io/uuid=u"), "{directory}: {fragment}");
    }
    node_identity::forget_identity(&host.root).unwrap();
    assert!(node_identity::is_forgotten(&host.root).unwrap());
}

#[test]
fn bootstrap_that_a_reboot_cut_off_is_noted() {
    const INSTANCE: &str = "/var/lib/cloud/instances/reprovision-01";
    let noted = |left_by_first_boot: &[&str], second_boot: &str| {
        let host = Host::rebooted();
        host.boot();
        for file in left_by_first_boot {
            host.put(&format!("{INSTANCE}/{file}"), "");
        }
        host.put("/proc/sys/kernel/random/boot_id", second_boot);
        host.boot();
        assert!(!state::bootstrap::is_interrupted(&host.root, "reprovision-02"), "another plan");
        let is_interrupted = || state::bootstrap::is_interrupted(&host.root, "reprovision-01");
        let noted = is_interrupted();
        if second_boot != "boot-2\n" {
            // cloud-init removes it at each boot, before it writes it again.
            let _ = fs::remove_file(host.root.join(INSTANCE).join("boot-finished"));
            host.put("/proc/sys/kernel/random/boot_id", "boot-4\n");
            host.boot();
            assert_eq!(is_interrupted(), noted, "the first boot after it tells");
        }
        noted
    };
    let (begun, finished) = ("sem/config_scripts_user", "boot-finished");
    for (name, files, boot, want) in [
        ("cut off", &[begun][..], "boot-3\n", true),
        ("ended before it began", &["sem/config_runcmd"], "boot-3\n", false),
        ("ended", &[begun, finished], "boot-3\n", false),
        ("not begun", &[], "boot-3\n", false),
        ("early boot ran again", &[begun], "boot-2\n", false),
    ] {
        assert_eq!(noted(files, boot), want, "{name}");
    }
}

#[test]
fn an_upstream_agents_reboot_wipes() {
    let host = Host::rebooted();
    fs::remove_file(host.root.state().journal()).unwrap();
    host.put("/var/lib/baremetal-agent/done/reprovision-01.reboot", "");
    host.boot();
    assert!(host.is_wiped() && !host.root.state().cleanup_marker().exists());
    assert_eq!(receipt::read_receipt(&host.root).unwrap().plan_id, "reprovision-01");
}

#[test]
fn a_plan_wipes_once() {
    let host = Host::rebooted();
    host.boot();
    host.put("/var/lib/kubelet/config.yaml", "of the new node");
    // As a crash between receipt and marker leaves it, or a failed removal.
    fs::write(host.root.state().cleanup_marker(), "reprovision-01\n").unwrap();
    host.boot();
    assert!(host.root.join("/var/lib/kubelet/config.yaml").exists());
    assert!(!host.root.state().cleanup_marker().exists());
}

// Fault: power is cut between the marker and the reboot, the journal is lost or damaged, or the
// boot loader falls back.
// Shown: host console: why no node is wiped or started.
#[test]
fn an_unrequested_boot_is_held() {
    type Spoil = fn(&Host);
    let cases: [(&str, Spoil); 5] = [
        ("lost journal", |host| fs::remove_file(host.root.state().journal()).unwrap()),
        ("power cut", |host| host.journal(&Journal::begin_plan(&plan(Kind::Reprovision)))),
        ("damaged journal", |host| fs::write(host.root.state().journal(), "torn").unwrap()),
        ("damaged marker", |host| fs::write(host.root.state().cleanup_marker(), "\0\0").unwrap()),
        ("fallback", |host| {
            fs::remove_file(host.root.join("/run/elemental/active_mode")).unwrap();
            host.put("/run/elemental/passive_mode", "1");
        }),
    ];
    for (name, spoil) in cases {
        let host = Host::rebooted();
        spoil(&host);
        let _summary = run(&host.root);
        assert!(!host.is_wiped(), "{name}");
        assert!(host.root.state().cleanup_marker().exists(), "{name}");
        assert_eq!(host.user_data(), b"", "{name}");
        assert!(receipt::read_receipt(&host.root).is_none(), "{name}");
        assert!(!host.may_start_node(), "{name}");
    }
}

// Fault: a bit of the journal flips, after its plan has failed or while the node is cleaned.
// Shown: host console: the journal is damaged; no unit of a node starts.
#[test]
fn a_flipped_bit_opens_no_gate() {
    let ended = |kind, outcome: fn() -> Outcome| {
        let plan = plan(kind);
        let journal = Journal::begin_plan(&plan).with_started(0, "boot-1");
        (0..plan.steps.len()).fold(journal, |journal, index| journal.with_ended(index, outcome()))
    };
    let failed = || Outcome::Failed(StepFailed::default());
    for (name, journal, may_start) in [
        ("a plan that failed", ended(Kind::Reprovision, failed), false),
        ("a node that is cleaned", Journal::begin_plan(&plan(Kind::Clean)), false),
        ("a clean that failed", ended(Kind::Clean, failed), false),
        ("a plan that succeeded", ended(Kind::Reprovision, done), true),
    ] {
        let host = Host::rebooted();
        fs::remove_file(host.root.state().cleanup_marker()).unwrap();
        host.journal(&journal);
        let path = host.root.state().journal();
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 10;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        let _summary = run(&host.root);
        assert_eq!(host.may_start_node(), may_start, "{name}");
        // The next plan ends the hold.
        host.journal(&ended(Kind::Reprovision, done));
        let _summary = run(&host.root);
        assert!(host.may_start_node(), "{name}: after another plan");
    }
}

// Fault: a directory of the former node cannot be emptied.
// Shown: host console: the directory; no unit of a node starts.
#[test]
fn a_failed_wipe_leaves_no_receipt() {
    let host = Host::rebooted();
    let etcd = host.root.join("/var/lib/etcd");
    fs::remove_dir_all(&etcd).unwrap();
    std::os::unix::fs::symlink("/nonexistent", &etcd).unwrap();
    let summary = run(&host.root);
    let [problem] = &summary.problems[..] else { panic!("{:?}", summary.problems) };
    assert!(problem.message.starts_with("cannot wipe the former node"), "{problem}");
    assert!(receipt::read_receipt(&host.root).is_none());
    assert!(host.root.state().cleanup_marker().exists());
    assert_eq!(host.user_data(), b"");
    assert!(!host.may_start_node());
}

// Fault: the wipe of a former node takes longer than a boot waits.
// Shown: console and step: how many files are removed; the host reboots and the wipe goes on.
#[test]
fn a_long_wipe_goes_on_at_next_boot() {
    let host = Host::rebooted();
    let plan = PlanId::parse("reprovision-01").unwrap();
    let mut boots = 0;
    let mut removed = 0;
    while let Err(failure) = clean_up(&host.root, &plan, Instant::now()) {
        let progress = receipt::read_progress(&host.root).unwrap();
        assert!(failure.message.contains(&format!("{} files", progress.removed)), "{failure}");
        assert!(progress.removed > removed, "no boot without progress");
        assert!(receipt::read_receipt(&host.root).is_none() && host.root.state().cleanup_marker().exists());
        removed = progress.removed;
        boots += 1;
        assert!(boots < 1000, "{failure}");
    }
    assert!(boots > 1 && host.is_wiped());
    assert!(receipt::read_receipt(&host.root).is_some() && receipt::read_progress(&host.root).is_none());
}

// Fault: the seed cannot be restored at a boot.
// Shown: host console: the cause; no unit of a node starts.
#[test]
fn lost_seed_keeps_the_gate_shut() {
    let host = Host::rebooted();
    host.boot();
    assert!(host.root.node_gate().exists());
    // A file is in the place of the directory above the seed.
    let parent = host.root.nocloud_seed().parent().unwrap().to_owned();
    fs::remove_dir_all(&parent).unwrap();
    fs::write(&parent, "").unwrap();
    let summary = run(&host.root);
    assert!(summary.problems[0].message.starts_with("cannot restore the seed"), "{:?}", summary.problems);
    assert!(summary.done.iter().any(|note| note.contains("no node is started")), "{:?}", summary.done);
    assert!(!host.root.node_gate().exists());
}

#[test]
fn an_ordinary_boot_restores_seed_and_identity() {
    let host = Host::rebooted();
    host.boot();
    fs::write(host.root.join("/etc/default/kubelet"), "").unwrap();
    fs::remove_dir_all(host.root.nocloud_seed()).unwrap();
    host.put("/var/lib/kubelet/config.yaml", "of the node");
    host.boot();
    assert_eq!(host.user_data(), b"#cloud-config\n");
    let kubelet = fs::read_to_string(host.root.join("/etc/default/kubelet")).unwrap();
    assert!(kubelet.contains("metal3.io/uuid=u"), "{kubelet}");
    assert!(host.root.join("/var/lib/kubelet/config.yaml").exists());
}

#[test]
fn a_live_system_gets_only_its_seed() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let host = Host { _directory: directory, root };
    host.put("/run/elemental/live_mode", "1");
    host.put("/proc/sys/kernel/random/boot_id", "boot-1\n");
    host.put("/var/lib/kubelet/x", "y");
    host.put("/run/initramfs/live/livecd-cloud-config.yaml", "cloud-config: {runcmd: [a]}\n");
    host.boot();
    assert_eq!(host.user_data(), b"#cloud-config\n{\n  \"runcmd\": [\n    \"a\"\n  ]\n}");
    let meta_data = fs::read_to_string(host.root.nocloud_seed().join("meta-data")).unwrap();
    assert_eq!(meta_data, "instance-id: live-boot-1\n");
    assert!(host.root.join("/var/lib/kubelet/x").exists());
    host.put("/run/initramfs/live/livecd-cloud-config.yaml", "a: [");
    let problems = run(&host.root).problems;
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.message.contains("livecd-cloud-config.yaml is not YAML"), "{problem}");
}

#[test]
fn stages_without_yip_are_a_problem() {
    let (stages, cloud_config) = ("stages: {boot: [{commands: [a]}]}\n", "#cloud-config\nruncmd: [a]\n");
    for (name, command_line, config, is_problem) in [
        ("no yip", "elemental.mode=live", stages, true),
        ("yip", "elemental.setup=/run/initramfs/live/iso-config", stages, false),
        ("cloud-init", "elemental.mode=live", cloud_config, false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let host = Host { _directory: directory, root };
        host.put("/run/elemental/live_mode", "1");
        host.put("/proc/cmdline", command_line);
        host.put("/proc/sys/kernel/random/boot_id", "boot-1\n");
        host.put("/run/initramfs/live/livecd-cloud-config.yaml", "elemental: {}\n");
        host.put("/run/initramfs/live/iso-config/cloud-config.yaml", config);
        let problems = run(&host.root).problems;
        let named = problems.iter().filter(|problem| problem.message.contains("has no yip")).count();
        assert_eq!((named, problems.len()), (usize::from(is_problem), named), "{name}: {problems:?}");
        assert!(host.root.nocloud_seed().join("meta-data").exists(), "{name}");
    }
}
