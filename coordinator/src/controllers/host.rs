//! `MachineInventory`: claims whose machine is deleted, sessions whose replica
//! is dead, and requests of operators by annotation.

use std::sync::Arc;

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{ConditionUpdate, Reason, Type, find_condition};
use coordinator_api::explain::EventReason;
use coordinator_api::inventory::{AllocationState, Claim, MachineInventory};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::names::annotation;
use coordinator_api::names::kind::BARE_METAL_HOST;
use coordinator_api::names::kind::BAREMETAL_MACHINE as KIND;
use coordinator_api::network::ObservedNetwork;
use coordinator_api::notes::HostNote;
use coordinator_core::assignment::{Assignment, Wake};
use coordinator_core::host::{HostRecord, facts};
use coordinator_core::host_decision::{
    ClaimingMachine, HostDecision, HostEffect, HostSituation, decide_host,
};
use coordinator_core::load_balancer::end_duty;
use coordinator_core::network;
use coordinator_core::pause;
use coordinator_core::plan::custom::read_custom;
use coordinator_core::trace::TraceId;
use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use super::balancer;
use super::context::Context;
use super::failures::{announce_problem, describe_failure};
use super::front_door::FrontDoor;
use super::plans::{describe_release, write_plan};
use super::reconciled::{Failure, Reconciled};
use crate::clock::time_until;
use crate::key::{Key, Kind};
use crate::store::plan_record::{self, PlanSecret};
use crate::store::{Class, StoreError, host, secret};
use crate::traces::note_trace;

impl Reconciled for MachineInventory {
    async fn reconcile(inventory: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        reconcile_host(inventory, context).await
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        let failed = Some(describe_failure(error));
        host::write_conditions(&context.client, self, failed, context.clock.now()).await
    }
}

/// Gathers, decides, applies one effect, projects the conditions.
async fn reconcile_host(inventory: Arc<MachineInventory>, context: Arc<Context>) -> Result<Action, Failure> {
    let Some(record) = HostRecord::parse(&inventory) else { return Ok(Action::await_change()) };
    note_trace(record.claim.as_ref().and_then(TraceId::of_claim));
    let now = context.clock.now();
    let mut gathered = Gathered::read(&context, &inventory, record, now);
    if gathered.is_foreign {
        return Ok(Action::await_change());
    }
    Ok(match act_once(&context, &inventory, &mut gathered).await? {
        Wake::At(at) => Action::requeue(time_until(at, now)),
        Wake::OnChange | Wake::Backoff => Action::await_change(),
    })
}

/// Decides and applies the effect. Without an effect, or if it failed, the first change beside it is
/// applied, or the conditions are written. An effect that the API server refuses each time keeps
/// nothing else from the host.
async fn act_once(
    context: &Context,
    inventory: &Arc<MachineInventory>,
    gathered: &mut Gathered<'_>,
) -> Result<Wake, Failure> {
    let mut failures = Failures::default();
    let outcome = match gathered.decide_outcome(context).await {
        Ok((outcome, secret)) => {
            if let Some(effect) = &outcome.effect {
                match apply_effect(context, inventory, &gathered.record, effect, secret.as_ref()).await {
                    Ok(()) => return Ok(outcome.wake),
                    Err(error) => failures.add(effect.request(), error)?,
                }
            }
            Some(outcome)
        }
        Err((request, error)) => {
            failures.add(request, error)?;
            None
        }
    };
    for change in list_changes(inventory, gathered, outcome.as_ref()) {
        match apply_change(context, inventory, &gathered.record, change).await {
            Ok(()) => return failures.end_with(outcome),
            Err(error) => failures.add(Type::Ready, error)?,
        }
    }
    // The registration writes the first status.
    if inventory.status.is_some() || gathered.record.claim.is_some() || !failures.0.is_empty() {
        show_problems(context, inventory, outcome.as_ref(), &failures, gathered.now).await?;
    }
    failures.end_with(outcome)
}

/// What failed in a reconcile, with the condition that shows each failure.
#[derive(Default)]
struct Failures(Vec<(Type, StoreError)>);

impl Failures {
    /// # Errors
    /// A conflict: everything is decided again with the newer object.
    fn add(&mut self, kind: Type, error: StoreError) -> Result<(), Failure> {
        if error.class() == Class::Conflict {
            return Err(error.into());
        }
        self.0.push((kind, error));
        Ok(())
    }

    fn describe(&self) -> Vec<ConditionUpdate> {
        let mut shown: Vec<ConditionUpdate> = vec![];
        for (kind, error) in &self.0 {
            let failed = describe_failure(error);
            for kind in [Type::Ready, *kind] {
                if shown.iter().all(|known| known.kind != kind) {
                    shown.push(ConditionUpdate { kind, ..failed.clone() });
                }
            }
        }
        shown
    }

    fn end_with(self, outcome: Option<HostDecision>) -> Result<Wake, Failure> {
        match self.0.into_iter().next() {
            Some((_, error)) => Err(Failure::Shown(error)),
            None => Ok(outcome.map_or(Wake::OnChange, |outcome| outcome.wake)),
        }
    }
}

/// A change that is due beside the effect of the decision.
#[derive(Clone, Copy, Debug)]
enum Change {
    Mark(AllocationState),
    AcceptNetwork,
    EndDuty,
    EndJournalRequest,
}

fn list_changes(
    inventory: &MachineInventory,
    gathered: &Gathered<'_>,
    outcome: Option<&HostDecision>,
) -> Vec<Change> {
    let allocation = outcome.and_then(|outcome| outcome.allocation);
    let mark = allocation.filter(|state| inventory.allocation_state() != *state).map(Change::Mark);
    let is_accepted = inventory.annotations().contains_key(annotation::ACCEPT_OBSERVED_NETWORK);
    let accept = (is_accepted && !gathered.is_paused).then_some(Change::AcceptNetwork);
    let dismissal = gathered.is_dismissed().then_some(Change::EndDuty);
    let is_requested = inventory.annotations().contains_key(annotation::FORGET_JOURNAL);
    let is_done =
        is_requested && gathered.record.carried.is_some() && inventory.forgotten_journal().is_none();
    let journal = is_done.then_some(Change::EndJournalRequest);
    [mark, accept, dismissal, journal].into_iter().flatten().collect()
}

async fn apply_change(
    context: &Context,
    inventory: &Arc<MachineInventory>,
    record: &HostRecord,
    change: Change,
) -> Result<(), StoreError> {
    match change {
        Change::Mark(state) => host::mark(&context.client, inventory, state).await,
        Change::AcceptNetwork => accept_network(context, inventory).await,
        Change::EndJournalRequest => host::end_journal_request(&context.client, inventory).await,
        Change::EndDuty => balancer::dismiss_host(context, inventory, record).await.map(drop),
    }
}

/// Writes the conditions, and an Event if the cause of a missing owner is new.
async fn show_problems(
    context: &Context,
    inventory: &MachineInventory,
    outcome: Option<&HostDecision>,
    failures: &Failures,
    now: Timestamp,
) -> Result<(), StoreError> {
    let hold = outcome.and_then(|outcome| outcome.hold.as_ref());
    let problems = [
        (Type::Ready, hold),
        (Type::CustomPlanAccepted, outcome.and_then(|outcome| outcome.custom.as_ref())),
        (Type::Rebooted, outcome.and_then(|outcome| outcome.reboot.as_ref())),
    ];
    let mut updates = failures.describe();
    for (kind, problem) in problems {
        let is_free = updates.iter().all(|known| known.kind != kind);
        updates.extend(problem.filter(|_| is_free).map(|problem| problem.condition_false(kind)));
    }
    host::write_conditions(&context.client, inventory, updates, now).await?;
    let before = find_condition(inventory.conditions(), Type::Ready).map(|ready| ready.reason.as_str());
    if let Some(orphaned) = hold.filter(|hold| hold.reason == Reason::OwnerMissing && failures.0.is_empty()) {
        announce_problem(context, inventory, orphaned, before);
    }
    Ok(())
}

#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
struct Gathered<'a> {
    inventory: &'a MachineInventory,
    record: HostRecord,
    machine: Option<ClaimingMachine>,
    /// The machine is a control-plane machine, whose hosts may be load balancers.
    is_member: bool,
    is_paused: bool,
    is_cluster_missing: bool,
    /// This coordinator serves neither the kind nor the object of the claim.
    is_foreign: bool,
    replica_died: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> Gathered<'a> {
    fn read(context: &Context, inventory: &'a MachineInventory, record: HostRecord, now: Timestamp) -> Self {
        let key = Key::of(inventory);
        let claim = record.claim.as_ref();
        let baremetal = claim.and_then(|claim| {
            context.cache.get::<BaremetalMachine>(&key.in_namespace_of(&claim.baremetal_machine))
        });
        let baremetal = baremetal.filter(|_| claim.is_some_and(|claim| claim.kind == KIND));
        let is_member =
            baremetal.as_ref().is_some_and(|machine| balancer::is_member(context, machine, &record));
        let is_filtered = baremetal.as_ref().is_some_and(|machine| !context.serves(&**machine));
        let machine = claim
            .and_then(|claim| find_claiming(context, claim, &key.in_namespace_of(&claim.baremetal_machine)));
        let named_cluster = claim.map(|claim| claim.cluster.as_str()).filter(|name| !name.is_empty());
        let owner_cluster =
            named_cluster.and_then(|name| context.cache.get::<Cluster>(&key.in_namespace_of(name)));
        let is_cluster_missing = named_cluster.is_some() && owner_cluster.is_none();
        let is_paused = pause::is_paused(inventory, owner_cluster.as_deref())
            || machine.as_ref().is_some_and(|machine| machine.is_paused);
        let replica_died =
            record.session.as_ref().and_then(|session| context.replicas.died_at(&session.replica));
        let is_foreign = is_filtered
            || claim.is_some_and(|claim| match claim.kind.as_str() {
                KIND => false,
                BARE_METAL_HOST => !context.cache.watches(Kind::BareMetalHost),
                _ => true,
            });
        Self {
            inventory,
            record,
            machine,
            is_member,
            is_paused,
            is_cluster_missing,
            is_foreign,
            replica_died,
            now,
        }
    }

    /// The duty for a load balancer ends if the claim ended or was abandoned, or if the machine
    /// releases the host. A machine that is not found may be restored, and so may the machine of a
    /// node that is not of the claim.
    fn is_dismissed(&self) -> bool {
        if self.record.owner_other_than(&self.record.claim_text()).is_some() {
            return false;
        }
        let is_claimed = self.record.claim.is_some() && !self.record.is_abandoned;
        let is_over = !is_claimed || (self.machine.is_some() && !self.is_member);
        is_over && !self.is_paused && end_duty(self.record.load_balancer.as_ref(), 0).is_some()
    }

    /// Decides. An error comes with the condition of the request that failed. A decision that follows from
    /// the absence of a machine is made again on an answer of the API server, because the cache may be
    /// stale.
    async fn decide_outcome(
        &mut self,
        context: &Context,
    ) -> Result<(HostDecision, Option<PlanSecret>), (Type, StoreError)> {
        let (mut secret, mut plan) = (None, None);
        let mut custom = None;
        let mut is_verified = false;
        loop {
            let outcome = decide_host(&HostSituation {
                host: &self.record,
                spec: &self.inventory.spec,
                machine: self.machine.as_ref(),
                is_paused: self.is_paused,
                is_cluster_missing: self.is_cluster_missing,
                replica_died: self.replica_died,
                plan: plan.as_ref(),
                is_verified,
                custom: custom.as_ref(),
                now: self.now,
            });
            match outcome.effect {
                Some(HostEffect::ReadPlan) if secret.is_none() => {
                    let read = plan_record::read_for_host(&context.client, &self.record).await;
                    let read = read.map_err(|error| (Type::Ready, error))?;
                    (secret, plan) = (Some(read.0), Some(read.1));
                }
                Some(HostEffect::ReadCustom(name)) if custom.is_none() => {
                    let read = secret::read_secret(&context.client, &self.record.namespace, &name).await;
                    let read = read.map_err(|error| (Type::CustomPlanAccepted, error))?;
                    custom = Some(read_custom(read.as_ref(), self.record.plan_secret_name()));
                }
                Some(HostEffect::Verify) if !is_verified => {
                    self.look_up_machine(context).await.map_err(|error| (Type::Ready, error))?;
                    is_verified = true;
                }
                _ => return Ok((outcome, secret)),
            }
        }
    }

    async fn look_up_machine(&mut self, context: &Context) -> Result<(), StoreError> {
        let Some(claim) = &self.record.claim else { return Ok(()) };
        let key = Key::new(&*self.record.namespace, &*claim.baremetal_machine);
        self.machine = if claim.kind == BARE_METAL_HOST {
            look_up::<BareMetalHost>(context, &key).await?
        } else {
            look_up::<BaremetalMachine>(context, &key).await?
        };
        self.is_paused |= self.machine.as_ref().is_some_and(|machine| machine.is_paused);
        Ok(())
    }
}

/// The machine of a claim, in the cache.
fn find_claiming(context: &Context, claim: &Claim, key: &Key) -> Option<ClaimingMachine> {
    if claim.kind == BARE_METAL_HOST {
        return Some(context.cache.get::<BareMetalHost>(key)?.read_claiming(context));
    }
    Some(context.cache.get::<BaremetalMachine>(key)?.read_claiming(context))
}

/// The machine of a claim, in the API server.
async fn look_up<K: FrontDoor>(context: &Context, key: &Key) -> Result<Option<ClaimingMachine>, StoreError> {
    let api: Api<K> = Api::namespaced(context.client.clone(), &key.namespace);
    let found = api.get_opt(&key.name).await;
    let found = found.map_err(StoreError::request("get", K::KIND.name(), &key.name))?;
    Ok(found.map(|machine| machine.read_claiming(context)))
}

async fn apply_effect(
    context: &Context,
    inventory: &Arc<MachineInventory>,
    record: &HostRecord,
    effect: &HostEffect,
    secret: Option<&PlanSecret>,
) -> Result<(), StoreError> {
    let client = &context.client;
    match effect {
        HostEffect::Verify | HostEffect::ReadPlan | HostEffect::ReadCustom(_) => Ok(()),
        HostEffect::Release => release_host(context, inventory).await,
        HostEffect::RemoveFinalizer => host::release(client, inventory, AllocationState::Unavailable).await,
        HostEffect::Assign(assignment) => write_plan(context, inventory, assignment, secret).await,
        HostEffect::EndSession { ended } => end_session(context, inventory, record, *ended).await,
        HostEffect::ForgetRetry => host::forget_retry(client, inventory).await,
        HostEffect::AllowMove => host::allow_move(client, inventory).await,
        HostEffect::AssignCustom(assignment) => assign_custom(context, inventory, assignment, secret).await,
        HostEffect::ForgetCustom => host::forget_custom_plan(client, inventory).await,
        HostEffect::BeginReboot(boot) => {
            host::begin_reboot(client, inventory, boot).await?;
            let note = format!("the agent is asked to end the boot {boot}");
            context.events.publish(&**inventory, EventReason::RebootRequested, &note);
            Ok(())
        }
        HostEffect::FinishReboot => {
            host::finish_reboot(client, inventory).await?;
            context.events.publish(&**inventory, EventReason::Rebooted, "the host runs another boot");
            Ok(())
        }
    }
}

async fn assign_custom(
    context: &Context,
    inventory: &MachineInventory,
    assignment: &Assignment,
    secret: Option<&PlanSecret>,
) -> Result<(), StoreError> {
    write_plan(context, inventory, assignment, secret).await?;
    let note = HostNote::Custom { plan: assignment.plan.id.as_str() }.to_string();
    context.events.publish(inventory, EventReason::CustomPlanAssigned, &note);
    Ok(())
}

async fn release_host(context: &Context, inventory: &MachineInventory) -> Result<(), StoreError> {
    host::release(&context.client, inventory, AllocationState::Available).await?;
    let note = describe_release(inventory, " again: its claim held nothing");
    context.events.publish(inventory, EventReason::Released, &note);
    Ok(())
}

async fn end_session(
    context: &Context,
    inventory: &MachineInventory,
    record: &HostRecord,
    ended: Timestamp,
) -> Result<(), StoreError> {
    let Some(session) = &record.session else { return Ok(()) };
    host::change_status(&context.client, inventory, context.clock.now(), |status| {
        facts::record_session_end(status, &session.replica, ended);
    })
    .await
}

async fn accept_network(context: &Context, inventory: &MachineInventory) -> Result<(), StoreError> {
    host::accept_network(&context.client, inventory).await?;
    let note = describe_accepted(inventory);
    context.events.publish(inventory, EventReason::ObservedNetworkAccepted, &note);
    Ok(())
}

/// The note of an accepted network: what every plan replays from now on, and did not before.
fn describe_accepted(inventory: &MachineInventory) -> String {
    let observed = inventory.status.as_ref().and_then(|status| status.observed_network.as_ref());
    let Some(observed) = observed else { return "no network has been reported yet".to_owned() };
    let nothing = ObservedNetwork::default();
    let intended = inventory.spec.observed_network.as_ref().unwrap_or(&nothing);
    let changes = network::describe_drift(intended, observed).unwrap_or_else(|| "nothing changes".to_owned());
    format!("the network that was reported last is the intended one now: {changes}")
}

#[cfg(test)]
mod tests;
