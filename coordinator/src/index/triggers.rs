//! Queues from the watches to the controllers, which only the leader has.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_api::template::BaremetalMachineTemplate;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::metal3::Kind;
use crate::key::{Key, StoreKey};

/// The objects that are to be reconciled after an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    pub hosts: BTreeSet<Key>,
    pub machines: BTreeSet<Key>,
    pub pools: BTreeSet<Key>,
    pub clusters: BTreeSet<Key>,
    pub registrations: BTreeSet<Key>,
    pub seed_images: BTreeSet<Key>,
    pub templates: BTreeSet<Key>,
    pub metal3: BTreeSet<(Kind, Key)>,
}

/// Where the controllers get their keys. The controllers take every key at once
/// and drop repeats, so that no queue grows beyond a burst.
#[derive(Debug)]
pub(crate) struct Keys {
    pub hosts: UnboundedReceiver<ObjectRef<MachineInventory>>,
    pub machines: UnboundedReceiver<ObjectRef<BaremetalMachine>>,
    pub pools: UnboundedReceiver<ObjectRef<MachineInventoryPool>>,
    pub clusters: UnboundedReceiver<ObjectRef<BaremetalCluster>>,
    pub registrations: UnboundedReceiver<ObjectRef<MachineRegistration>>,
    pub seed_images: UnboundedReceiver<ObjectRef<SeedImage>>,
    pub templates: UnboundedReceiver<ObjectRef<BaremetalMachineTemplate>>,
    pub metal3: UnboundedReceiver<(Kind, Key)>,
}

#[derive(Clone, Debug)]
struct Queues {
    hosts: UnboundedSender<ObjectRef<MachineInventory>>,
    machines: UnboundedSender<ObjectRef<BaremetalMachine>>,
    pools: UnboundedSender<ObjectRef<MachineInventoryPool>>,
    clusters: UnboundedSender<ObjectRef<BaremetalCluster>>,
    registrations: UnboundedSender<ObjectRef<MachineRegistration>>,
    seed_images: UnboundedSender<ObjectRef<SeedImage>>,
    templates: UnboundedSender<ObjectRef<BaremetalMachineTemplate>>,
    metal3: UnboundedSender<(Kind, Key)>,
}

/// The queues of the controllers while this replica leads. Without them keys
/// are dropped: a new leader reconciles every object.
#[derive(Clone, Debug, Default)]
pub struct Router(Arc<RwLock<Option<Queues>>>);

impl Router {
    pub(crate) fn open_queues(&self) -> Keys {
        let (hosts, host_keys) = unbounded_channel();
        let (machines, machine_keys) = unbounded_channel();
        let (pools, pool_keys) = unbounded_channel();
        let (clusters, cluster_keys) = unbounded_channel();
        let (registrations, registration_keys) = unbounded_channel();
        let (seed_images, seed_image_keys) = unbounded_channel();
        let (templates, template_keys) = unbounded_channel();
        let (metal3, metal3_keys) = unbounded_channel();
        let queues =
            Queues { hosts, machines, pools, clusters, registrations, seed_images, templates, metal3 };
        self.set_queues(Some(queues));
        Keys {
            hosts: host_keys,
            machines: machine_keys,
            pools: pool_keys,
            clusters: cluster_keys,
            registrations: registration_keys,
            seed_images: seed_image_keys,
            templates: template_keys,
            metal3: metal3_keys,
        }
    }

    pub(crate) fn close_queues(&self) {
        self.set_queues(None);
    }

    fn set_queues(&self, queues: Option<Queues>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = queues;
    }

    /// Has the objects reconciled.
    pub fn send_keys(&self, triggers: &Triggers) {
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(queues) = queues.as_ref() else { return };
        send_keys(&queues.hosts, &triggers.hosts);
        send_keys(&queues.machines, &triggers.machines);
        send_keys(&queues.pools, &triggers.pools);
        send_keys(&queues.clusters, &triggers.clusters);
        send_keys(&queues.registrations, &triggers.registrations);
        send_keys(&queues.seed_images, &triggers.seed_images);
        send_keys(&queues.templates, &triggers.templates);
        for subject in &triggers.metal3 {
            // A closed queue is a leadership that has just ended.
            let _ = queues.metal3.send(subject.clone());
        }
    }
}

fn send_keys<'a, K: Resource<DynamicType = ()>>(
    queue: &UnboundedSender<ObjectRef<K>>,
    keys: impl IntoIterator<Item = &'a Key>,
) {
    for key in keys {
        // A closed queue is a leadership that has just ended.
        let _ = queue.send(key.object_ref());
    }
}
