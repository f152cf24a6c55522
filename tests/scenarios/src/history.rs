//! Every state that objects were ever in, checked against the invariants and the hosts: what
//! must never be, must not have been for a moment either.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use coordinator_api::inventory::{MachineInventory, PlanState, PlanType};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::plan_secret;
use coordinator_api::pool::MachineInventoryPoolStatus;
use coordinator_core::plan::read_record;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::doubled_nodes::list_doubled;
use crate::dump::text;
use crate::host_effects::{Disks, PlanIds};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an operator of a random story writes over an annotation.
pub const EDITED: &str = "edited";

/// Kinds of ours whose conditions name every wait.
const WAITING: [&str; 4] = [
    "machineinventories.elemental.cattle.io",
    "baremetalmachines.infrastructure.cluster.x-k8s.io",
    "metal3machines.infrastructure.cluster.x-k8s.io",
    "baremetalclusters.infrastructure.cluster.x-k8s.io",
];

/// A plan that was written: Secret, generation, kind.
pub type WrittenPlan = (String, u64, String);

#[derive(Default)]
struct Seen {
    /// By inventory: the machine that has it.
    owners: BTreeMap<String, String>,
    /// By inventory: announced generation.
    announced: BTreeMap<String, i64>,
    /// By Secret: generation and name of the plan.
    plans: BTreeMap<String, (u64, String)>,
    /// By Secret: every plan.
    ids: BTreeMap<String, PlanIds>,
    disks: Disks,
    /// Inventories and generations that were shown as applied.
    applied: BTreeSet<(String, i64)>,
    /// By machine: UID and providerID.
    provided: BTreeMap<String, (String, String)>,
    /// Machines with nodes on several hosts.
    doubled: BTreeSet<String>,
    /// Hosts whose reprovision was proven, by inventory: its claim.
    proven: Vec<String>,
    written: Vec<WrittenPlan>,
    /// By kind, then by name: the value that no other object of the kind may have, and its owner.
    unique: BTreeMap<String, BTreeMap<String, (String, String)>>,
    violations: Vec<Violation>,
}

/// Observes every change of the API server.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Seen>>);

impl History {
    /// For hosts with these disks.
    pub(crate) fn of_hosts(disks: Disks) -> Self {
        Self(Arc::new(Mutex::new(Seen { disks, ..Seen::default() })))
    }

    /// Checks a change, as it happens; `now` is `None` for a deletion.
    pub(crate) fn observe(&self, resource: &str, name: &str, now: Option<&Value>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(object) = now.cloned() else {
            seen.forget(resource, name);
            return;
        };
        seen.check_unique(resource, name, &object);
        seen.check_reasons(resource, name, &object);
        match resource {
            "machineinventories.elemental.cattle.io" => {
                seen.check_inventory(&serde_json::from_value(object).unwrap());
            }
            "baremetalmachines.infrastructure.cluster.x-k8s.io" => {
                seen.check_machine(&serde_json::from_value(object).unwrap());
            }
            "machineinventorypools.infrastructure.cluster.x-k8s.io" => {
                seen.check_pool(name, &object["status"]);
            }
            "secrets" => seen.check_secret(&serde_json::from_value(object).unwrap()),
            _ => {}
        }
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).violations.clone()
    }

    /// What was done to a host and no plan wanted.
    pub(crate) fn judge_host(&self, host: &str) -> Vec<String> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.disks.judge(host, seen.ids.get(host).unwrap_or(&PlanIds::new()))
    }

    /// Files of a host's disk whose bytes are as asked for.
    pub(crate) fn search_disk(&self, host: &str, is_it: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).disks.search(host, is_it)
    }

    pub(crate) fn written(&self) -> Vec<WrittenPlan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).written.clone()
    }
}

impl Seen {
    fn violate(&mut self, text: String) {
        self.violations.push(Violation(text));
    }

    /// A recreated object begins again: its status is not that of the old one.
    fn forget(&mut self, resource: &str, name: &str) {
        if let Some(values) = self.unique.get_mut(resource) {
            values.remove(name);
        }
        if resource == "machineinventories.elemental.cattle.io" {
            self.owners.remove(name);
            self.announced.remove(name);
        }
    }

    fn check_inventory(&mut self, inventory: &MachineInventory) {
        let name = inventory.name_any();
        let claim = inventory.claim();
        let owner = claim.as_ref().map_or_else(String::new, |claim| claim.baremetal_machine.clone());
        self.check_owner(&name, &owner);
        for why in list_doubled(&self.disks.directory) {
            if self.doubled.insert(why.clone()) {
                self.violate(why);
            }
        }
        let Some(plan) = inventory.plan() else { return };
        // A status that was lost announces nothing.
        let Some(generation) = plan.generation else { return };
        let before = self.announced.insert(name.clone(), generation).unwrap_or_default();
        if generation < before {
            self.violate(format!("{name} was announced generation {before}, then {generation}"));
        }
        if plan.state == Some(PlanState::Applied) && self.applied.insert((name.clone(), generation)) {
            self.disks.refute(&name, plan).into_iter().for_each(|why| self.violate(why));
        }
        let of_claim =
            claim.is_some_and(|claim| i64::try_from(claim.generation).is_ok_and(|old| old < generation));
        if of_claim && plan.kind == Some(PlanType::Reprovision) && plan.state == Some(PlanState::Applied) {
            self.proven.push(owner);
        }
    }

    /// A host goes from machine to machine by a release. The text of an operator's edit is no machine.
    fn check_owner(&mut self, name: &str, owner: &str) {
        if owner == EDITED {
            return;
        }
        let before = self.owners.insert(name.to_owned(), owner.to_owned()).unwrap_or_default();
        if !before.is_empty() && !owner.is_empty() && before != owner {
            self.violate(format!("{name} went from owner {before} to {owner} without a release"));
        }
        let hosts = self.owners.iter().filter(|(_, other)| !owner.is_empty() && **other == owner).count();
        if hosts > 1 {
            self.violate(format!("machine {owner} owns {hosts} hosts, {name} among them"));
        }
    }

    /// Values of Metal3 that two objects never share: a consumer, an index, an address.
    fn check_unique(&mut self, resource: &str, name: &str, object: &Value) {
        let spec = &object["spec"];
        let (scope, value) = match resource {
            // A host that is kept for the next machine has its Cluster as consumer.
            "baremetalhosts.metal3.io" if spec["consumerRef"]["kind"] == "Cluster" => ("", &Value::Null),
            "baremetalhosts.metal3.io" => ("", &spec["consumerRef"]["name"]),
            "metal3datas.infrastructure.cluster.x-k8s.io" => (text(spec, "/template/name"), &spec["index"]),
            "ipaddresses.ipam.metal3.io" => (text(spec, "/pool/name"), &spec["address"]),
            "ipaddresses.ipam.cluster.x-k8s.io" => (text(spec, "/poolRef/name"), &spec["address"]),
            _ => return,
        };
        let values = self.unique.entry(resource.to_owned()).or_default();
        if value.is_null() {
            values.remove(name);
            return;
        }
        let now = (scope.to_owned(), value.to_string());
        let other = values.iter().find(|(other, held)| *other != name && **held == now);
        let shared = other.map(|(other, _)| format!("{resource}: {other} and {name} both have {value}"));
        let before = values.insert(name.to_owned(), now.clone()).filter(|before| *before != now);
        let changed = before.map(|before| format!("{resource} {name} went from {} to {value}", before.1));
        shared.into_iter().chain(changed).for_each(|why| self.violate(why));
    }

    /// Each wait has a reason, and an object that is not ready says why.
    fn check_reasons(&mut self, resource: &str, name: &str, object: &Value) {
        if !WAITING.contains(&resource) {
            return;
        }
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        for condition in conditions.filter(|condition| condition["status"] != "True") {
            let (kind, reason) = (text(condition, "/type"), text(condition, "/reason"));
            if reason.is_empty() || (kind == "Ready" && text(condition, "/message").is_empty()) {
                self.violate(format!("{resource} {name} waits without a reason: {condition}"));
            }
        }
    }

    fn check_machine(&mut self, machine: &BaremetalMachine) {
        let (Some(provider_id), Some(uid)) = (machine.spec.provider_id.clone(), machine.uid()) else {
            return;
        };
        let name = machine.name_any();
        if !self.proven.contains(&name) {
            self.violate(format!("{name} got its providerID before its host had proven the plan"));
        }
        let before = self.provided.insert(name.clone(), (uid.clone(), provider_id.clone()));
        if before.is_some_and(|(old, before)| old == uid && before != provider_id) {
            self.violate(format!("the providerID of {name} changed to {provider_id}"));
        }
    }

    /// Each member is counted once.
    fn check_pool(&mut self, name: &str, status: &Value) {
        let status: Option<MachineInventoryPoolStatus> = serde_json::from_value(status.clone()).unwrap();
        let Some(status) = status else { return };
        let counters =
            [status.available, status.allocated, status.preparing, status.reprovisioning, status.unavailable];
        if counters.iter().sum::<i32>() != status.total {
            self.violate(format!("pool {name} counts {counters:?} of {} members", status.total));
        }
    }

    fn check_secret(&mut self, secret: &Secret) {
        if secret.type_.as_deref() != Some(plan_secret::TYPE) {
            return;
        }
        let bytes = secret.data.as_ref().and_then(|data| data.get(plan_secret::PLAN));
        let Some(Ok(Some(plan))) = bytes.map(|bytes| read_record(&bytes.0)) else { return };
        let (name, now) = (secret.name_any(), (plan.generation.0, plan.id.to_string()));
        let before = self.plans.insert(name.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return;
        }
        if let Some((generation, id)) = before.filter(|before| before.0 >= now.0) {
            self.violate(format!("{name} held {id} of generation {generation}, then {} of {}", now.1, now.0));
        }
        self.ids.entry(name.clone()).or_default().insert(now.1, now.0);
        self.written.push((name, now.0, plan.kind.as_str().to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_miss_a_member_are_violations() {
        let history = History::default();
        let write = |status: Value| {
            let pool = serde_json::json!({ "metadata": { "name": "pool" }, "status": status });
            history.observe("machineinventorypools.infrastructure.cluster.x-k8s.io", "pool", Some(&pool));
        };
        write(Value::Null);
        write(serde_json::json!({ "total": 3, "available": 1, "allocated": 1, "reprovisioning": 1 }));
        assert_eq!(history.violations(), []);
        write(serde_json::json!({ "total": 3, "available": 1, "allocated": 1 }));
        assert_eq!(history.violations().len(), 1);
    }
}
