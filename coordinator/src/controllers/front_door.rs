//! The reconcile of every kind of machine that asks for hosts.
//!
//! A front door reads its own objects into a demand and projects the state of the machine into its
//! own status. Everything between is shared: gather, decide, apply one effect, write the status.

mod effects;
mod guard;

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::conditions::{ConditionUpdate, Reason};
use coordinator_api::inventory::MachineInventory;
use coordinator_core::assignment::{
    self, Effect, Host, Outcome, SecretRead, SecretRef, Secrets, Situation, State, Wake,
};
use coordinator_core::demand::{Demand, Want};
use coordinator_core::host::HostRecord;
use coordinator_core::host_decision::ClaimingMachine;
use coordinator_core::pool::Wish;
use coordinator_core::problem::Severity;
use coordinator_core::provider_id::ProviderId;
use coordinator_core::retry;
use coordinator_core::trace::TraceId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::runtime::controller::Action;
use serde::Serialize;
use serde_json::{Value, json};

use super::context::Context;
use super::failures::{announce_blocker, describe_failure};
use super::reconciled::Failure;
use super::spread;
use crate::clock::time_until;
use crate::index::Wait;
use crate::key::{Key, OfKind};
use crate::store::plan_record::PlanSecret;
use crate::store::{Class, Object, StoreError, plan_record, secret, status};
use crate::traces::note_trace;

pub(super) use guard::Guard;

/// Key of a bootstrap Secret of Cluster API.
pub(super) const VALUE: &str = "value";
/// Secrets and Nodes that one decision may ask for.
const READS: usize = 6;
/// A machine without a host is decided again after this time. A member that becomes available is
/// offered to one machine, which may not take it.
pub(super) const EXHAUSTED_RECHECK: Duration = Duration::from_secs(30);

/// A kind of machine that asks for hosts.
pub(super) trait FrontDoor: Object + OfKind + Send + Sync + 'static {
    type Status: Serialize + Send;

    /// Keys of the Secret with the bootstrap data; the first one that exists is read.
    const BOOTSTRAP_KEYS: &[&str];

    /// Registers the machine as waiting for a host. A kind whose objects name their hosts
    /// neither waits nor reserves.
    fn open_guard<'a>(&self, _: &'a Context) -> Option<Guard<'a>> {
        None
    }

    /// Reads the demand and the inventory that the machine names.
    fn gather_inputs(&self, context: &Context) -> Gathered;

    /// The fields of the machine that a claim needs.
    fn read_claiming(&self, context: &Context) -> ClaimingMachine;

    /// The status that shows `state`.
    fn project_status(&self, state: &State, updates: &[ConditionUpdate], gathered: &Gathered)
    -> Self::Status;

    /// Reason of the stored condition `Ready`.
    fn ready_reason(&self) -> Option<&str>;

    /// The change by which the machine records its providerID.
    fn provide_change(&self, provider_id: &ProviderId) -> Value {
        json!({ "spec": { "providerID": provider_id.as_str() } })
    }

    /// The change by which the machine forgets a released host.
    fn release_change(&self) -> Value {
        json!({})
    }
}

/// The facts of a decision.
pub(super) struct Gathered {
    pub demand: Demand,
    pub inventory: Option<Arc<MachineInventory>>,
    pub host: Option<HostRecord>,
    pub now: Timestamp,
}

impl Gathered {
    pub(super) fn new(demand: Demand, inventory: Option<Arc<MachineInventory>>, now: Timestamp) -> Self {
        let host = inventory.as_deref().and_then(HostRecord::parse);
        Self { demand, inventory, host, now }
    }

    fn situation<'a>(&'a self, secrets: &'a Secrets) -> Situation<'a> {
        let host = self.host.as_ref().zip(self.inventory.as_deref());
        let host = host.map(|(record, inventory)| Host { record, spec: &inventory.spec });
        Situation { demand: &self.demand, host, secrets, now: self.now }
    }
}

/// Gathers, decides, applies one effect, writes the status.
pub(super) async fn reconcile_machine<K: FrontDoor>(
    machine: Arc<K>,
    context: Arc<Context>,
) -> Result<Action, Failure> {
    note_trace(machine.meta().uid.as_deref().and_then(TraceId::of_machine));
    // The machine waits before the caches are read, so that no event is missed.
    let guard = machine.open_guard(&context);
    let gathered = machine.gather_inputs(&context);
    let decided = decide_outcome::<K>(&context, &gathered).await;
    let applied = apply_outcome(&context, &*machine, &gathered, decided, guard).await;
    write_state(&context, &*machine, &gathered, &applied).await?;
    applied.result.map_err(Failure::Shown)?;
    Ok(requeue_after::<K>(&context, &Key::of(&*machine), applied.outcome.as_ref(), gathered.now))
}

/// The outcome of a decision and the result of its effect.
struct Applied {
    /// None if there was no decision, or if its host is reserved for another machine.
    outcome: Option<Outcome>,
    result: Result<(), StoreError>,
}

async fn apply_outcome<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    decided: Result<(Outcome, ReadSecrets), StoreError>,
    guard: Option<Guard<'_>>,
) -> Applied {
    let (outcome, read) = match decided {
        Ok(decided) => decided,
        Err(error) => {
            if let Some(guard) = guard {
                guard.set_wait(None);
            }
            return Applied { outcome: None, result: Err(error) };
        }
    };
    if guard.as_ref().is_some_and(|guard| !guard.reserve_host(outcome.effect.as_ref())) {
        return Applied { outcome: None, result: Ok(()) };
    }
    if let Some(guard) = guard {
        guard.set_wait(find_wait(&gathered.demand, &outcome));
    }
    let result = effects::apply_outcome(context, machine, gathered, &outcome, &read).await;
    Applied { outcome: Some(outcome), result }
}

/// Secrets that were read for a decision, with the preconditions of writes to them.
#[derive(Default)]
struct ReadSecrets {
    plan: Option<PlanSecret>,
    bootstrap: Option<KubeSecret>,
}

/// Decides. Secrets and Nodes are read only when the decision asks for them.
async fn decide_outcome<K: FrontDoor>(
    context: &Context,
    gathered: &Gathered,
) -> Result<(Outcome, ReadSecrets), StoreError> {
    let (mut secrets, mut stored) = (Secrets::default(), ReadSecrets::default());
    let mut outcome = assignment::decide_outcome(&gathered.situation(&secrets));
    for _ in 0..=READS {
        match &outcome.effect {
            Some(Effect::ReadSecret(secret)) => {
                read_secret::<K>(context, gathered, secret, (&mut secrets, &mut stored)).await?;
            }
            Some(Effect::FindNodes(search)) => {
                let namespace = &gathered.demand.machine.namespace;
                secrets.nodes = context.workloads.read_nodes(&context.client, namespace, search).await?;
            }
            _ => break,
        }
        outcome = assignment::decide_outcome(&gathered.situation(&secrets));
    }
    Ok((outcome, stored))
}

async fn read_secret<K: FrontDoor>(
    context: &Context,
    gathered: &Gathered,
    wanted: &SecretRef,
    (secrets, stored): (&mut Secrets, &mut ReadSecrets),
) -> Result<(), StoreError> {
    let (client, namespace) = (&context.client, &gathered.demand.machine.namespace);
    match wanted {
        SecretRef::Bootstrap(name) => {
            stored.bootstrap = secret::read_secret(client, namespace, name).await?;
            let read = stored.bootstrap.as_ref();
            let value = read.and_then(|secret| secret::value_of(secret, K::BOOTSTRAP_KEYS));
            secrets.bootstrap = value.map_or(SecretRead::Missing, SecretRead::Read);
        }
        SecretRef::MetaData(name) => {
            let read = secret::read_key(client, namespace, name, &["metaData", VALUE]).await?;
            secrets.meta_data = read.map_or(SecretRead::Missing, SecretRead::Read);
        }
        SecretRef::NetworkData(name) => {
            let read = secret::read_key(client, namespace, name, &["networkData", VALUE]).await?;
            secrets.network_data = read.map_or(SecretRead::Missing, SecretRead::Read);
        }
        SecretRef::Registry(name) => {
            let read = secret::read_secret(client, namespace, name).await?;
            secrets.registry = read.map_or(SecretRead::Missing, |read| SecretRead::Read(Box::new(read)));
        }
        SecretRef::Plan => {
            if let Some(host) = &gathered.host {
                let (secret, plan) = plan_record::read_for_host(client, host).await?;
                secrets.plan = Some(plan);
                stored.plan = Some(secret);
            }
        }
    }
    Ok(())
}

/// The wait of the machine after a decision.
fn find_wait(demand: &Demand, outcome: &Outcome) -> Option<Wait<Wish>> {
    let blocker = outcome.state.as_ref().and_then(|state| state.blocker.as_ref())?;
    match &demand.want {
        Want::Node(node) if blocker.problem.reason == Reason::PoolExhausted => {
            Some(Wait::Host(node.wish.clone()))
        }
        _ => (blocker.severity != Severity::Waiting).then_some(Wait::Catalog),
    }
}

/// Shows the state, and with it a Secret that could not be read or an effect that the API server
/// refused. After a conflict nothing is shown, because the next reconcile shows the newer object.
async fn write_state<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    applied: &Applied,
) -> Result<(), StoreError> {
    let is_conflict = applied.result.as_ref().is_err_and(|error| error.class() == Class::Conflict);
    if is_conflict && !context.backoffs.shows_conflict(K::KIND, &Key::of(machine)) {
        return Ok(());
    }
    let failed = match &applied.result {
        Err(error) => Some(describe_failure(error)),
        Ok(()) => None,
    };
    let state = match applied.outcome.as_ref().and_then(|outcome| outcome.state.as_ref()) {
        Some(state) => state.clone(),
        None if failed.is_some() => State::of_host(gathered.host.as_ref(), &gathered.demand),
        None => return Ok(()),
    };
    let mut updates = assignment::project_conditions(&state);
    if let Some(failed) = failed {
        updates.retain(|update| update.kind != failed.kind);
        updates.push(failed);
    }
    let before = machine.ready_reason().map(str::to_owned);
    let status = machine.project_status(&state, &updates, gathered);
    let written = status::write_status(&context.client, machine, &status).await?;
    if let (Some(written), Some(blocker)) = (written, &state.blocker) {
        announce_blocker(context, &written, blocker, before.as_deref());
    }
    Ok(())
}

fn requeue_after<K: OfKind>(
    context: &Context,
    key: &Key,
    outcome: Option<&Outcome>,
    now: Timestamp,
) -> Action {
    let Some(outcome) = outcome else { return Action::requeue(retry::CONFLICT_RETRY_MIN) };
    if matches!(outcome.wake, Wake::Backoff) {
        return Action::requeue(context.backoffs.next_wait(K::KIND, key));
    }
    context.backoffs.reset_waits(K::KIND, key);
    let blocker = outcome.state.as_ref().and_then(|state| state.blocker.as_ref());
    let is_exhausted = blocker.is_some_and(|blocker| blocker.problem.reason == Reason::PoolExhausted);
    match outcome.wake {
        Wake::At(at) => Action::requeue(time_until(at, now).max(retry::CONFLICT_RETRY_MIN)),
        _ if is_exhausted => Action::requeue(spread(EXHAUSTED_RECHECK, key)),
        _ => Action::await_change(),
    }
}
