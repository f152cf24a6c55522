//! What a watch of inventories saw: who held each host at any time, and which
//! plans it was given.

use std::sync::{Arc, Mutex, PoisonError};

use coordinator_api::inventory::{AllocationState, MachineInventory, PlanType};
use coordinator_api::names::annotation;
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::lifecycle::NAMESPACE;

/// One state of one inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Name of the inventory.
    pub name: String,
    /// UID of the inventory.
    pub uid: String,
    /// Whether this is its end.
    pub is_deleted: bool,
    /// Names of the infrastructure machine and the Machine that hold it.
    pub owner: Option<(String, String)>,
    /// How it is allocated.
    pub allocation: AllocationState,
    /// Generation and type of the plan that its status announces.
    pub plan: Option<(i64, PlanType)>,
}

/// What an inventory must look like in every state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Name of the inventory.
    pub name: String,
    /// Names of the infrastructure machine and the Machine that hold it.
    pub owner: Option<(String, String)>,
    /// Highest generation of its plans.
    pub generation: i64,
}

/// Every state since the watch began.
#[derive(Debug)]
pub struct History {
    observed: Arc<Mutex<Vec<Observed>>>,
    task: JoinHandle<()>,
}

impl History {
    /// Begins to watch, and waits until what exists was seen: what vanishes afterwards is
    /// noticed.
    pub async fn watch(client: &Client) -> Self {
        let observed = Arc::<Mutex<Vec<_>>>::default();
        let api: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
        let (listed, mut begun) = watch::channel(false);
        let task = tokio::spawn(record(api, observed.clone(), listed));
        // The sender lives as long as the task.
        let _ = begun.wait_for(|is_listed| *is_listed).await;
        Self { observed, task }
    }

    /// Every state so far.
    pub fn observed(&self) -> Vec<Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the states so far.
    pub fn clear(&self) {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// States in which an inventory was not as expected.
    pub fn violations(&self, expected: &[Expected]) -> Vec<String> {
        find_violations(&self.observed(), expected)
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn find_violations(observed: &[Observed], expected: &[Expected]) -> Vec<String> {
    let check = |seen: &Observed| {
        let want = expected.iter().find(|want| want.name == seen.name)?;
        let has_other_owner = seen.owner != want.owner;
        let is_released = want.owner.is_some() && seen.allocation == AllocationState::Available;
        let is_cleaned = want.owner.is_some()
            && (seen.allocation == AllocationState::Preparing
                || seen.plan.is_some_and(|(_, kind)| kind == PlanType::Clean));
        let has_new_plan = seen.plan.is_some_and(|(generation, _)| generation > want.generation);
        (has_other_owner || is_released || is_cleaned || has_new_plan)
            .then(|| format!("{seen:?}, expected {want:?}"))
    };
    observed.iter().filter_map(check).collect()
}

async fn record(
    api: Api<MachineInventory>,
    observed: Arc<Mutex<Vec<Observed>>>,
    listed: watch::Sender<bool>,
) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        // A watch that breaks is opened again by the stream itself.
        let state = match &event {
            // `clusterctl` replaces all annotations by this one, then it deletes the object.
            Ok(Event::Apply(inventory) | Event::Delete(inventory))
                if inventory.annotations().contains_key(annotation::DELETE_FOR_MOVE) =>
            {
                continue;
            }
            Ok(Event::Apply(inventory) | Event::InitApply(inventory)) => observe(inventory, false),
            Ok(Event::Delete(inventory)) => observe(inventory, true),
            Ok(Event::InitDone) => {
                listed.send_replace(true);
                continue;
            }
            Ok(Event::Init) | Err(_) => continue,
        };
        observed.lock().unwrap_or_else(PoisonError::into_inner).push(state);
    }
}

fn observe(inventory: &MachineInventory, is_deleted: bool) -> Observed {
    Observed {
        name: inventory.name_any(),
        uid: inventory.uid().unwrap_or_default(),
        is_deleted,
        owner: inventory.claim().map(|claim| (claim.baremetal_machine, claim.machine)),
        allocation: inventory.allocation_state(),
        plan: inventory.plan().and_then(|plan| Some((plan.generation?, plan.kind?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(owner: Option<&str>) -> Expected {
        Expected { name: "h".into(), owner: owner.map(|name| (name.into(), name.into())), generation: 1 }
    }

    fn observed(owner: Option<&str>, allocation: AllocationState, plan: Option<(i64, PlanType)>) -> Observed {
        Observed {
            name: "h".into(),
            uid: "u".into(),
            is_deleted: false,
            owner: owner.map(|name| (name.into(), name.into())),
            allocation,
            plan,
        }
    }

    #[test]
    fn every_loss_of_a_host_is_a_violation() {
        use AllocationState::{Allocated, Available, Preparing, Unavailable};
        use PlanType::{Clean, Reprovision};
        for (owner, allocation, plan, want) in [
            (Some("m"), Allocated, Some((1, Reprovision)), 0),
            (Some("m"), Unavailable, None, 0),
            (None, Allocated, None, 1),
            (Some("other"), Allocated, None, 1),
            (Some("m"), Available, None, 1),
            (Some("m"), Preparing, None, 1),
            (Some("m"), Allocated, Some((1, Clean)), 1),
            (Some("m"), Allocated, Some((2, Reprovision)), 1),
        ] {
            let seen = observed(owner, allocation, plan);
            let found = find_violations(std::slice::from_ref(&seen), &[expected(Some("m"))]);
            assert_eq!(found.len(), want, "{seen:?}");
        }
        let taken = observed(Some("m"), Allocated, None);
        assert_eq!(find_violations(&[taken], &[expected(None)]).len(), 1);
        assert!(find_violations(&[observed(None, Available, None)], &[expected(None)]).is_empty());
    }
}
