//! One lifecycle, and its final state without what differs between two runs: times,
//! UIDs and what is derived from them.

use std::time::Duration;

use fake_apiserver::Request;
use kube::ResourceExt as _;

use crate::world::{COORDINATOR, World};

/// After it every component has said what it has to say.
const SETTLED: Duration = Duration::from_secs(30);

/// Everything that two runs of one scenario must have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was done to the host, in order.
    pub effects: Vec<String>,
    /// Kind and generation of each plan that was written.
    pub plans: Vec<String>,
    /// The inventory: annotations, finalizers, conditions, plan.
    pub inventory: Vec<String>,
    /// Machines that are left, and their phases.
    pub machines: Vec<String>,
    /// Boots of the host, that of the medium included.
    pub boots: u32,
}

/// A lifecycle that met no fault: what those with one are compared with.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    /// Its end.
    pub outcome: Outcome,
    /// Writes of the coordinator, in their order.
    pub writes: Vec<Request>,
    /// Calls of the agent into the operating system: the verb of each.
    pub calls: Vec<&'static str>,
}

impl Undisturbed {
    /// Runs it.
    pub async fn run() -> Self {
        let mut world = World::without_coordinator();
        let outcome = world.run_lifecycle().await;
        let ours = world.fake.journal().entries().into_iter().map(|entry| entry.request);
        let writes = ours.filter(|request| request.user == COORDINATOR && request.verb.is_write()).collect();
        let calls = world.host("host-1").calls();
        world.check_invariants().await;
        Self { outcome, writes, calls }
    }
}

/// `reprovision-0123…` is `reprovision`.
fn kind(text: &str) -> String {
    let word = |word: &str| {
        let kind = word.split_once('-').map_or(word, |(kind, _)| kind);
        if ["reprovision", "clean", "install"].contains(&kind) { kind.to_owned() } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

impl World {
    /// From the first start of the coordinator in an empty cluster to a node on `host-1`, and
    /// back to a host that is free.
    pub async fn run_lifecycle(&mut self) -> Outcome {
        self.start_coordinator(COORDINATOR);
        self.create_prerequisites(&["host-1"]).await;
        self.apply_machine("m-1").await;
        self.wait_running("m-1").await;
        self.delete_machine("m-1").await;
        self.wait_released("m-1", "host-1").await;
        self.advance_time(SETTLED).await;
        self.outcome("host-1")
    }

    /// The outcome for one host.
    #[must_use]
    pub fn outcome(&self, host: &str) -> Outcome {
        let inventory = self.inventory(host).unwrap();
        let mut facts: Vec<_> =
            inventory.annotations().iter().map(|(key, value)| format!("{key}={value}")).collect();
        facts.extend(inventory.finalizers().iter().cloned());
        let mut conditions: Vec<_> = inventory
            .conditions()
            .iter()
            .map(|found| format!("{}={} {}", found.type_, found.status, found.reason))
            .collect();
        conditions.sort();
        facts.extend(conditions);
        let plan = inventory.plan().cloned().unwrap_or_default();
        facts.push(format!("{:?} {:?} {:?}", plan.kind, plan.generation, plan.state));
        let machines = self.fake.look_at_all("baremetalmachines.infrastructure.cluster.x-k8s.io");
        Outcome {
            effects: self.host(host).system().effects().iter().map(|effect| kind(effect)).collect(),
            plans: self.plans().iter().map(|(_, generation, kind)| format!("{kind} {generation}")).collect(),
            inventory: facts,
            machines: machines
                .iter()
                .map(|machine| format!("{} {}", machine["metadata"]["name"], machine["status"]["phase"]))
                .collect(),
            boots: self.host(host).boots(),
        }
    }
}
