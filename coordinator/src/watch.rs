//! What the watches feed: caches that everybody reads, and queues of what must
//! be looked at again, which only the leader has.

use std::sync::{Arc, RwLock};

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::mpsc;

/// Keys waiting for a controller. The controllers drop repeats, so this is the
/// depth of a burst, not of the work.
const QUEUE: usize = 4096;

/// What was seen to change.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A host.
    Inventory(&'a MachineInventory),
    /// A registration.
    Registration(&'a MachineRegistration),
    /// A seed image.
    SeedImage(&'a SeedImage),
    /// A pool.
    Pool(&'a MachineInventoryPool),
    /// A cluster of ours.
    BaremetalCluster(&'a BaremetalCluster),
    /// A machine of ours.
    BaremetalMachine(&'a BaremetalMachine),
    /// A Cluster API Machine.
    Machine(&'a Machine),
    /// A Cluster API Cluster.
    Cluster(&'a Cluster),
    /// The image catalog.
    Catalog(&'a ConfigMap),
}

/// The caches.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Caches {
    pub inventories: Store<MachineInventory>,
    pub registrations: Store<MachineRegistration>,
    pub seed_images: Store<SeedImage>,
    pub pools: Store<MachineInventoryPool>,
    pub baremetal_clusters: Store<BaremetalCluster>,
    pub baremetal_machines: Store<BaremetalMachine>,
    pub machines: Store<Machine>,
    pub clusters: Store<Cluster>,
    pub catalog: Store<ConfigMap>,
}

/// Where the leader's controllers get their keys.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Queues {
    pub inventories: mpsc::Sender<ObjectRef<MachineInventory>>,
    pub registrations: mpsc::Sender<ObjectRef<MachineRegistration>>,
    pub seed_images: mpsc::Sender<ObjectRef<SeedImage>>,
    pub pools: mpsc::Sender<ObjectRef<MachineInventoryPool>>,
    pub baremetal_clusters: mpsc::Sender<ObjectRef<BaremetalCluster>>,
    pub baremetal_machines: mpsc::Sender<ObjectRef<BaremetalMachine>>,
}

/// The other ends of [`Queues`].
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Keys {
    pub inventories: mpsc::Receiver<ObjectRef<MachineInventory>>,
    pub registrations: mpsc::Receiver<ObjectRef<MachineRegistration>>,
    pub seed_images: mpsc::Receiver<ObjectRef<SeedImage>>,
    pub pools: mpsc::Receiver<ObjectRef<MachineInventoryPool>>,
    pub baremetal_clusters: mpsc::Receiver<ObjectRef<BaremetalCluster>>,
    pub baremetal_machines: mpsc::Receiver<ObjectRef<BaremetalMachine>>,
}

/// Makes both ends.
#[must_use]
pub fn queues() -> (Queues, Keys) {
    let (inventories, inventory_keys) = mpsc::channel(QUEUE);
    let (registrations, registration_keys) = mpsc::channel(QUEUE);
    let (seed_images, seed_image_keys) = mpsc::channel(QUEUE);
    let (pools, pool_keys) = mpsc::channel(QUEUE);
    let (baremetal_clusters, baremetal_cluster_keys) = mpsc::channel(QUEUE);
    let (baremetal_machines, baremetal_machine_keys) = mpsc::channel(QUEUE);
    let queues =
        Queues { inventories, registrations, seed_images, pools, baremetal_clusters, baremetal_machines };
    let keys = Keys {
        inventories: inventory_keys,
        registrations: registration_keys,
        seed_images: seed_image_keys,
        pools: pool_keys,
        baremetal_clusters: baremetal_cluster_keys,
        baremetal_machines: baremetal_machine_keys,
    };
    (queues, keys)
}

/// The queues while this replica leads.
#[derive(Clone, Debug, Default)]
pub struct Leading(Arc<RwLock<Option<Queues>>>);

impl Leading {
    /// From now on keys go to `queues`; `None` when the lead is lost.
    pub fn set(&self, queues: Option<Queues>) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = queues;
    }

    /// The queues, while leading.
    #[must_use]
    pub fn queues(&self) -> Option<Queues> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
