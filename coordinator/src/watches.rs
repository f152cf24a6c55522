//! One watch a kind for the whole process.
//!
//! Secrets are never watched. Every replica keeps the caches warm, so that a
//! new leader starts at once.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Resource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::controllers::{self, CapiVersions, Waiting};
use crate::rpc::announcements::Announcements;
use crate::telemetry::chain;
use crate::watch::{Caches, Leading, Seen};

/// Where news go: to the streams of hosts, and to whoever leads.
#[derive(Clone)]
pub struct Router {
    /// The lead.
    pub leading: Leading,
    /// Machines that wait.
    pub waiting: Waiting,
    /// Streams of hosts.
    pub announcements: Arc<Announcements>,
}

/// A kind that is watched.
trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    /// It, as one of all kinds.
    fn seen(&self) -> Seen<'_>;

    /// Tells the streams of hosts, before anybody else.
    fn announce(_: &watcher::Event<Self>, _: &Announcements) {}
}

macro_rules! watched {
    ($($kind:ty => $seen:path),+ $(,)?) => {$(
        impl Watched for $kind {
            fn seen(&self) -> Seen<'_> {
                $seen(self)
            }
        }
    )+};
}

watched! {
    MachineRegistration => Seen::Registration,
    SeedImage => Seen::SeedImage,
    MachineInventoryPool => Seen::Pool,
    BaremetalCluster => Seen::BaremetalCluster,
    BaremetalMachine => Seen::BaremetalMachine,
    Machine => Seen::Machine,
    Cluster => Seen::Cluster,
    ConfigMap => Seen::Catalog,
}

impl Watched for MachineInventory {
    fn seen(&self) -> Seen<'_> {
        Seen::Inventory(self)
    }

    fn announce(event: &watcher::Event<Self>, announcements: &Announcements) {
        announcements.event(event);
    }
}

/// Starts every watch and gives the caches that they fill.
pub fn start(
    client: &Client,
    config: &Config,
    versions: &CapiVersions,
    router: &Router,
    tasks: &mut JoinSet<()>,
) -> Caches {
    let (inventories, registrations, seed_images) = (Writer::default(), Writer::default(), Writer::default());
    let (pools, ours, bmms) = (Writer::default(), Writer::default(), Writer::default());
    let machines = Writer::new(versions.machine.clone());
    let clusters = Writer::new(versions.cluster.clone());
    let catalog = Writer::<ConfigMap>::default();
    let caches = Caches {
        inventories: inventories.as_reader(),
        registrations: registrations.as_reader(),
        seed_images: seed_images.as_reader(),
        pools: pools.as_reader(),
        baremetal_clusters: ours.as_reader(),
        baremetal_machines: bmms.as_reader(),
        machines: machines.as_reader(),
        clusters: clusters.as_reader(),
        catalog: catalog.as_reader(),
    };
    let all = watcher::Config::default;
    let one = all().fields(&format!("metadata.name={}", config.image_catalog));
    let here = Api::namespaced(client.clone(), &config.namespace);
    let follower = Follower { router: router.clone(), caches: caches.clone() };
    tasks.spawn(follower.clone().follow(Api::all(client.clone()), all(), inventories));
    tasks.spawn(follower.clone().follow(Api::all(client.clone()), all(), registrations));
    tasks.spawn(follower.clone().follow(Api::all(client.clone()), all(), seed_images));
    tasks.spawn(follower.clone().follow(Api::all(client.clone()), all(), pools));
    tasks.spawn(follower.clone().follow(Api::all(client.clone()), all(), ours));
    tasks.spawn(follower.clone().follow(Api::all(client.clone()), all(), bmms));
    tasks.spawn(follower.clone().follow(Api::all_with(client.clone(), &versions.machine), all(), machines));
    tasks.spawn(follower.clone().follow(Api::all_with(client.clone(), &versions.cluster), all(), clusters));
    tasks.spawn(follower.follow(here, one, catalog));
    caches
}

#[derive(Clone)]
struct Follower {
    router: Router,
    caches: Caches,
}

impl Follower {
    /// Watches one kind for ever.
    async fn follow<K: Watched>(self, api: Api<K>, config: watcher::Config, mut writer: Writer<K>)
    where
        K::DynamicType: Eq + Hash + Clone + Send + Sync,
    {
        let mut events = Box::pin(watcher(api, config).default_backoff());
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    writer.apply_watcher_event(&event);
                    K::announce(&event, &self.router.announcements);
                    self.told(event, &writer).await;
                }
                Ok(None) => return,
                Err(error) => tracing::warn!(error = %chain(&error), "a watch broke and is opened again"),
            }
        }
    }

    async fn told<K: Watched>(&self, event: watcher::Event<K>, writer: &Writer<K>)
    where
        K::DynamicType: Eq + Hash + Clone,
    {
        match event {
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => self.route(object.seen()).await,
            watcher::Event::InitDone => {
                for object in writer.as_reader().state() {
                    self.route(object.seen()).await;
                }
            }
            watcher::Event::Init | watcher::Event::InitApply(_) => {}
        }
    }

    async fn route(&self, seen: Seen<'_>) {
        if let Some(queues) = self.router.leading.queues() {
            controllers::route(seen, &self.caches, &self.router.waiting, &queues).await;
        }
    }
}
