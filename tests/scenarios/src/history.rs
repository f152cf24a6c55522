//! Every state that objects were ever in, judged: what must never be, must not
//! have been for a moment either.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use coordinator_api::inventory::{MachineInventory, PlanState};
use coordinator_api::machine::BaremetalMachine;
use coordinator_core::plan;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use proto::plan::Generation;
use serde_json::Value;

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Default)]
struct Seen {
    /// By inventory: UID of the machine that has it.
    owners: BTreeMap<String, String>,
    /// By inventory: announced generation.
    announced: BTreeMap<String, i64>,
    /// By Secret: generation and name of the plan.
    plans: BTreeMap<String, (u64, String)>,
    /// By machine's UID: its providerID.
    provided: BTreeMap<String, String>,
    /// Owners of plans that were proven done.
    proven: Vec<String>,
    /// Every plan that was ever written: Secret, generation, name.
    written: Vec<(String, u64, String)>,
    violations: Vec<Violation>,
}

/// The observer.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Seen>>);

impl History {
    /// Takes up a change, as it happens.
    pub(crate) fn note(&self, resource: &str, now: &Value) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let object = now.clone();
        match resource {
            "machineinventories.elemental.cattle.io" => {
                seen.inventory(&serde_json::from_value(object).unwrap());
            }
            "baremetalmachines.infrastructure.cluster.x-k8s.io" => {
                seen.machine(&serde_json::from_value(object).unwrap());
            }
            "secrets" => seen.secret(&serde_json::from_value(object).unwrap()),
            _ => {}
        }
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).violations.clone()
    }

    pub(crate) fn written(&self) -> Vec<(String, u64, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).written.clone()
    }
}

impl Seen {
    fn violated(&mut self, text: String) {
        self.violations.push(Violation(text));
    }

    fn inventory(&mut self, inventory: &MachineInventory) {
        let name = inventory.name_any();
        let claim = inventory.claim().map(|claim| claim.uid).unwrap_or_default();
        let before = self.owners.insert(name.clone(), claim.clone()).unwrap_or_default();
        if !before.is_empty() && !claim.is_empty() && before != claim {
            self.violated(format!("{name} went from owner {before} to {claim} without a release"));
        }
        let owned = self.owners.iter().filter(|(_, owner)| !claim.is_empty() && **owner == claim).count();
        if owned > 1 {
            self.violated(format!("machine {claim} owns {owned} hosts, {name} among them"));
        }
        let Some(plan) = inventory.plan() else { return };
        let generation = plan.generation.unwrap_or_default();
        let before = self.announced.insert(name.clone(), generation).unwrap_or_default();
        if generation < before {
            self.violated(format!("{name} was announced generation {before}, then {generation}"));
        }
        let is_reprovision = plan.id.as_deref().is_some_and(|id| id.starts_with("reprovision-"));
        if let (true, Some(PlanState::Applied), Some(owner)) = (is_reprovision, plan.state, &plan.owner) {
            self.proven.push(owner.clone());
        }
    }

    fn machine(&mut self, machine: &BaremetalMachine) {
        let (Some(provider_id), Some(uid)) = (machine.spec.provider_id.clone(), machine.uid()) else {
            return;
        };
        if !self.proven.contains(&uid) {
            self.violated(format!(
                "{} got its providerID before its host had proven the plan",
                machine.name_any()
            ));
        }
        let before = self.provided.insert(uid.clone(), provider_id.clone());
        if before.as_ref().is_some_and(|before| *before != provider_id) {
            self.violated(format!("the providerID of {} changed to {provider_id}", machine.name_any()));
        }
    }

    fn secret(&mut self, secret: &Secret) {
        if secret.type_.as_deref() != Some(coordinator_api::names::plan_secret::TYPE) {
            return;
        }
        let bytes = secret.data.as_ref().and_then(|data| data.get(coordinator_api::names::plan_secret::PLAN));
        let Some(Ok(Some(stored))) = bytes.map(|bytes| plan::parse(&bytes.0, Generation(0))) else { return };
        let (name, now) = (secret.name_any(), (stored.plan.generation.0, stored.plan.id.to_string()));
        let before = self.plans.insert(name.clone(), now.clone());
        if before.as_ref() == Some(&now) {
            return;
        }
        if let Some((generation, id)) = before.filter(|before| before.0 >= now.0) {
            self.violated(format!(
                "{name} held {id} of generation {generation}, then {} of {}",
                now.1, now.0
            ));
        }
        self.written.push((name, now.0, now.1));
    }
}
