//! The final state of a scenario without what differs between two runs: times,
//! UIDs and what is derived from them.

use kube::ResourceExt as _;

use crate::world::World;

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
        }
    }
}
