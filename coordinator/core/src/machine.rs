//! What is to be done for one `BaremetalMachine`.
//!
//! `Pending → Allocated → Reprovisioning → Running`, and back:
//! `Preparing → released`. [`decide`] sees a snapshot and names one effect;
//! the claim, the plan and the providerID are the only facts that are kept,
//! everything else is projected by [`status`].

mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::inventory::{Claim, MachineInventory, PlanState, PlanStatus};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{annotation, finalizer};
use kube::ResourceExt;
use proto::plan::{Generation, Secret};

use crate::bootstrap::{self, NodeNames};
use crate::plan::{self, Clean, Job, Names, Reprovision, Stored};
use crate::pool::{self, Member};
use crate::{cluster, image_catalog, network, provider_id};

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
    /// Members of its pool in order; `None` when there is no such pool.
    pub members: Option<Vec<Member<'a>>>,
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

/// The one effect that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Hold the machine and note which inventory it will claim: with the
    /// machine's resourceVersion as precondition, so that a stale cache never
    /// chooses twice.
    Choose {
        /// Name of the inventory.
        inventory: String,
    },
    /// Make the inventory this machine's own: one compare-and-swap.
    Claim {
        /// Name of the inventory.
        inventory: String,
        /// Who claims.
        claim: Claim,
    },
    /// Write the plan Secret, then announce it.
    Assign {
        /// Name of the inventory.
        inventory: String,
        /// The plan.
        stored: Box<Stored>,
    },
    /// The plan Secret holds the plan already: a crash came in between.
    Announce {
        /// Name of the inventory.
        inventory: String,
        /// The plan.
        stored: Box<Stored>,
    },
    /// The host has proven the plan: tell Cluster API.
    Provide {
        /// Name of the inventory.
        inventory: String,
        /// The providerID.
        provider_id: String,
    },
    /// Give the inventory back to its pool.
    Release {
        /// Name of the inventory.
        inventory: String,
    },
    /// Let the machine go.
    RemoveFinalizer,
    /// Nothing is due.
    Rest,
    /// Something must happen first.
    Wait(Waiting),
    /// Time alone does not cure it; a cause that goes away does.
    Fail(Failure),
}

/// What is waited for: each is the reason of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The owning Machine or its Cluster.
    Owner,
    /// A person.
    Paused,
    /// The pool.
    Pool {
        /// Its name.
        name: String,
    },
    /// A free member.
    Member {
        /// Name of the pool.
        pool: String,
        /// What excludes how many.
        excluded: String,
    },
    /// The name of the bootstrap Secret.
    BootstrapName,
    /// The bootstrap Secret.
    BootstrapSecret {
        /// Its name.
        name: String,
    },
    /// The host, which works on a reprovision.
    Reprovision {
        /// Name of the plan.
        plan: String,
    },
    /// The host, which works on a clean.
    Clean {
        /// Name of the plan.
        plan: String,
    },
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The Machine names no version.
    Version,
    /// The catalog has no image, or the image no registry.
    Image(image_catalog::ImageError),
    /// The bootstrap data cannot be used.
    Bootstrap(String),
    /// The network cannot be rendered.
    Network(String),
    /// The host could not do the plan.
    Plan {
        /// Cause and next action.
        message: String,
    },
    /// The plan Secret is gone.
    PlanSecretMissing {
        /// Its name.
        name: String,
    },
    /// The plan Secret holds no plan.
    PlanSecretInvalid(String),
    /// The inventory of a running machine is gone, or somebody else's.
    InventoryLost {
        /// Its name.
        name: String,
    },
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
    let announced = announced(inventory, snapshot.machine);
    let deleting = snapshot.machine.metadata.deletion_timestamp.is_some();
    let provided = snapshot.machine.spec.provider_id.is_some();
    let secret = plan_secret(inventory);
    match announced {
        None if deleting => Needs { bootstrap: None, plan: secret },
        None if !provided => Needs { bootstrap: bootstrap_name(snapshot), plan: secret },
        Some(plan) if deleting && clean_is_due(plan, snapshot.machine) => {
            Needs { bootstrap: None, plan: secret }
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
    let pool = &machine.spec.machine_inventory_pool_ref.name;
    let Some(members) = &snapshot.members else {
        return Decision::Wait(Waiting::Pool { name: pool.clone() });
    };
    let held = machine.finalizers().iter().any(|name| name == finalizer::BAREMETAL_MACHINE);
    let is_chosen = |member: &&Member<'_>| Some(&member.listed.name) == chosen;
    let still_free =
        members.iter().find(is_chosen).filter(|member| pool::standing(member) == pool::Standing::Available);
    if let (true, Some(member)) = (held, still_free) {
        let claim = Claim {
            baremetal_machine: machine.name_any(),
            uid: machine.uid().unwrap_or_default(),
            machine: owner.name_any(),
            cluster: owner.spec.cluster_name.clone(),
            pool: pool.clone(),
        };
        return Decision::Claim { inventory: member.listed.name.clone(), claim };
    }
    match pool::choose(members) {
        Ok(inventory) => Decision::Choose { inventory: inventory.name_any() },
        Err(excluded) => Decision::Wait(Waiting::Member { pool: pool.clone(), excluded }),
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
    let stored = match read_plan(snapshot, inventory) {
        Ok(stored) => stored,
        Err(failure) => return Decision::Fail(failure),
    };
    if let Some(stored) = for_machine(stored.as_ref(), snapshot.machine) {
        return Decision::Announce { inventory: inventory.name_any(), stored: Box::new(stored.clone()) };
    }
    let SecretRead::Holds(data) = snapshot.bootstrap else {
        return Decision::Wait(Waiting::BootstrapSecret { name: name.to_owned() });
    };
    match render(snapshot, inventory, data, stored.as_ref()) {
        Ok(stored) => Decision::Assign { inventory: inventory.name_any(), stored: Box::new(stored) },
        Err(failure) => Decision::Fail(failure),
    }
}

/// The plan is announced: what the host made of it decides.
fn follow(snapshot: &Snapshot<'_>, inventory: &MachineInventory, plan: &PlanStatus) -> Decision {
    match plan.state {
        None => Decision::Wait(Waiting::Reprovision { plan: plan.id.clone().unwrap_or_default() }),
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
    let name = inventory.name_any();
    let Some(plan) = announced(inventory, snapshot.machine) else {
        return match read_plan(snapshot, inventory) {
            // The plan was written and never announced: the host may have it.
            Ok(Some(stored)) if stored.owner == snapshot.machine.uid().unwrap_or_default() => {
                clean(snapshot, inventory, Some(&stored))
            }
            // No plan of this machine: nothing of it is on the host.
            Ok(_) => Decision::Release { inventory: name },
            Err(failure) => Decision::Fail(failure),
        };
    };
    let id = plan.id.clone().unwrap_or_default();
    if clean_is_due(plan, snapshot.machine) {
        return match read_plan(snapshot, inventory) {
            Ok(stored) => clean(snapshot, inventory, stored.as_ref()),
            Err(failure) => Decision::Fail(failure),
        };
    }
    match plan.state {
        None => Decision::Wait(Waiting::Clean { plan: id }),
        Some(PlanState::Applied) => Decision::Release { inventory: name },
        Some(PlanState::Failed) => {
            Decision::Fail(Failure::Plan { message: plan.message.clone().unwrap_or_default() })
        }
    }
}

/// Whether the newest plan is not a clean, or is a failed one that a person
/// wants tried again.
fn clean_is_due(plan: &PlanStatus, machine: &BaremetalMachine) -> bool {
    let is_clean = plan.id.as_deref().is_some_and(|id| id.starts_with("clean-"));
    let retry = machine.annotations().contains_key(annotation::RETRY_PLAN);
    !is_clean || (retry && plan.state == Some(PlanState::Failed))
}

fn clean(snapshot: &Snapshot<'_>, inventory: &MachineInventory, stored: Option<&Stored>) -> Decision {
    // A clean that was written and not announced is the one to announce.
    let announced = announced(inventory, snapshot.machine).and_then(|plan| plan.generation);
    let newer = |stored: &&Stored| i64::try_from(stored.plan.generation.0).ok() > announced;
    let is_clean = |stored: &&Stored| stored.plan.kind == proto::plan::Kind::Clean;
    if let Some(stored) = for_machine(stored, snapshot.machine).filter(is_clean).filter(newer) {
        return Decision::Announce { inventory: inventory.name_any(), stored: Box::new(stored.clone()) };
    }
    let job = network::config(&inventory.spec)
        .map(|network_config| Job::Clean(Clean { network_config }))
        .map_err(|error| Failure::Network(error.to_string()));
    match job.and_then(|job| write(&job, snapshot, inventory, stored)) {
        Ok(stored) => Decision::Assign { inventory: inventory.name_any(), stored: Box::new(stored) },
        Err(failure) => Decision::Fail(failure),
    }
}

fn render(
    snapshot: &Snapshot<'_>,
    inventory: &MachineInventory,
    data: &Secret,
    stored: Option<&Stored>,
) -> Result<Stored, Failure> {
    let owner = snapshot.owner.ok_or(Failure::Version)?;
    let version = owner.spec.version.as_deref().ok_or(Failure::Version)?;
    let registry =
        snapshot.cluster.and_then(|cluster| cluster.annotations().get(annotation::REGISTRY_ADDRESS));
    let empty = BTreeMap::new();
    let catalog = snapshot.catalog.unwrap_or(&empty);
    let image =
        image_catalog::resolve(catalog, version, registry.map(String::as_str)).map_err(Failure::Image)?;
    let names = names(snapshot, inventory);
    let text = std::str::from_utf8(data.expose()).map_err(|_| {
        Failure::Bootstrap("the bootstrap data is not UTF-8: only cloud-config is supported".to_owned())
    })?;
    let node =
        NodeNames { hostname: &names.hostname, provider_id: &names.provider_id, cri_socket: CRI_SOCKET };
    let user_data =
        bootstrap::normalise(text, &node).map_err(|error| Failure::Bootstrap(error.to_string()))?;
    let network_config =
        network::config(&inventory.spec).map_err(|error| Failure::Network(error.to_string()))?;
    let job = Job::Reprovision(Reprovision {
        image,
        user_data: Secret::new(user_data.into_bytes()),
        network_config,
        names,
    });
    write(&job, snapshot, inventory, stored)
}

fn write(
    job: &Job,
    snapshot: &Snapshot<'_>,
    inventory: &MachineInventory,
    stored: Option<&Stored>,
) -> Result<Stored, Failure> {
    let host =
        inventory.status.as_ref().and_then(|status| status.host.as_ref()).map_or(0, |host| host.generation);
    let announced = inventory.plan().and_then(|plan| plan.generation).unwrap_or(0);
    let generation = plan::next_generation(stored, host.max(announced));
    plan::write(job, generation, &snapshot.machine.uid().unwrap_or_default())
        .map_err(|error| Failure::PlanSecretInvalid(error.to_string()))
}

fn names(snapshot: &Snapshot<'_>, inventory: &MachineInventory) -> Names {
    let machine = snapshot.owner.map_or_else(|| snapshot.machine.name_any(), ResourceExt::name_any);
    let inventory_name = inventory.name_any();
    let listed = snapshot.members.iter().flatten().find(|member| member.listed.name == inventory_name);
    Names {
        hostname: listed.and_then(|member| member.listed.hostname.clone()).unwrap_or_else(|| machine.clone()),
        machine,
        namespace: snapshot.machine.namespace().unwrap_or_default(),
        uuid: inventory.uid().unwrap_or_default(),
        provider_id: provider_id::of(&inventory_name),
    }
}

/// The announced plan, when it is for this machine.
fn announced<'a>(inventory: &'a MachineInventory, machine: &BaremetalMachine) -> Option<&'a PlanStatus> {
    inventory.plan().filter(|plan| plan.owner.is_some() && plan.owner == machine.uid())
}

fn for_machine<'a>(stored: Option<&'a Stored>, machine: &BaremetalMachine) -> Option<&'a Stored> {
    stored.filter(|stored| Some(&stored.owner) == machine.uid().as_ref())
}

fn read_plan(snapshot: &Snapshot<'_>, inventory: &MachineInventory) -> Result<Option<Stored>, Failure> {
    let name = || plan_secret(inventory).unwrap_or_default().to_owned();
    match snapshot.plan {
        SecretRead::NotAsked | SecretRead::Missing => Err(Failure::PlanSecretMissing { name: name() }),
        SecretRead::Holds(bytes) => plan::parse(bytes.expose(), Generation(1))
            .map_err(|error| Failure::PlanSecretInvalid(error.to_string())),
    }
}

fn plan_secret(inventory: &MachineInventory) -> Option<&str> {
    inventory.plan()?.secret_ref.as_ref()?.name.as_deref()
}

fn bootstrap_name<'a>(snapshot: &Snapshot<'a>) -> Option<&'a str> {
    snapshot.owner?.spec.bootstrap.data_secret_name.as_deref()
}
