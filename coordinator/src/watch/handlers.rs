//! The parts of the process that record each change of an object.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use serde::de::DeserializeOwned;

use crate::index::metal3::Metal3Index;
use crate::index::replicas::ReplicaTracker;
use crate::index::triggers::Router;
use crate::index::{Index, Triggers};
use crate::key::{Key, Kind, OfKind, Presence, for_each_kind};
use crate::metrics::Metrics;
use crate::workload::WorkloadClients;

/// Gets every change of a kind after the store has the object, and also the deletion of an
/// object while its watch was interrupted.
pub type Observer<K> = Arc<dyn Fn(&K, Presence) + Send + Sync>;

#[derive(Clone)]
pub struct ChangeHandlers {
    pub index: Index,
    pub metal3: Metal3Index,
    pub router: Router,
    pub replicas: ReplicaTracker,
    pub inventory_changes: Observer<MachineInventory>,
    pub registration_changes: Observer<MachineRegistration>,
    pub seed_image_changes: Observer<SeedImage>,
    pub workloads: WorkloadClients,
    pub metrics: Metrics,
}

impl ChangeHandlers {
    fn apply_inventory(&self, inventory: &MachineInventory, presence: Presence) -> Triggers {
        (self.inventory_changes)(inventory, presence);
        let mut triggers = self.index.apply_host(inventory, presence);
        triggers.extend(self.metal3.apply_inventory(inventory, presence));
        triggers
    }

    fn apply_registration(&self, registration: &MachineRegistration, presence: Presence) -> Triggers {
        (self.registration_changes)(registration, presence);
        self.index.apply_registration(registration, presence)
    }

    fn apply_seed_image(&self, image: &SeedImage, presence: Presence) -> Triggers {
        (self.seed_image_changes)(image, presence);
        self.index.apply_seed_image(image, presence)
    }

    fn apply_machine(&self, machine: &Machine, _: Presence) -> Triggers {
        let mut triggers = Index::apply_owner(machine);
        triggers.extend(self.metal3.apply_owner(machine));
        triggers
    }

    fn apply_cluster(&self, cluster: &Cluster, presence: Presence) -> Triggers {
        if presence == Presence::Deleted {
            self.workloads.forget_cluster(&Key::of(cluster));
        }
        let mut triggers = self.index.apply_cluster(cluster, presence);
        triggers.extend(self.metal3.apply_cluster(cluster, presence));
        triggers
    }

    fn apply_catalog(&self, _: &ConfigMap, _: Presence) -> Triggers {
        let mut triggers = self.index.apply_catalog();
        triggers.extend(self.metal3.apply_catalog());
        triggers
    }

    fn apply_lease(&self, lease: &Lease, presence: Presence) -> Triggers {
        let died = self.replicas.observe_lease(lease, presence);
        let hosts = died.iter().flat_map(|replica| self.index.hosts_by_replica(replica));
        Triggers::of(Kind::MachineInventory, hosts)
    }
}

/// A kind that is watched.
pub trait Watched:
    OfKind
    + Resource<DynamicType: Eq + Hash + Clone + Debug + Send + Sync>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Records a change, and gives the objects that are to be reconciled.
    fn record_change(this: &Arc<Self>, presence: Presence, handlers: &ChangeHandlers) -> Triggers;
}

macro_rules! implement_watched {
    ($($kind:ident: $object:ty, $place:ident, $queue:ident, $($record:ident).+;)*) => {$(
        impl Watched for $object {
            fn record_change(this: &Arc<Self>, presence: Presence, handlers: &ChangeHandlers) -> Triggers {
                handlers.$($record).+(this, presence)
            }
        }
    )*};
}
for_each_kind!(implement_watched);
