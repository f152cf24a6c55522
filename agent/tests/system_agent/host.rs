//! A simulated host with a running node, for either agent.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};

use agent::boot;
use agent::ground::failure::Failure;
use agent::ground::paths::Root;
use agent::plan::executor::{Advance, Executor, Policy, REBOOT_DEADLINE};
use agent::plan::staged;
use agent::state::{node_identity, seed};
use proto::plan::{NodeIdentity, Plan, PlanId, Secret, Seed};
use proto::v1alpha1::step_report::Outcome;
use simulated_host::SimulatedSystem;

use super::runner::{Document, put_agent};

pub(crate) const V1: &str = "oci:lab/os:v1";
pub(crate) const V2: &str = "oci:lab/os:v2";
/// A volume of a pod.
pub(crate) const VOLUME: &str = "/var/lib/kubelet/pods/a/volume";

pub(crate) struct Host {
    directory: tempfile::TempDir,
    pub(crate) root: Root,
    pub(crate) simulated: SimulatedSystem,
}

/// The end of a process of `baremetal-agent run-plan`.
pub(crate) struct Ended {
    pub(crate) output: String,
    pub(crate) result: Result<(), Failure>,
}

/// Standard output, which breaks after so many lines.
struct Pipe {
    text: String,
    lines: usize,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.lines().count() >= self.lines {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.text.push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Host {
    /// A host that runs a node with a mounted volume, and has no journal.
    pub(crate) fn with_node() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let simulated = SimulatedSystem::installed(root.clone(), V1).unwrap().with_node().unwrap();
        let former = Seed {
            user_data: Some(Secret::new(b"#cloud-config\nruncmd: [former]\n".to_vec())),
            meta_data: "instance-id: former\n".into(),
            network_config: Some("version: 2\nrenderer: former\n".into()),
            connections: BTreeMap::new(),
            network_data: None,
        };
        seed::store(&root.state(), &former).unwrap();
        seed::place(&root, &former).unwrap();
        let identity = NodeIdentity {
            uuid: "u-1".into(),
            provider_id: "baremetal:///host-1".into(),
            owner: String::new(),
        };
        node_identity::remember(&root, &identity).unwrap();
        put_agent(&root, "/usr/bin/baremetal-agent");
        let host = Self { directory, root, simulated };
        for (path, text) in [
            ("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--v=2\n"),
            ("/etc/rancher/k3s/config.yaml", "token: x\n"),
            ("/etc/rancher/k3s/config.yaml.d/10-token.yaml", "token: x\n"),
            ("/etc/rancher/rke2/registries.yaml", "password: x\n"),
            ("/etc/systemd/system/k3s.service.env", "K3S_TOKEN=x\n"),
            ("/var/log/journal/system.journal", "kubeadm join --token x\n"),
            ("/var/lib/cloud/instances/former/user-data.txt", "former"),
            ("/simulation/workload/pod-2", ""),
        ] {
            host.put(path, text);
        }
        let summary = boot::run(&host.root);
        assert!(summary.problems.is_empty(), "{:?}", summary.problems);
        host.simulated.run_cloud_init().unwrap();
        host.put("/proc/1/mountinfo", &format!("2 1 0:9 / {VOLUME} rw - tmpfs tmpfs rw\n"));
        host
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        let outside = self.directory.path().display().to_string();
        self.simulated.effects().iter().map(|effect| effect.replace(&outside, "")).collect()
    }

    /// Our own agent runs the plan that the coordinator streams, across its reboot.
    pub(crate) async fn execute_streamed(&self, plan: &Plan) {
        loop {
            let system = self.simulated.clone();
            let mut executor = Executor::open(self.root.clone(), system, Policy::default()).unwrap();
            executor.accept(plan.clone()).unwrap();
            loop {
                match executor.advance().await.unwrap() {
                    Advance::Idle => return,
                    Advance::Rebooting => break,
                    Advance::Report(report) => {
                        assert!(matches!(report.outcome, Some(Outcome::Done(_))), "{report:?}");
                        executor.reported(&report).unwrap();
                    }
                }
            }
            assert!(self.reboot_if_asked());
        }
    }

    /// The upstream agent runs the plan once, and is killed after so many steps.
    pub(crate) async fn run_steps(&self, document: &Document, steps: usize) -> Ended {
        let called = document.run(&self.root);
        let called = String::from_utf8(called.stdout).unwrap();
        let [directory, "run-plan", id] = called.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{called}")
        };
        let mut output = Pipe { text: String::new(), lines: steps };
        let id = PlanId::parse(id).unwrap();
        let run = staged::run_staged_plan(
            &self.root,
            self.simulated.clone(),
            &id,
            Some(directory.as_ref()),
            &mut output,
        );
        // The reboot kills the process while it waits.
        let ended = tokio::time::timeout(REBOOT_DEADLINE / 2, run).await;
        assert!(!self.root.join(proto::staged::DIRECTORY).exists(), "no secret stays in a file");
        Ended { output: output.text, result: ended.unwrap_or(Ok(())) }
    }

    /// The upstream agent runs the plan, and again after the plan's reboot.
    pub(crate) async fn run_to_end(&self, document: &Document) -> String {
        let mut output = String::new();
        loop {
            let ended = self.run_steps(document, usize::MAX).await;
            ended.result.unwrap();
            output.push_str(&ended.output);
            if !self.reboot_if_asked() {
                return output;
            }
        }
    }

    pub(crate) fn reboot_if_asked(&self) -> bool {
        let is_asked = self.simulated.reboot_was_asked_for();
        if is_asked {
            self.boot();
        }
        is_asked
    }

    /// What was not flushed is lost.
    pub(crate) fn boot(&self) {
        self.simulated.power_cycle().unwrap();
        // No volume is mounted at early boot.
        self.put("/proc/1/mountinfo", "");
        let summary = boot::run(&self.root);
        assert!(summary.problems.is_empty(), "{:?}", summary.problems);
        self.simulated.run_cloud_init().unwrap();
    }
}
