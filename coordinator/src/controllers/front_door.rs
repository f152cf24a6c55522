//! One reconcile for every kind of machine that asks for hosts.
//!
//! A front door reads its own objects into a demand and projects the state of
//! the machine into its own status; everything between is here: gather,
//! decide, apply one effect, write the status.

mod effects;

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::conditions::{ConditionUpdate, Reason};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_core::assignment::{
    self, Effect, Host, Outcome, SecretRead, SecretRef, Secrets, Situation, State, Wake,
};
use coordinator_core::demand::{Blocker, Demand, Severity, Want};
use coordinator_core::host::HostRecord;
use coordinator_core::provider_id::ProviderId;
use coordinator_core::retry;
use coordinator_core::trace::TraceId;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::runtime::controller::Action;
use serde::Serialize;
use serde_json::{Value, json};

use super::context::Context;
use crate::index::{MemberWish, Wait};
use crate::key::Key;
use crate::store::machine::Machine;
use crate::store::plan_record::StoredSecret;
use crate::store::{Class, StoreError, kind_name, plan_record, secret, status};
use crate::telemetry::chain;
use crate::traces::note_trace;

/// Key of a bootstrap Secret of Cluster API.
const VALUE: &str = "value";
/// Secrets and Nodes that one decision may ask for.
const READS: usize = 6;
/// A machine without a host looks again after this long. A member that becomes available is
/// offered to one machine, which may not take it; and the counts of its message change.
pub(super) const EXHAUSTED_RECHECK: Duration = Duration::from_secs(30);

/// A kind of machine that asks for hosts.
pub trait FrontDoor: Machine + Serialize + Send + Sync + 'static {
    type Status: Serialize + Send;

    /// Whether the engine chooses hosts for it: then they are reserved until
    /// they are claimed, and the index has the kind.
    const CHOOSES: bool;

    /// Reads the demand and the inventory that the machine names.
    fn gather_inputs(&self, context: &Context) -> Gathered;

    /// The status that shows `state`.
    fn project_status(&self, state: &State, updates: &[ConditionUpdate], gathered: &Gathered)
    -> Self::Status;

    /// Reason and message of the condition `Ready` as it is.
    fn ready_reason(&self) -> Option<(String, String)>;

    /// The change by which the machine records its providerID.
    fn provide_change(&self, provider_id: &ProviderId) -> Value {
        json!({ "spec": { "providerID": provider_id.as_str() } })
    }

    /// What the machine forgets of a host when it has given it back.
    fn release_change(&self) -> Value {
        json!({})
    }
}

/// What a decision is made of.
pub struct Gathered {
    pub demand: Demand,
    pub inventory: Option<Arc<MachineInventory>>,
    pub host: Option<HostRecord>,
    pub now: Timestamp,
}

impl Gathered {
    pub fn new(demand: Demand, inventory: Option<Arc<MachineInventory>>, now: Timestamp) -> Self {
        let host = inventory.as_deref().and_then(HostRecord::parse);
        Self { demand, inventory, host, now }
    }

    /// Whether the machine is to give its host back, and something holds that.
    fn is_stuck(&self) -> bool {
        // A pause is over some time, of all machines of the Cluster at once.
        let hold = self.demand.hold.as_ref().filter(|hold| hold.reason != Reason::Paused);
        let has_problem = || self.host.as_ref().is_some_and(|host| host.find_problem(self.now).is_some());
        matches!(self.demand.want, Want::Release) && (hold.is_some() || has_problem())
    }

    fn situation<'a>(&'a self, secrets: &'a Secrets) -> Situation<'a> {
        let host = self.host.as_ref().zip(self.inventory.as_deref());
        let host = host.map(|(record, inventory)| Host { record, spec: &inventory.spec });
        Situation { demand: &self.demand, host, secrets, now: self.now }
    }
}

/// Gathers, decides, applies one effect, writes the status.
pub async fn reconcile_machine<K: FrontDoor>(
    machine: Arc<K>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    let key = Key::of(&*machine);
    // A BareMetalHost is no object of Cluster API: nothing labels it.
    if K::CHOOSES && !context.serves(&*machine) {
        context.index.set_wait(&key, None);
        context.router.send_keys(&context.index.release_reservation(&key));
        return Ok(Action::await_change());
    }
    note_trace(machine.meta().uid.as_deref().and_then(TraceId::of_machine));
    // Registered as waiting before the caches are read, so that no event is missed.
    note_wait::<K>(&context, &key, Some(Wait::Decision));
    let gathered = machine.gather_inputs(&context);
    if K::CHOOSES {
        context.router.send_keys(&context.index.set_stuck(&key, gathered.is_stuck()));
    }
    let (outcome, read) = match decide_outcome(&context, &gathered).await {
        Ok(decided) => decided,
        Err(error) => {
            note_wait::<K>(&context, &key, None);
            let failed = Err(error);
            write_state(&context, &*machine, &gathered, None, &failed).await?;
            return failed;
        }
    };
    if K::CHOOSES && !reserve_host(&context, &key, outcome.effect.as_ref()) {
        return Ok(Action::requeue(retry::CONFLICT_RETRY_MIN));
    }
    note_wait::<K>(&context, &key, find_wait(&gathered.demand, &outcome));
    let applied = match &outcome.effect {
        Some(effect) => effects::apply_effect(&context, &*machine, &gathered, effect, &read).await,
        None => Ok(()),
    };
    write_state(&context, &*machine, &gathered, outcome.state.as_ref(), &applied).await?;
    applied?;
    Ok(requeue_after::<K>(&context, &key, &outcome, gathered.now))
}

/// Secrets that were read for a decision, with what a write to them needs.
#[derive(Default)]
struct ReadSecrets {
    plan: Option<StoredSecret>,
    bootstrap: Option<KubeSecret>,
}

/// Decides; Secrets and Nodes are read when the decision asks for them, and no
/// other.
async fn decide_outcome(
    context: &Context,
    gathered: &Gathered,
) -> Result<(Outcome, ReadSecrets), StoreError> {
    let mut secrets = Secrets::default();
    let mut stored = ReadSecrets::default();
    for _ in 0..=READS {
        let outcome = assignment::decide_outcome(&gathered.situation(&secrets));
        match &outcome.effect {
            Some(Effect::ReadSecret(SecretRef::Bootstrap(name))) => {
                let keys =
                    if gathered.demand.machine.kind == KIND { &[VALUE][..] } else { &["userData", VALUE] };
                let namespace = &gathered.demand.machine.namespace;
                stored.bootstrap = secret::read_secret(&context.client, namespace, name).await?;
                let value = stored.bootstrap.as_ref().and_then(|secret| secret::value_of(secret, keys));
                secrets.bootstrap = value.map_or(SecretRead::Missing, SecretRead::Read);
            }
            Some(Effect::ReadSecret(SecretRef::MetaData(name))) => {
                secrets.meta_data = read_secret(context, gathered, name, &["metaData", VALUE]).await?;
            }
            Some(Effect::ReadSecret(SecretRef::NetworkData(name))) => {
                secrets.network_data = read_secret(context, gathered, name, &["networkData", VALUE]).await?;
            }
            Some(Effect::ReadSecret(SecretRef::Registry(name))) => {
                let namespace = &gathered.demand.machine.namespace;
                let read = secret::read_secret(&context.client, namespace, name).await?;
                secrets.registry =
                    read.map_or(SecretRead::Missing, |secret| SecretRead::Read(Box::new(secret)));
            }
            Some(Effect::ReadSecret(SecretRef::Plan)) => {
                let Some(host) = &gathered.host else { return Ok((outcome, stored)) };
                let read = plan_record::read_for_host(&context.client, host).await?;
                secrets.plan = Some(read.contents.clone());
                stored.plan = Some(read);
            }
            Some(Effect::FindNodes(search)) => {
                let namespace = &gathered.demand.machine.namespace;
                secrets.nodes = context.workloads.read_nodes(&context.client, namespace, search).await?;
            }
            _ => return Ok((outcome, stored)),
        }
    }
    Ok((assignment::decide_outcome(&gathered.situation(&secrets)), stored))
}

async fn read_secret(
    context: &Context,
    gathered: &Gathered,
    name: &str,
    keys: &[&str],
) -> Result<SecretRead, StoreError> {
    let namespace = &gathered.demand.machine.namespace;
    let read = secret::read_key(&context.client, namespace, name, keys).await?;
    Ok(read.map_or(SecretRead::Missing, SecretRead::Read))
}

/// Reserves a host that is chosen; releases the reservation once the machine
/// has claimed it or wants none. `false` when another machine has it.
fn reserve_host(context: &Context, key: &Key, effect: Option<&Effect>) -> bool {
    match effect {
        Some(Effect::Choose { host }) => context.index.reserve_host(host.as_str(), key),
        // What another leader chose is claimed, whichever machine reserved it here.
        Some(Effect::Claim { .. }) => true,
        _ => {
            context.router.send_keys(&context.index.release_reservation(key));
            true
        }
    }
}

/// A `BareMetalHost` waits for no member of a pool.
fn note_wait<K: FrontDoor>(context: &Context, key: &Key, wait: Option<Wait<MemberWish>>) {
    if K::CHOOSES {
        context.index.set_wait(key, wait);
    }
}

/// What the machine waits for from now on.
fn find_wait(demand: &Demand, outcome: &Outcome) -> Option<Wait<MemberWish>> {
    let blocker = outcome.state.as_ref().and_then(|state| state.blocker.as_ref())?;
    match &demand.want {
        Want::Node(node) if blocker.reason == Reason::PoolExhausted => Some(Wait::Host(MemberWish {
            failure_domain: node.failure_domain.clone(),
            reuse_group: node.reuse_group.clone(),
        })),
        _ => (blocker.severity != Severity::Waiting).then_some(Wait::Catalog),
    }
}

/// Shows the state, and with it a Secret that could not be read or an effect that
/// the API server refused. What a conflict interrupted shows itself with the next
/// reconcile.
async fn write_state<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    decided: Option<&State>,
    applied: &Result<impl Sized, StoreError>,
) -> Result<(), StoreError> {
    let failed = match applied {
        Err(error) if error.class() == Class::Conflict => return Ok(()),
        Err(error) => Some(assignment::effect_failed(&chain(error))),
        Ok(_) => None,
    };
    let state = match decided {
        Some(state) => state.clone(),
        None if failed.is_some() => State::of_host(gathered.host.as_ref(), &gathered.demand),
        None => return Ok(()),
    };
    let mut updates = assignment::project_conditions(&state);
    if let Some(failed) = failed {
        updates.retain(|update| update.kind != failed.kind);
        updates.push(failed);
    }
    let before = machine.ready_reason();
    let status = machine.project_status(&state, &updates, gathered);
    let written = status::write_status(&context.client, machine, &status).await?;
    if let (Some(written), Some(blocker)) = (written, &state.blocker) {
        announce_blocker(context, &written, blocker, before).await;
    }
    Ok(())
}

/// An Event for what an operator has to act on, once per cause.
async fn announce_blocker<K: FrontDoor>(
    context: &Context,
    machine: &K,
    blocker: &Blocker,
    before: Option<(String, String)>,
) {
    let now = (blocker.reason.as_str().to_owned(), blocker.message.clone());
    if blocker.severity != Severity::Waiting && before.as_ref() != Some(&now) {
        context.events.publish(machine, blocker.reason, &blocker.message).await;
    }
}

fn requeue_after<K>(context: &Context, key: &Key, outcome: &Outcome, now: Timestamp) -> Action {
    let kind = kind_name::<K>();
    let blocker = outcome.state.as_ref().and_then(|state| state.blocker.as_ref());
    let is_exhausted = blocker.is_some_and(|blocker| blocker.reason == Reason::PoolExhausted);
    match outcome.wake {
        Wake::Backoff => Action::requeue(context.waits.next_interval(kind, key)),
        Wake::At(at) => {
            context.waits.reset_count(kind, key);
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Action::requeue(wait.max(retry::CONFLICT_RETRY_MIN))
        }
        Wake::OnChange => {
            context.waits.reset_count(kind, key);
            if is_exhausted { Action::requeue(EXHAUSTED_RECHECK) } else { Action::await_change() }
        }
    }
}
