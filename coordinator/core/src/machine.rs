//! What is to be done for one `BaremetalMachine`.
//!
//! `Pending → Allocated → Reprovisioning → Running`, and back:
//! `Preparing → released`. [`decide`] sees a snapshot and names one effect;
//! the claim, the plan and the providerID are the only facts that are kept,
//! everything else is projected by [`status`].

mod decision;
mod render;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::conditions::{self, Reason, Type};
use coordinator_api::inventory::{Claim, MachineInventory, PlanState, PlanStatus};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{annotation, finalizer};
use coordinator_api::pool::MachineInventoryPool;
use kube::ResourceExt;
use proto::plan::{Kind, Secret};

use crate::plan::{self, Found, Stored};
use crate::pool::{self, Member};
use crate::{cluster, provider_id};

pub use decision::{Decision, Failure, Trouble, Waiting};
pub use status::status;

/// Where kubeadm finds containerd on our hosts.
pub const CRI_SOCKET: &str = "unix:///run/containerd/containerd.sock";

/// Everything that a decision looks at, as read at one time.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The machine.
    pub machine: &'a BaremetalMachine,
    /// The Cluster API Machine that owns it.
    pub owner: Option<&'a Machine>,
    /// Its Cluster.
    pub cluster: Option<&'a Cluster>,
    /// Its pool.
    pub pool: Option<&'a MachineInventoryPool>,
    /// Members of the pool, in its order.
    pub members: Vec<Member<'a>>,
    /// The inventory that it has chosen or owns.
    pub inventory: Option<&'a MachineInventory>,
    /// Versions and their images.
    pub catalog: Option<&'a BTreeMap<String, String>>,
    /// The bootstrap Secret, read only when [`needs`] asked for it.
    pub bootstrap: SecretRead<'a>,
    /// The plan Secret, likewise.
    pub plan: SecretRead<'a>,
}

/// A Secret that was perhaps read.
#[derive(Clone, Copy, Debug)]
pub enum SecretRead<'a> {
    /// Nobody asked.
    NotAsked,
    /// There is none.
    Missing,
    /// Its value.
    Holds(&'a Secret),
}

/// Which Secrets a decision needs: each costs a request, so none is read
/// before its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs<'a> {
    /// Name of the bootstrap Secret.
    pub bootstrap: Option<&'a str>,
    /// Name of the plan Secret.
    pub plan: Option<&'a str>,
}

/// Which Secrets [`decide`] will look at.
#[must_use]
pub fn needs<'a>(snapshot: &Snapshot<'a>) -> Needs<'a> {
    let Some(inventory) = snapshot.owned() else {
        return Needs::default();
    };
    if is_paused(snapshot) {
        return Needs::default();
    }
    let plan = announced(inventory, snapshot.machine);
    let deleting = snapshot.machine.metadata.deletion_timestamp.is_some();
    let provided = snapshot.machine.spec.provider_id.is_some();
    match plan {
        None if deleting => Needs { bootstrap: None, plan: plan_secret(inventory) },
        None if !provided => Needs { bootstrap: bootstrap_name(snapshot), plan: plan_secret(inventory) },
        Some(plan) if deleting && clean_is_due(plan, snapshot.machine) => {
            Needs { bootstrap: None, plan: plan_secret(inventory) }
        }
        None | Some(_) => Needs::default(),
    }
}

/// Decides.
#[must_use]
pub fn decide(snapshot: &Snapshot<'_>) -> Decision {
    if is_paused(snapshot) {
        return Decision::Wait(Waiting::Paused);
    }
    let deleting = snapshot.machine.metadata.deletion_timestamp.is_some();
    match (snapshot.owned(), deleting) {
        (Some(inventory), false) => provision(snapshot, inventory),
        (Some(inventory), true) => deprovision(snapshot, inventory),
        // Not ours, or gone: whoever's host it is, it is not touched.
        (None, true) => Decision::RemoveFinalizer,
        (None, false) => allocate(snapshot),
    }
}

impl<'a> Snapshot<'a> {
    /// The inventory, when the claim on it is this machine's.
    fn owned(&self) -> Option<&'a MachineInventory> {
        let uid = self.machine.uid()?;
        self.inventory.filter(|inventory| inventory.claim().is_some_and(|claim| claim.uid == uid))
    }
}

fn is_paused(snapshot: &Snapshot<'_>) -> bool {
    cluster::is_paused(snapshot.machine, snapshot.cluster)
}

fn allocate(snapshot: &Snapshot<'_>) -> Decision {
    let machine = snapshot.machine;
    let chosen = machine.annotations().get(annotation::MACHINE_INVENTORY);
    if machine.spec.provider_id.is_some() {
        let name = chosen.cloned().unwrap_or_default();
        return Decision::Fail(Failure::InventoryLost { name });
    }
    let Some(owner) = snapshot.owner else {
        return Decision::Wait(Waiting::Owner);
    };
    let name = &machine.spec.machine_inventory_pool_ref.name;
    let Some(pool) = snapshot.pool else {
        return Decision::Wait(Waiting::Pool { name: name.clone() });
    };
    if pool.spec.cluster_name != owner.spec.cluster_name {
        let (pool, cluster) = (name.clone(), pool.spec.cluster_name.clone());
        return Decision::Fail(Failure::PoolOfOtherCluster { pool, cluster });
    }
    let members = &snapshot.members;
    let held = machine.finalizers().iter().any(|name| name == finalizer::BAREMETAL_MACHINE);
    let is_chosen = |member: &&Member<'_>| Some(&member.listed.name) == chosen;
    // A promise to another machine is no reason to choose again: a claim on the
    // first choice may be under way, and only a change of the inventory stops it.
    let available = |member: &&Member<'_>| pool::standing(member) == pool::Standing::Available;
    let still_free = members.iter().find(is_chosen).filter(available);
    if let (true, Some(member)) = (held, still_free) {
        let claim = Claim {
            baremetal_machine: machine.name_any(),
            uid: machine.uid().unwrap_or_default(),
            machine: owner.name_any(),
            cluster: owner.spec.cluster_name.clone(),
            pool: name.clone(),
        };
        return Decision::Claim { inventory: member.listed.name.clone(), claim };
    }
    match pool::choose(members) {
        Ok(inventory) => Decision::Choose { inventory: inventory.name_any() },
        Err(excluded) => Decision::Wait(Waiting::Member { pool: name.clone(), excluded }),
    }
}

fn provision(snapshot: &Snapshot<'_>, inventory: &MachineInventory) -> Decision {
    let plan = announced(inventory, snapshot.machine);
    if let Some(plan) = plan {
        return follow(snapshot, inventory, plan);
    }
    // A machine with a providerID never gets a second reprovision.
    if snapshot.machine.spec.provider_id.is_some() {
        return Decision::Rest;
    }
    let Some(name) = bootstrap_name(snapshot) else {
        return Decision::Wait(Waiting::BootstrapName);
    };
    let found = found(snapshot);
    if let Some(stored) = for_machine(&found, snapshot.machine) {
        return Decision::Announce { inventory: inventory.name_any(), stored: Box::new(stored.clone()) };
    }
    let SecretRead::Holds(data) = snapshot.bootstrap else {
        return Decision::Wait(Waiting::BootstrapSecret { name: name.to_owned() });
    };
    assign(inventory, render::reprovision(snapshot, inventory, data, &found))
}

fn assign(inventory: &MachineInventory, rendered: Result<Stored, Failure>) -> Decision {
    match rendered {
        Ok(stored) => Decision::Assign { inventory: inventory.name_any(), stored: Box::new(stored) },
        Err(failure) => Decision::Fail(failure),
    }
}

/// The plan is announced: what the host made of it decides.
fn follow(snapshot: &Snapshot<'_>, inventory: &MachineInventory, plan: &PlanStatus) -> Decision {
    // A clean on a machine that is not seen to be deleted: the view of the
    // machine is behind, and what the host proved is no node.
    if is_clean(plan) {
        let (plan, trouble) = (plan.id.clone().unwrap_or_default(), trouble(inventory));
        return Decision::Wait(Waiting::Clean { plan, trouble });
    }
    match plan.state {
        None => {
            let (plan, trouble) = (plan.id.clone().unwrap_or_default(), trouble(inventory));
            Decision::Wait(Waiting::Reprovision { plan, trouble })
        }
        Some(PlanState::Failed) => {
            Decision::Fail(Failure::Plan { message: plan.message.clone().unwrap_or_default() })
        }
        Some(PlanState::Applied) => {
            let provider_id = provider_id::of(&inventory.name_any());
            if snapshot.machine.spec.provider_id.as_ref() == Some(&provider_id) {
                return Decision::Rest;
            }
            Decision::Provide { inventory: inventory.name_any(), provider_id }
        }
    }
}

fn deprovision(snapshot: &Snapshot<'_>, inventory: &MachineInventory) -> Decision {
    let machine = snapshot.machine;
    let plan = announced(inventory, machine);
    if let Some(plan) = plan.filter(|plan| !clean_is_due(plan, machine)) {
        return follow_clean(inventory, plan, machine);
    }
    let found = found(snapshot);
    // Status can be lost; the providerID and the plan Secret tell too.
    let touched =
        plan.is_some() || machine.spec.provider_id.is_some() || Some(&found.owner) == machine.uid().as_ref();
    if touched {
        clean(snapshot, inventory, &found)
    } else {
        Decision::Release { inventory: inventory.name_any() }
    }
}

fn follow_clean(inventory: &MachineInventory, plan: &PlanStatus, machine: &BaremetalMachine) -> Decision {
    if plan.state == Some(PlanState::Applied) {
        return Decision::Release { inventory: inventory.name_any() };
    }
    if machine.annotations().contains_key(annotation::RELEASE_WITHOUT_CLEAN) {
        return Decision::Abandon { inventory: inventory.name_any() };
    }
    if plan.state == Some(PlanState::Failed) {
        return Decision::Fail(Failure::Plan { message: plan.message.clone().unwrap_or_default() });
    }
    let (plan, trouble) = (plan.id.clone().unwrap_or_default(), trouble(inventory));
    Decision::Wait(Waiting::Clean { plan, trouble })
}

/// What keeps a host from its plan, where the inventory knows of something.
fn trouble(inventory: &MachineInventory) -> Option<Trouble> {
    let ready = conditions::find(inventory.conditions(), Type::Ready)?;
    let known = [
        Reason::HostUnreachable,
        Reason::PlanSecretMissing,
        Reason::PlanSecretInvalid,
        Reason::DuplicateIdentity,
    ];
    let reason = known.into_iter().find(|reason| reason.as_str() == ready.reason)?;
    Some(Trouble { reason, message: ready.message.clone() })
}

fn is_clean(plan: &PlanStatus) -> bool {
    plan.id.as_deref().is_some_and(|id| id.starts_with("clean-"))
}

/// Whether the newest plan is not a clean, or is a failed one that a person
/// wants tried again.
fn clean_is_due(plan: &PlanStatus, machine: &BaremetalMachine) -> bool {
    let retry = machine.annotations().contains_key(annotation::RETRY_PLAN);
    !is_clean(plan) || (retry && plan.state == Some(PlanState::Failed))
}

fn clean(snapshot: &Snapshot<'_>, inventory: &MachineInventory, found: &Found) -> Decision {
    // A clean that was written and not announced is the one to announce.
    let announced = announced(inventory, snapshot.machine).and_then(|plan| plan.generation);
    let newer = |stored: &&Stored| i64::try_from(stored.plan.generation.0).ok() > announced;
    let is_clean = |stored: &&Stored| stored.plan.kind == Kind::Clean;
    if let Some(stored) = for_machine(found, snapshot.machine).filter(is_clean).filter(newer) {
        return Decision::Announce { inventory: inventory.name_any(), stored: Box::new(stored.clone()) };
    }
    assign(inventory, render::clean(snapshot, inventory, found))
}

/// The announced plan, when it is for this machine.
fn announced<'a>(inventory: &'a MachineInventory, machine: &BaremetalMachine) -> Option<&'a PlanStatus> {
    inventory.plan().filter(|plan| plan.owner.is_some() && plan.owner == machine.uid())
}

fn for_machine<'a>(found: &'a Found, machine: &BaremetalMachine) -> Option<&'a Stored> {
    found.stored.as_ref().filter(|stored| Some(&stored.owner) == machine.uid().as_ref())
}

/// What the plan Secret holds. One that is missing or garbled is made anew with
/// the next plan: only what is announced was ever given to a host.
fn found(snapshot: &Snapshot<'_>) -> Found {
    match snapshot.plan {
        SecretRead::NotAsked | SecretRead::Missing => Found::default(),
        SecretRead::Holds(bytes) => plan::find(bytes.expose()),
    }
}

fn plan_secret(inventory: &MachineInventory) -> Option<&str> {
    let named = inventory.plan().and_then(|plan| plan.secret_ref.as_ref()?.name.as_deref());
    named.or(inventory.metadata.name.as_deref())
}

fn bootstrap_name<'a>(snapshot: &Snapshot<'a>) -> Option<&'a str> {
    snapshot.owner?.spec.bootstrap.data_secret_name.as_deref()
}
