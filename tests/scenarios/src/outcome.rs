//! One lifecycle, and its final state without what differs between two runs: times,
//! UIDs and what is derived from them.

use std::sync::PoisonError;
use std::time::Duration;

use coordinator_api::conditions::Type;
use fake_apiserver::{Counts, Entry, Request, Verb};
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::time::Instant;

use crate::dump::text;
use crate::fault_injection::Call;
use crate::world::{COORDINATOR, World};

const MACHINES: &str = "baremetalmachines.infrastructure.cluster.x-k8s.io";
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
    /// Machines that ran, as they were then, and those that are left: spec, phase and conditions.
    pub machines: Vec<String>,
    /// Pool and cluster: numbers and conditions.
    pub others: Vec<String>,
    /// What the plan Secret holds.
    pub secret: Vec<String>,
    /// Boots of the host, that of the medium included.
    pub boots: u32,
}

/// A write of the coordinator.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its number among all writes, counted from 1.
    pub number: usize,
    pub request: Request,
    pub at: Instant,
}

/// A lifecycle that met no fault: what those with one are compared with.
#[derive(Clone, Debug)]
pub struct Undisturbed {
    pub outcome: Outcome,
    /// Writes of the coordinator, in their order, without the renewals of a Lease that follow
    /// the first: each does the same.
    pub writes: Vec<Write>,
    /// Calls of the agent into the operating system, in their order.
    pub calls: Vec<Call>,
    pub cost: Counts,
}

impl Undisturbed {
    pub async fn run() -> Self {
        let started = Instant::now();
        let mut world = World::without_coordinator();
        let outcome = world.run_lifecycle().await;
        let writes = list_writes(world.fake.journal().entries(), started);
        let calls = world.host("host-1").calls();
        let cost = world.count_requests(0);
        world.check_invariants().await;
        Self { outcome, writes, calls, cost }
    }
}

fn list_writes(entries: Vec<Entry>, started: Instant) -> Vec<Write> {
    let is_write = |entry: &Entry| entry.request.user == COORDINATOR && entry.request.verb.is_write();
    let ours = entries.into_iter().filter(is_write).enumerate();
    let mut writes: Vec<_> = ours
        .map(|(before, entry)| Write { number: before + 1, request: entry.request, at: started + entry.at })
        .collect();
    let mut is_renewed = false;
    writes.retain(|Write { request, .. }| {
        let is_renewal = request.verb == Verb::Patch && request.resource == "leases";
        !is_renewal || !std::mem::replace(&mut is_renewed, true)
    });
    writes
}

fn list_conditions(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions: Vec<_> = conditions
        .map(|found| {
            format!("{}={} {}", text(found, "/type"), text(found, "/status"), text(found, "/reason"))
        })
        .collect();
    conditions.sort();
    conditions
}

fn describe_machine(machine: &Value) -> String {
    let (name, phase) = (text(machine, "/metadata/name"), text(machine, "/status/phase"));
    format!("{name} {} {phase}: {}", machine["spec"], list_conditions(machine).join(", "))
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
        self.wait_linked("m-1").await;
        self.delete_machine("m-1").await;
        self.wait_released("m-1", "host-1").await;
        // A kill may come at what is written after that.
        for _ in 0..3 {
            self.advance_time(SETTLED).await;
            self.restart_stopped();
        }
        self.advance_time(SETTLED).await;
        self.outcome("host-1")
    }

    /// Waits until a machine runs and its Node is known, after which nothing of it changes any
    /// more. What it shows then is part of the outcome.
    pub async fn wait_linked(&self, machine: &str) {
        let holds = |world: &Self, kind| {
            world.machine_condition(machine, kind).is_some_and(|condition| condition.status == "True")
        };
        let is_linked = |world: &Self| holds(world, Type::Ready) && holds(world, Type::NodeLinked);
        self.wait_until(&format!("{machine} runs with its Node"), is_linked).await;
        let shown = describe_machine(&self.get_object(MACHINES, machine).unwrap());
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push(shown);
    }

    /// The outcome for one host.
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
        let mut machines = self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
        machines.extend(self.fake.look_at_all(MACHINES).iter().map(describe_machine));
        Outcome {
            effects: self.host(host).system().effects().iter().map(|effect| kind(effect)).collect(),
            plans: self.plans().iter().map(|(_, generation, kind)| format!("{kind} {generation}")).collect(),
            inventory: facts,
            machines,
            others: self.describe_others(),
            secret: self.describe_secret(host),
            boots: self.host(host).boots(),
        }
    }

    fn describe_others(&self) -> Vec<String> {
        let pools = self.fake.look_at_all("machineinventorypools.infrastructure.cluster.x-k8s.io");
        let clusters = self.fake.look_at_all("baremetalclusters.infrastructure.cluster.x-k8s.io");
        let describe = |object: &Value| {
            let mut facts = list_conditions(object);
            let numbers = object["status"].as_object().into_iter().flatten();
            let numbers = numbers.filter(|(name, value)| value.is_number() && *name != "observedGeneration");
            facts.extend(numbers.map(|(name, value)| format!("{name}={value}")));
            facts
        };
        pools.iter().chain(&clusters).flat_map(describe).collect()
    }

    fn describe_secret(&self, host: &str) -> Vec<String> {
        let secret = self.get_object("secrets", host).unwrap_or_default();
        let keys = secret["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
        [text(&secret, "/type").to_owned()].into_iter().chain(keys).collect()
    }
}
