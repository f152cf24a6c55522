//! `BaremetalMachine`: one host for one Machine.

mod effects;

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::conditions::{self, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::{BaremetalMachine, BaremetalMachineStatus};
use coordinator_api::names::{annotation, label, plan_secret};
use coordinator_core::machine::{self, Decision, Failure, SecretRead, Snapshot, Waiting};
use coordinator_core::retry;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::choices::Promised;
use super::pool::Roster;
use super::{Context, Error, Waits};
use crate::store::plan::Read;
use crate::store::status::Written;
use crate::store::{StoreError, plan, status};

/// Key of a bootstrap Secret.
const BOOTSTRAP: &str = "value";
/// When a machine that others left no host looks whether they have let one go.
const LET_GO: Duration = Duration::from_secs(5);

/// Everything of a [`Snapshot`], owned.
struct Observed {
    machine: Arc<BaremetalMachine>,
    owner: Option<Arc<Machine>>,
    cluster: Option<Arc<Cluster>>,
    roster: Option<Roster>,
    inventory: Option<Arc<MachineInventory>>,
    catalog: Option<Arc<ConfigMap>>,
    bootstrap: Reading,
    plan: Reading,
}

/// A Secret that was perhaps read.
enum Reading {
    NotAsked,
    Missing,
    Holds(Read),
}

/// Observes, decides, applies one effect, projects the status.
///
/// # Errors
/// When Kubernetes cannot be asked or told.
pub async fn reconcile(machine: Arc<BaremetalMachine>, context: Arc<Context>) -> Result<Action, Error> {
    // Until the decision is known the machine waits for everything: an event
    // between the look at the caches and the note would wake nobody.
    let key = ObjectRef::from_obj(&*machine);
    context.waiting.note(key.clone(), Waits::Yes);
    let mut observed = observe(&context, machine);
    read(&context, &mut observed).await?;
    let (decision, new) = {
        let snapshot = observed.snapshot();
        let decision = machine::decide(&snapshot);
        let new = machine::status(&snapshot, &decision, Timestamp::now());
        (decision, new)
    };
    if promise(&context, &key, &decision) == Promised::Taken {
        return Ok(Action::requeue(retry::GLANCE));
    }
    context.waiting.note(key, waits(&decision));
    effects::apply(&context, &observed, &decision).await?;
    if is_shown(&decision) {
        show(&context, &observed.machine, &decision, new.clone()).await?;
    }
    let promised = observed.roster.as_ref().is_some_and(Roster::holds_promises);
    Ok(match decision {
        // A machine that lets its choice go tells nobody.
        Decision::Wait(Waiting::Member { .. }) if promised => Action::requeue(LET_GO),
        _ => again(&decision, &new),
    })
}

/// Promises a host that is chosen, and forgets the promise once it is claimed
/// or not wanted any more.
fn promise(context: &Context, key: &ObjectRef<BaremetalMachine>, decision: &Decision) -> Promised {
    match decision {
        Decision::Choose { inventory } => {
            let host = ObjectRef::new(inventory).within(key.namespace.as_deref().unwrap_or_default());
            let lives = |other: &ObjectRef<_>| context.caches.baremetal_machines.get(other).is_some();
            context.choices.promise(&host, key, lives)
        }
        // What was chosen by another leader is claimed, whoever it was promised to.
        Decision::Claim { .. } => Promised::Yes,
        _ => {
            context.choices.forget(key);
            Promised::Yes
        }
    }
}

impl Observed {
    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            machine: &self.machine,
            owner: self.owner.as_deref(),
            cluster: self.cluster.as_deref(),
            pool: self.roster.as_ref().map(Roster::pool),
            members: self.roster.as_ref().map(Roster::members).unwrap_or_default(),
            inventory: self.inventory.as_deref(),
            catalog: self.catalog.as_ref().and_then(|catalog| catalog.data.as_ref()),
            bootstrap: self.bootstrap.as_core(),
            plan: self.plan.as_core(),
        }
    }
}

impl Reading {
    fn as_core(&self) -> SecretRead<'_> {
        match self {
            Self::NotAsked => SecretRead::NotAsked,
            Self::Missing => SecretRead::Missing,
            Self::Holds(read) => read.value.as_ref().map_or(SecretRead::Missing, SecretRead::Holds),
        }
    }
}

impl From<Option<Read>> for Reading {
    fn from(read: Option<Read>) -> Self {
        read.map_or(Self::Missing, Self::Holds)
    }
}

fn observe(context: &Context, machine: Arc<BaremetalMachine>) -> Observed {
    let caches = &context.caches;
    let namespace = machine.namespace().unwrap_or_default();
    let owner = machine.owner_references().iter().find(|owner| owner.kind == "Machine").and_then(|owner| {
        let key = ObjectRef::new_with(&owner.name, context.versions.machine.clone()).within(&namespace);
        caches.machines.get(&key)
    });
    let cluster = machine.labels().get(label::CLUSTER_NAME).and_then(|name| {
        let key = ObjectRef::new_with(name, context.versions.cluster.clone()).within(&namespace);
        caches.clusters.get(&key)
    });
    let chosen = machine.annotations().get(annotation::MACHINE_INVENTORY);
    let inventory = chosen.and_then(|name| caches.inventories.get(&ObjectRef::new(name).within(&namespace)));
    let key = ObjectRef::from_obj(&*machine);
    let taken = |name: &str| {
        let by = context.choices.by(&ObjectRef::new(name).within(&namespace));
        by.is_some_and(|other| other != key && caches.baremetal_machines.get(&other).is_some())
    };
    let roster = Roster::of(caches, &machine.spec.machine_inventory_pool_ref.name, &namespace);
    let roster = roster.map(|roster| roster.beside(taken));
    let catalog = caches.catalog.state().into_iter().next();
    let (bootstrap, plan) = (Reading::NotAsked, Reading::NotAsked);
    Observed { machine, owner, cluster, roster, inventory, catalog, bootstrap, plan }
}

/// Reads the Secrets that the decision will look at, and no other.
async fn read(context: &Context, observed: &mut Observed) -> Result<(), StoreError> {
    let namespace = observed.machine.namespace().unwrap_or_default();
    let (bootstrap, secret) = {
        let snapshot = observed.snapshot();
        let needs = machine::needs(&snapshot);
        (needs.bootstrap.map(str::to_owned), needs.plan.map(str::to_owned))
    };
    if let Some(name) = bootstrap {
        observed.bootstrap = plan::read(&context.client, &namespace, &name, BOOTSTRAP).await?.into();
    }
    if let Some(name) = secret {
        observed.plan = plan::read(&context.client, &namespace, &name, plan_secret::PLAN).await?.into();
    }
    Ok(())
}

/// The other decisions change an object, and the next look at it shows more.
fn is_shown(decision: &Decision) -> bool {
    match decision {
        Decision::Wait(_)
        | Decision::Fail(_)
        | Decision::Rest
        | Decision::Assign { .. }
        | Decision::Announce { .. } => true,
        Decision::Choose { .. }
        | Decision::Claim { .. }
        | Decision::Provide { .. }
        | Decision::Release { .. }
        | Decision::Abandon { .. }
        | Decision::RemoveFinalizer => false,
    }
}

async fn show(
    context: &Context,
    machine: &BaremetalMachine,
    decision: &Decision,
    new: BaremetalMachineStatus,
) -> Result<(), StoreError> {
    let reason = |conditions: &[_]| {
        conditions::find(conditions, Type::Ready).map(|ready| (ready.reason.clone(), ready.message.clone()))
    };
    let before = machine.status.as_ref().and_then(|status| reason(&status.conditions));
    let after = reason(&new.conditions);
    let written = status::apply(&context.client, machine, new).await?;
    let needs_person =
        matches!(decision, Decision::Fail(_) | Decision::Wait(Waiting::Pool { .. } | Waiting::Member { .. }));
    if let (Written::Changed, true, Some((reason, message))) =
        (written, needs_person && before != after, after)
    {
        context.events.warning(machine, &reason, &message).await;
    }
    Ok(())
}

/// Whether the machine waits for an object that is not its own: its events
/// must wake it.
fn waits(decision: &Decision) -> Waits {
    match decision {
        Decision::Wait(Waiting::Pool { .. } | Waiting::Member { .. }) | Decision::Fail(_) => Waits::Yes,
        Decision::Wait(_)
        | Decision::Choose { .. }
        | Decision::Claim { .. }
        | Decision::Assign { .. }
        | Decision::Announce { .. }
        | Decision::Provide { .. }
        | Decision::Release { .. }
        | Decision::Abandon { .. }
        | Decision::RemoveFinalizer
        | Decision::Rest => Waits::No,
    }
}

/// Only a Secret that is missing has no watch: it is asked for again, the less
/// often the longer it is missing.
fn again(decision: &Decision, status: &BaremetalMachineStatus) -> Action {
    let secret = matches!(
        decision,
        Decision::Wait(Waiting::BootstrapSecret { .. })
            | Decision::Fail(Failure::Bootstrap(_) | Failure::Unplannable(_))
    );
    if !secret {
        return Action::await_change();
    }
    let since = conditions::find(&status.conditions, Type::Ready).map(|ready| ready.last_transition_time.0);
    let waited = since.map_or(Duration::ZERO, |since| {
        Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default()
    });
    Action::requeue((waited / 2).clamp(retry::SHORTEST, retry::LONGEST / 5))
}
