//! `BareMetalHost`: takes the inventory that it names, and is a front door of the host engine from
//! then on.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{ConditionUpdate, Type, find_condition};
use coordinator_api::explain::EventReason;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::host::{BareMetalHost, BareMetalHostStatus};
use coordinator_api::metal3::names;
use coordinator_api::names::{annotation, finalizer, label};
use coordinator_core::assignment::{self, State};
use coordinator_core::host::HostRecord;
use coordinator_core::host_decision::ClaimingMachine;
use coordinator_core::metal3::host::reboot::{RebootStep, decide_reboot};
use coordinator_core::metal3::host::{
    HostStep, KeptStep, decide_kept, decide_step, forget_saved_status, keeping_cluster, named_inventory,
    project_status, read_demand, record_image,
};
use coordinator_core::problem::Blocker;
use coordinator_core::provider_id::ProviderId;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use crate::controllers::context::Context;
use crate::controllers::failures::{announce_problem, show_condition};
use crate::controllers::front_door::{self, FrontDoor, Gathered, VALUE};
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::{Key, Kind};
use crate::store::{self, StoreError, host as inventories, metal3, status};

impl FrontDoor for BareMetalHost {
    type Status = BareMetalHostStatus;

    const BOOTSTRAP_KEYS: &[&str] = &["userData", VALUE];

    fn gather_inputs(&self, context: &Context) -> Gathered {
        let key = Key::of(self);
        let inventory = find_inventory(self, context);
        let cluster = self.labels().get(label::CLUSTER_NAME);
        let cluster = cluster.and_then(|name| context.cache.get::<Cluster>(&key.in_namespace_of(name)));
        let demand = read_demand(self, inventory.as_deref(), cluster.as_deref());
        Gathered::new(demand, inventory, context.clock.now())
    }

    fn read_claiming(&self, context: &Context) -> ClaimingMachine {
        let gathered = self.gather_inputs(context);
        ClaimingMachine { host: named_inventory(self), is_paused: gathered.demand.hold.is_some() }
    }

    fn project_status(
        &self,
        state: &State,
        updates: &[ConditionUpdate],
        gathered: &Gathered,
    ) -> Self::Status {
        project_status(self, Some(state), updates, gathered.inventory.as_deref(), gathered.now)
    }

    fn ready_reason(&self) -> Option<&str> {
        let ready = find_condition(&self.status.as_ref()?.conditions, Type::Ready)?;
        Some(ready.reason.as_str())
    }

    /// The kind has no field for the providerID, so that annotations store it.
    fn provide_change(&self, provider_id: &ProviderId) -> Value {
        json!({ "metadata": { "annotations": {
            names::PROVIDER_ID: provider_id.as_str(),
            names::PROVISIONED_IMAGE: record_image(self),
        } } })
    }

    fn release_change(&self) -> Value {
        // A request for one machine does not hold for the next one, because the host outlives its
        // machines.
        json!({ "metadata": { "annotations": {
            names::PROVIDER_ID: null,
            names::PROVISIONED_IMAGE: null,
            annotation::RELEASE_WITHOUT_CLEAN: null,
        } } })
    }
}

pub(super) fn find_inventory(host: &BareMetalHost, context: &Context) -> Option<Arc<MachineInventory>> {
    let key = Key::of(host).in_namespace_of(named_inventory(host)?.as_str());
    context.cache.get::<MachineInventory>(&key)
}

impl Reconciled for BareMetalHost {
    async fn reconcile(host: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        let kept_for = match decide_kept_host(&context, &host) {
            Some(KeptStep::Free { change, cause }) => {
                store::patch(&context.client, &*host, "free", change).await?;
                context.events.publish(&*host, EventReason::HostReleased, &cause);
                return Ok(Action::await_change());
            }
            Some(KeptStep::Keep(Some(end))) => wait_until(&context, end),
            _ => None,
        };
        let action = drive_host(&host, &context).await?;
        // The end of the time for which the host is kept comes after every other wait.
        let kept_for = kept_for.filter(|_| action == Action::await_change());
        Ok(kept_for.map_or(action, Action::requeue))
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_condition(context, self, error, |status| &mut status.conditions).await
    }
}

fn wait_until(context: &Context, end: Timestamp) -> Option<Duration> {
    Duration::try_from(end.duration_since(context.clock.now())).ok()
}

async fn drive_host(host: &Arc<BareMetalHost>, context: &Arc<Context>) -> Result<Action, Failure> {
    let inventory = find_inventory(host, context);
    let record = inventory.as_deref().and_then(HostRecord::parse);
    let step = decide_step(host, record.as_ref());
    if step == HostStep::Drive {
        if drop_saved_status(context, host).await? {
            return Ok(Action::await_change());
        }
        if reboot_host(context, host, inventory.as_deref(), record.as_ref()).await? {
            return Ok(Action::await_change());
        }
        if !is_idle(host, record.as_ref()) {
            return front_door::reconcile_machine(host.clone(), context.clone()).await;
        }
        show_idle(context, host, inventory.as_deref()).await?;
        let grace = record.and_then(|record| record.grace_ends(context.clock.now()));
        let wait = grace.and_then(|at| wait_until(context, at));
        return Ok(wait.map_or_else(Action::await_change, Action::requeue));
    }
    apply_step(context, host, inventory.as_deref(), step).await?;
    Ok(Action::await_change())
}

async fn apply_step(
    context: &Context,
    host: &BareMetalHost,
    inventory: Option<&MachineInventory>,
    step: HostStep,
) -> Result<(), StoreError> {
    let client = &context.client;
    match (step, inventory) {
        (HostStep::Ignore | HostStep::Drive, _)
        | (HostStep::TakeInventory | HostStep::ReleaseInventory, None) => Ok(()),
        (HostStep::AddFinalizer, _) => metal3::add_finalizer(client, host, names::HOST_FINALIZER).await,
        (HostStep::RemoveFinalizer, _) => metal3::drop_finalizer(client, host, names::HOST_FINALIZER).await,
        (HostStep::TakeInventory, Some(inventory)) => {
            inventories::take(client, inventory, &host.name_any()).await?;
            let note = format!("MachineInventory {} is this host's own", inventory.name_any());
            context.events.publish(host, EventReason::InventoryTaken, &note);
            Ok(())
        }
        (HostStep::ReleaseInventory, Some(inventory)) => inventories::give_back(client, inventory).await,
        (HostStep::Refuse(blocker), inventory) => refuse_host(context, host, inventory, blocker).await,
    }
}

/// Removes the copy of the status that a pause left.
async fn drop_saved_status(context: &Context, host: &BareMetalHost) -> Result<bool, StoreError> {
    let is_held = || host.gather_inputs(context).demand.hold.is_some();
    let Some(change) = forget_saved_status(host, is_held) else { return Ok(false) };
    store::patch(&context.client, host, "remove the saved status of", change).await?;
    Ok(true)
}

/// Applies the next step of a requested reboot.
async fn reboot_host(
    context: &Context,
    host: &BareMetalHost,
    inventory: Option<&MachineInventory>,
    record: Option<&HostRecord>,
) -> Result<bool, StoreError> {
    let Some((step, inventory)) = decide_reboot(host, record).zip(inventory) else { return Ok(false) };
    if host.gather_inputs(context).demand.hold.is_some() {
        return Ok(false);
    }
    let client = &context.client;
    match step {
        RebootStep::Begin(change) => {
            store::patch(client, host, "take the request of a reboot of", change).await?;
            context.events.publish(
                host,
                EventReason::RebootRequested,
                "the agent is asked to reboot the host",
            );
        }
        RebootStep::Ask(boot) => inventories::begin_reboot(client, inventory, &boot).await?,
        RebootStep::Finish(change) => {
            store::patch(client, host, "end the request of a reboot of", change).await?;
            context.events.publish(host, EventReason::Rebooted, "the host runs another boot");
        }
        RebootStep::Forget(change) => {
            store::patch(client, host, "forget the request of a reboot of", change).await?;
        }
    }
    Ok(true)
}

/// The time for which a host is kept. With `--metal3=hosts` CAPM3 keeps hosts.
fn decide_kept_host(context: &Context, host: &BareMetalHost) -> Option<KeptStep> {
    let keeper = keeping_cluster(host).filter(|_| context.cache.watches(Kind::Metal3Machine))?;
    let cluster = Key::of(host).in_namespace_of(keeper);
    decide_kept(host, context.cache.get::<Cluster>(&cluster).as_deref(), context.clock.now())
}

/// Tells whether the host neither has a node nor asks for one. An abandoned claim is cleaned
/// without the host.
fn is_idle(host: &BareMetalHost, record: Option<&HostRecord>) -> bool {
    let is_held = host.finalizers().iter().any(|name| name == finalizer::BAREMETAL_MACHINE);
    let is_claimed = record.is_some_and(|record| record.claim.is_some() && !record.is_abandoned);
    !is_held && !is_claimed && host.spec.image.is_none()
}

async fn show_idle(
    context: &Context,
    host: &BareMetalHost,
    inventory: Option<&MachineInventory>,
) -> Result<(), StoreError> {
    let ready = inventory.and_then(|inventory| find_condition(inventory.conditions(), Type::Ready));
    let ready = ready.and_then(|ready| {
        let reason = ready.reason.parse().ok()?;
        let make = if ready.status == "True" {
            coordinator_api::conditions::condition_true
        } else {
            coordinator_api::conditions::condition_false
        };
        Some(make(Type::Ready, reason, ready.message.clone()))
    });
    let updates: Vec<_> = ready.into_iter().collect();
    let projected = project_status(host, None, &updates, inventory, context.clock.now());
    status::write_status(&context.client, host, &projected).await.map(drop)
}

async fn refuse_host(
    context: &Context,
    host: &BareMetalHost,
    inventory: Option<&MachineInventory>,
    blocker: Blocker,
) -> Result<(), StoreError> {
    let before = host.ready_reason().map(str::to_owned);
    let problem = blocker.problem.clone();
    let state = State { blocker: Some(blocker), ..State::default() };
    let updates = assignment::project_conditions(&state);
    let projected = project_status(host, Some(&state), &updates, inventory, context.clock.now());
    let written = status::write_status(&context.client, host, &projected).await?;
    if written.is_some() {
        announce_problem(context, host, &problem, before.as_deref());
    }
    Ok(())
}
