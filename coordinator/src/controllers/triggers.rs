//! Which objects are looked at again when one is seen to change.

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{annotation, label};
use coordinator_api::pool::MachineInventoryPool;
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

use super::Waiting;
use crate::watch::{Caches, Queues, Seen};

/// Sends the keys of everything that `seen` concerns to the leader's queues.
pub async fn route(seen: Seen<'_>, caches: &Caches, waiting: &Waiting, queues: &Queues) {
    match seen {
        Seen::Inventory(inventory) => route_inventory(inventory, caches, waiting, queues).await,
        Seen::Pool(pool) => {
            send(&queues.pools, pools_beside(pool, caches)).await;
            send(&queues.baremetal_machines, waiting.of(pool.namespace().as_deref())).await;
        }
        Seen::BaremetalMachine(machine) => {
            send(&queues.baremetal_machines, [ObjectRef::from_obj(machine)]).await;
            send(&queues.inventories, left_behind(machine, caches)).await;
        }
        Seen::Machine(machine) => send(&queues.baremetal_machines, infrastructure(machine)).await,
        Seen::Cluster(cluster) => {
            send(&queues.baremetal_machines, machines_in(cluster, caches)).await;
            send(&queues.baremetal_clusters, cluster_of(cluster)).await;
        }
        Seen::BaremetalCluster(cluster) => {
            send(&queues.baremetal_clusters, [ObjectRef::from_obj(cluster)]).await;
        }
        Seen::Registration(registration) => {
            send(&queues.registrations, [ObjectRef::from_obj(registration)]).await;
            // A seed carries its registration: few, and rarely changed.
            send(&queues.seed_images, every(&caches.seed_images)).await;
        }
        Seen::SeedImage(iso) => send(&queues.seed_images, [ObjectRef::from_obj(iso)]).await,
        Seen::Catalog(_) => send(&queues.baremetal_machines, waiting.of(None)).await,
    }
}

async fn route_inventory(inventory: &MachineInventory, caches: &Caches, waiting: &Waiting, queues: &Queues) {
    send(&queues.inventories, [ObjectRef::from_obj(inventory)]).await;
    send(&queues.baremetal_machines, machines_of(inventory, caches, waiting)).await;
    send(&queues.pools, pools_of(inventory, caches)).await;
}

fn every<K: kube::Resource<DynamicType = ()> + Clone>(store: &Store<K>) -> Vec<ObjectRef<K>> {
    store.state().iter().map(|object| ObjectRef::from_obj(&**object)).collect()
}

async fn send<K: kube::Resource<DynamicType = ()>>(
    queue: &tokio::sync::mpsc::Sender<ObjectRef<K>>,
    keys: impl IntoIterator<Item = ObjectRef<K>>,
) {
    for key in keys {
        // A closed queue is a lead that was just lost.
        if queue.send(key).await.is_err() {
            return;
        }
    }
}

fn within<K: kube::Resource<DynamicType = ()>>(name: &str, object: &impl ResourceExt) -> ObjectRef<K> {
    ObjectRef::new(name).within(&object.namespace().unwrap_or_default())
}

/// A claimed host concerns its owner; a free one, those who wait for one, and
/// those who chose it: a machine that gave it back has yet to let itself go.
fn machines_of(
    inventory: &MachineInventory,
    caches: &Caches,
    waiting: &Waiting,
) -> Vec<ObjectRef<BaremetalMachine>> {
    if let Some(claim) = inventory.claim() {
        return vec![within(&claim.baremetal_machine, inventory)];
    }
    let name = inventory.name_any();
    let chose = |machine: &BaremetalMachine| {
        machine.namespace() == inventory.namespace()
            && machine.annotations().get(annotation::MACHINE_INVENTORY) == Some(&name)
    };
    let machines = caches.baremetal_machines.state();
    let chosen_by =
        machines.iter().filter(|machine| chose(machine)).map(|machine| ObjectRef::from_obj(&**machine));
    chosen_by.chain(waiting.of(inventory.namespace().as_deref())).collect()
}

fn pools_of(inventory: &MachineInventory, caches: &Caches) -> Vec<ObjectRef<MachineInventoryPool>> {
    let name = inventory.name_any();
    let lists =
        |pool: &MachineInventoryPool| pool.spec.machine_inventories.iter().any(|member| member.name == name);
    let pools = caches.pools.state();
    let here = pools.iter().filter(|pool| pool.namespace() == inventory.namespace() && lists(pool));
    here.map(|pool| ObjectRef::from_obj(&**pool)).collect()
}

/// A pool, and those that share a member with it: who has it may have changed.
fn pools_beside(pool: &MachineInventoryPool, caches: &Caches) -> Vec<ObjectRef<MachineInventoryPool>> {
    let names: std::collections::HashSet<_> =
        pool.spec.machine_inventories.iter().map(|member| &member.name).collect();
    let shares = |other: &MachineInventoryPool| {
        other.spec.machine_inventories.iter().any(|member| names.contains(&member.name))
    };
    let pools = caches.pools.state();
    let beside = pools.iter().filter(|other| other.namespace() == pool.namespace() && shares(other));
    beside.map(|other| ObjectRef::from_obj(&**other)).chain([ObjectRef::from_obj(pool)]).collect()
}

/// The host of a machine that is gone: somebody must see whether it was given
/// back.
fn left_behind(machine: &BaremetalMachine, caches: &Caches) -> Option<ObjectRef<MachineInventory>> {
    let gone = caches.baremetal_machines.get(&ObjectRef::from_obj(machine)).is_none();
    let chosen = machine.annotations().get(annotation::MACHINE_INVENTORY).filter(|_| gone)?;
    Some(within(chosen, machine))
}

fn infrastructure(machine: &Machine) -> Option<ObjectRef<BaremetalMachine>> {
    let reference = &machine.spec.infrastructure_ref;
    (reference.kind == "BaremetalMachine").then(|| within(&reference.name, machine))
}

fn cluster_of(cluster: &Cluster) -> Option<ObjectRef<coordinator_api::cluster::BaremetalCluster>> {
    let reference = cluster.spec.infrastructure_ref.as_ref()?;
    (reference.kind == "BaremetalCluster").then(|| within(&reference.name, cluster))
}

fn machines_in(cluster: &Cluster, caches: &Caches) -> Vec<ObjectRef<BaremetalMachine>> {
    let name = cluster.name_any();
    let of = |machine: &BaremetalMachine| {
        machine.namespace() == cluster.namespace() && machine.labels().get(label::CLUSTER_NAME) == Some(&name)
    };
    let machines = caches.baremetal_machines.state();
    machines.iter().filter(|machine| of(machine)).map(|machine| ObjectRef::from_obj(&**machine)).collect()
}
