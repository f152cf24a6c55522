//! The decision about a machine and its host, one for every front door.
//!
//! ```text
//! Pending ─Choose, Claim─► Allocated ─Assign(reprovision)─► Reprovisioning ─Provide─► Running
//!                              ▲                                                        │
//!                           Release ◄──────── Preparing ◄──────Assign(clean)────────────┘
//! ```
//!
//! [`decide_outcome`] sees parsed values and names at most one effect. Stored facts are
//! the claim, the plan, the providerID and the statement of the host; the [`State`] is
//! projected from them.

mod allocate;
mod link;
mod outcome;
mod provision;
mod release;
#[cfg(test)]
mod tests;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{AllocationState, MachineInventorySpec, PlanType};
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use proto::plan::{Checksum, Generation, Kind, Plan, Secret};

pub use outcome::{
    Assignment, Effect, NodeRef, Outcome, SecretRef, State, Wake, effect_failed, project_conditions,
};

use crate::demand::{Demand, Want};
use crate::holding::{Holder, Holding, compare_names};
use crate::host::HostRecord;
use crate::ids::Uid;
use crate::network::{self, HostNetwork};
use crate::node_link::NodeFacts;
use crate::plan::{Clean, PlanInputs, StoredPlan, render, verify_checksum};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// Everything that a decision looks at, as read at one time.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub demand: &'a Demand,
    /// The host that the machine names.
    pub host: Option<Host<'a>>,
    pub secrets: &'a Secrets,
    pub now: Timestamp,
}

/// The record of a host and its intended state.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    pub record: &'a HostRecord,
    pub spec: &'a MachineInventorySpec,
}

/// Secrets and Nodes cost a request each: they are read when a decision asks for
/// them ([`Effect::ReadSecret`], [`Effect::FindNodes`]).
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    pub bootstrap: SecretRead,
    /// The whole Secret, because the image decides which part of it is used.
    pub registry: SecretRead<Box<KubeSecret>>,
    pub meta_data: SecretRead,
    pub network_data: SecretRead,
    /// `None` until it was read.
    pub plan: Option<StoredPlan>,
    pub nodes: NodesRead,
}

/// Nodes of the workload cluster that may have been read.
#[derive(Clone, Debug, Default)]
pub enum NodesRead {
    #[default]
    NotRead,
    Read(Vec<NodeFacts>),
    /// The workload cluster cannot be asked.
    Unavailable(Problem),
}

/// A Secret that may have been read.
#[derive(Clone, Debug, Default)]
pub enum SecretRead<T = Secret> {
    #[default]
    NotRead,
    Missing,
    Read(T),
}

/// Decides, and shows the connection of a claimed host.
pub fn decide_outcome(situation: &Situation<'_>) -> Outcome {
    let owned = situation.host.filter(|host| is_claimed_by(host.record, situation.demand));
    let mut outcome = decide_demand(situation, owned);
    if let (Some(state), Some(host)) = (&mut outcome.state, owned) {
        state.reachable = Some(outcome::reachable_condition(host.record, situation.now));
    }
    outcome
}

fn decide_demand(situation: &Situation<'_>, owned: Option<Host<'_>>) -> Outcome {
    let demand = situation.demand;
    if let Some(hold) = &demand.hold {
        return Outcome::from_blocker(State::hold_host(owned.map(|host| host.record)), hold.clone());
    }
    if let Some(host) = owned.filter(|host| host.record.is_paused) {
        return Outcome::from_blocker(State::hold_host(Some(host.record)), await_unpause(host.record));
    }
    if let (Want::Node(_), Some(host)) = (&demand.want, owned)
        && host.record.is_abandoned
    {
        return Outcome::from_blocker(State::new(Phase::Pending, None), await_clean(host.record));
    }
    if let Some(host) = owned
        && let Some(uid) = stale_uid(host.record, demand)
    {
        return Outcome::from_effect(Effect::Adopt { uid });
    }
    if let Some(effect) = owned.and_then(|host| missing_protection(demand, host.record)) {
        return Outcome::from_effect(effect);
    }
    match (&demand.want, owned) {
        (Want::Node(node), Some(host)) => provision::provision_host(situation, node, host),
        (Want::Node(node), None) => allocate::allocate_host(situation, node),
        (Want::Release, Some(host)) => release::release_host(situation, host),
        // The name of the host was lost, and the host is cleaned nevertheless.
        (Want::Release, None)
            if let [host] = &demand.owned_hosts[..]
                && demand.host.as_ref() != Some(host) =>
        {
            Outcome::from_effect(Effect::Choose { host: host.clone() })
        }
        (Want::Release, None) if demand.has_finalizer => Outcome::from_effect(Effect::RemoveFinalizer),
        (Want::Release, None) => Outcome::without_effect(),
    }
}

/// A host in maintenance is neither changed nor released.
fn await_unpause(host: &HostRecord) -> Blocker {
    let message = format!("MachineInventory {} is paused", host.name);
    let action = format!("remove its annotation {}", annotation::PAUSED);
    Blocker::waiting_for(Type::Ready, Problem::new(Reason::Paused, message, action))
}

/// An abandoned host is cleaned before it is a node again, also one of the same machine.
fn await_clean(host: &HostRecord) -> Blocker {
    let message = format!(
        "MachineInventory {} was released by this object without a clean; it is cleaned when its host attaches",
        host.name
    );
    let problem = Problem::new(Reason::Abandoned, message, "repair the host, or delete the MachineInventory");
    Blocker::waiting_for(Type::InventoryAllocated, problem)
}

/// Both sides name each other; the UID is a hint.
pub fn is_claimed_by(host: &HostRecord, demand: &Demand) -> bool {
    let machine = &demand.machine;
    let holder = Holder { kind: machine.kind, name: &machine.name, host: demand.host.as_ref() };
    host.namespace == machine.namespace
        && compare_names(holder, &host.name, host.claim.as_ref()) == Holding::Both
}

/// The owner of the node that the host states, if neither the claim nor the machine is the owner: the
/// host was given away after the backup that was restored. Only `metal3://` names the machine.
fn foreign_node(situation: &Situation<'_>, host: &HostRecord) -> Option<String> {
    if let Some(owner) = host.foreign_owner() {
        return Some(owner.to_owned());
    }
    let node = host.carried_node().filter(|node| !node.owner.is_empty())?;
    let given = situation.demand.provider_id.as_ref()?;
    let are_known = given.names_machine() && ProviderId::parse(&node.provider_id)?.names_machine();
    (are_known && node.provider_id != given.as_str()).then(|| node.provider_id.clone())
}

/// The machine's UID where the claim holds another one, as after a restore.
fn stale_uid(host: &HostRecord, demand: &Demand) -> Option<Uid> {
    let uid = demand.machine.uid.as_ref()?;
    let claimed = host.claim.as_ref()?.uid.as_deref();
    (claimed != Some(uid.as_str())).then(|| uid.clone())
}

/// A finalizer that was removed by hand, or by a restore, comes back: without it a delete loses who owns
/// the host. The API server takes none for an object in deletion.
fn missing_protection(demand: &Demand, host: &HostRecord) -> Option<Effect> {
    if !host.has_finalizer && !host.is_deleting {
        return Some(Effect::ProtectHost);
    }
    let is_wanted = matches!(demand.want, Want::Node(_));
    (is_wanted && !demand.has_finalizer).then_some(Effect::ProtectMachine)
}

fn host_network(spec: &MachineInventorySpec) -> Result<HostNetwork, Blocker> {
    network::host_network(spec).map_err(|error| Blocker::failed_with(Type::BootstrapReady, error.problem()))
}

/// Assigns the plan that makes the host free.
pub(crate) fn assign_clean(
    host: &HostRecord,
    spec: &MachineInventorySpec,
    stored: &StoredPlan,
) -> Result<Assignment, Blocker> {
    let network = host_network(spec)?;
    assign_plan(host, &PlanInputs::Clean(Clean { network }), stored)
}

/// Renders the announced clean plan again. It needs no record in a Secret, because it holds no secret
/// and follows from the host alone.
pub fn render_clean_again(
    host: &HostRecord,
    spec: &MachineInventorySpec,
    announced: &Checksum,
) -> Option<Plan> {
    let plan = host.plan.as_ref().filter(|plan| plan.kind == PlanType::Clean)?;
    let network = network::host_network(spec).ok()?;
    let inputs = PlanInputs::Clean(Clean { network });
    let (rendered, _) = render(&inputs, plan.generation, &host.claim_text()).ok()?;
    verify_checksum(rendered, announced).ok()
}

/// Assigns the plan of `inputs`. A record that was written and not announced
/// (a crash came in between) is announced where it is the same plan; a plan of
/// a higher generation replaces any other.
fn assign_plan(host: &HostRecord, inputs: &PlanInputs, stored: &StoredPlan) -> Result<Assignment, Blocker> {
    let assignment = assign_rendered(host, stored, |generation| {
        render(inputs, generation, &host.claim_text()).map_err(|error| {
            let problem = Problem::of_cause(Reason::BootstrapInvalid, error.to_string());
            Blocker::failed_with(Type::BootstrapReady, problem)
        })
    })?;
    let lost = assignment.bytes.as_ref().and_then(|_| lost_record(host, stored));
    Ok(Assignment { lost, ..assignment })
}

/// The stored plan, if it is the one that `render_numbered` makes and was not announced yet, else that
/// plan with the next generation.
pub(crate) fn assign_rendered<E>(
    host: &HostRecord,
    stored: &StoredPlan,
    render_numbered: impl Fn(Generation) -> Result<(Plan, Secret), E>,
) -> Result<Assignment, E> {
    let newest = host.newest_generation();
    let make_assignment = |plan, bytes| Assignment {
        plan,
        bytes,
        lost: None,
        resolved: None,
        bootstrap_hash: None,
        not_kept: vec![],
    };
    if let StoredPlan::Record(plan) = stored
        && plan.generation > newest
        && render_numbered(plan.generation)?.0.checksum == plan.checksum
    {
        return Ok(make_assignment(plan.clone(), None));
    }
    let generation = Generation(newest.max(stored.generation()).0 + 1);
    let (plan, bytes) = render_numbered(generation)?;
    Ok(make_assignment(Box::new(plan), Some(bytes)))
}

/// Why the record that should be there is not, for an Event.
fn lost_record(host: &HostRecord, stored: &StoredPlan) -> Option<Problem> {
    match stored {
        StoredPlan::Missing => Some(Problem::new(
            Reason::PlanSecretMissing,
            "the plan Secret was missing",
            "find out what deleted it",
        )),
        StoredPlan::Unusable { error, .. } => Some(Problem::new(
            Reason::PlanSecretInvalid,
            format!("the plan Secret did not hold a plan record ({error})"),
            "find out what writes it",
        )),
        StoredPlan::Record(plan) => {
            let announced = host.plan.as_ref()?;
            let is_altered = plan.generation <= announced.generation
                && plan.checksum != announced.checksum
                && announced.state.is_none();
            is_altered.then(|| {
                Problem::new(
                    Reason::PlanSecretAltered,
                    "the plan Secret differed from the announced plan record",
                    "find out what writes it",
                )
            })
        }
        StoredPlan::Empty => None,
    }
}

/// The allocation state that belongs to a plan; that of the host stays where the
/// plan is no machine's.
pub const fn allocation_of(plan: &Plan) -> Option<AllocationState> {
    match plan.kind {
        Kind::Clean => Some(AllocationState::Preparing),
        Kind::Reprovision => Some(AllocationState::Reprovisioning),
        Kind::Custom => None,
    }
}
