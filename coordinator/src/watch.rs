//! One watch per kind for the whole process, or per kind and watched namespace:
//! stores that all read, and the index of what concerns what.
//!
//! Secrets are never watched. Every replica keeps its stores filled, so that a
//! new leader starts at once.
//!
//! An event goes into the store, then to the observer and into the index, then to
//! the queues of the controllers. The shared streams of kube-runtime 5.0 are
//! not used: they announce before the index is updated, carry no deletion, and one
//! whose object was deleted when it is read is never polled again.

mod follow;
mod kinds;
mod listing;
pub mod metal3;

use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::capi_ipam::IPAddressClaim;
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_api::template::BaremetalMachineTemplate;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ApiResource;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _};
use tokio::task::JoinSet;

use crate::config::{Config, Metal3};
use crate::index::Index;
use crate::index::metal3::Metal3Index;
use crate::index::replicas::ReplicaTracker;
use crate::index::triggers::Router;
use crate::key::Presence;
use crate::key::{Key, StoreKey};
use crate::lease::replica::LABEL_SELECTOR;
use crate::metrics::Metrics;
use crate::workload::WorkloadClients;
use follow::Watch;
use listing::Unlisted;
use metal3::Metal3Cache;

/// Versions at which the kinds of Cluster API are served.
#[derive(Clone, Debug)]
pub struct ApiVersions {
    pub machine: ApiResource,
    pub cluster: ApiResource,
}

impl ApiVersions {
    /// Whether Cluster API serves its claims on addresses at the version that is read: its
    /// kinds have one version.
    pub fn has_address_claims(&self) -> bool {
        self.machine.version == IPAddressClaim::version(&())
    }
}

#[derive(Clone, Debug)]
pub struct Cache {
    pub inventories: Store<MachineInventory>,
    pub registrations: Store<MachineRegistration>,
    pub seed_images: Store<SeedImage>,
    pub pools: Store<MachineInventoryPool>,
    pub baremetal_clusters: Store<BaremetalCluster>,
    pub baremetal_machines: Store<BaremetalMachine>,
    pub templates: Store<BaremetalMachineTemplate>,
    pub machines: Store<Machine>,
    pub clusters: Store<Cluster>,
    pub catalog: Store<ConfigMap>,
    pub leases: Store<Lease>,
    /// With `--metal3` alone.
    pub metal3: Option<Metal3Cache>,
    versions: ApiVersions,
    unlisted: Unlisted,
}

impl Cache {
    pub fn find_machine(&self, key: &Key) -> Option<Arc<Machine>> {
        self.machines.get(&key.object_ref_with(self.versions.machine.clone()))
    }

    pub fn find_cluster(&self, key: &Key) -> Option<Arc<Cluster>> {
        self.clusters.get(&key.object_ref_with(self.versions.cluster.clone()))
    }

    pub fn image_catalog(&self) -> Option<Arc<ConfigMap>> {
        self.catalog.state().into_iter().next()
    }

    /// Waits until every watch has listed its kind. Claims of Cluster API are not waited for: an
    /// installation may lack them, and what is in use is known without them.
    pub async fn wait_until_filled(&self) {
        self.unlisted.wait_none().await;
    }
}

/// Sees every change of a kind, once the store has it; also that an object was
/// deleted while its watch was interrupted.
pub type Observer<K> = Arc<dyn Fn(&K, Presence) + Send + Sync>;

#[derive(Clone)]
pub struct Sinks {
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

/// Starts every watch and gives the stores that they fill.
pub fn start_watches(
    client: &Client,
    config: &Config,
    versions: &ApiVersions,
    sinks: &Sinks,
    tasks: &mut JoinSet<()>,
) -> Cache {
    let catalog = config.catalog_key();
    let one = watcher::Config::default().fields(&format!("metadata.name={}", catalog.name));
    let replicas = watcher::Config::default().labels(LABEL_SELECTOR);
    let own = Api::namespaced(client.clone(), &config.own_namespace);
    let catalogs = Api::namespaced(client.clone(), &catalog.namespace);
    let namespaces = &config.namespaces.iter().cloned().collect();
    let unlisted = Unlisted::default();
    let mut watch = Watch { client, namespaces, sinks, tasks, unlisted: unlisted.clone() };
    Cache {
        inventories: watch.follow_objects(),
        registrations: watch.follow_objects(),
        seed_images: watch.follow_objects(),
        pools: watch.follow_objects(),
        baremetal_clusters: watch.follow_objects(),
        baremetal_machines: watch.follow_objects(),
        templates: watch.follow_objects(),
        machines: watch.follow_versioned(versions.machine.clone()),
        clusters: watch.follow_versioned(versions.cluster.clone()),
        catalog: watch.follow_kind(vec![catalogs], &one, ()),
        leases: watch.follow_kind(vec![own], &replicas, ()),
        metal3: (config.metal3 != Metal3::Off)
            .then(|| Metal3Cache::start(&mut watch, config.metal3, versions)),
        versions: versions.clone(),
        unlisted,
    }
}
