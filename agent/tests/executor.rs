//! The executor on a simulated operating system.

mod completed;
mod failures;
mod journal;
#[path = "common/plans.rs"]
mod plans;
mod reboots;
mod upgrades;

use agent::boot;
use agent::ground::paths::Root;
use agent::plan::executor::{Advance, Executor, Policy};
use proto::plan::Plan;
use proto::v1alpha1::step_report::Outcome as Reported;
use proto::v1alpha1::{FailureReason, StepReport};
use simulated_host::SimulatedSystem;

const V1: &str = "oci:lab/os:v1";
const V2: &str = plans::IMAGE;

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

    /// Runs `plan` until it ends this boot.
    async fn play_boot(&self, plan: &Plan) {
        let mut executor = self.executor();
        executor.accept(plan.clone()).unwrap();
        while let Advance::Report(report) = executor.advance().await.unwrap() {
            executor.reported(&report).unwrap();
        }
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
            (*step, failure.reason(), format!("{}; next: {}", failure.message, failure.next_action))
        }
        other => panic!("not a failure: {other:?}"),
    }
}
