//! Takes the events of the watches of one kind to store, index and queues, and to every other part of
//! the process that records changes.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use futures::StreamExt as _;
use futures::stream::select_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::listing::{Listing, Unlisted};
use crate::index::metal3::Metal3Index;
use crate::index::replicas::ReplicaTracker;
use crate::index::{Index, Router, Triggers};
use crate::key::{Key, Kind, OfKind, Presence, for_each_kind};
use crate::metrics::Metrics;
use crate::telemetry::chain;
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

/// The namespace of one watch; `None` for all.
type Scope = Option<String>;

/// The destinations of the events of one kind.
pub(super) struct Feed<K: Watched> {
    pub writer: Writer<K>,
    kind: K::DynamicType,
    listings: HashMap<Scope, Listing<ObjectRef<K>>>,
    /// Watches whose first list is not complete.
    unlisted_scopes: HashSet<Scope>,
    unlisted: Unlisted,
    handlers: ChangeHandlers,
}

impl<K: Watched> Feed<K> {
    pub(super) fn new(
        kind: K::DynamicType,
        scopes: impl Iterator<Item = Scope>,
        handlers: ChangeHandlers,
        unlisted: Unlisted,
    ) -> Self {
        let mut writer = Writer::new(kind.clone());
        // The store is ready while it is empty, because an applier of kube-runtime waits for that,
        // and no applier is started before all kinds are listed.
        writer.apply_watcher_event(&Event::InitDone);
        let unlisted_scopes = scopes.collect();
        handlers.metrics.create_unparsable(K::KIND.name());
        Self { writer, kind, listings: HashMap::new(), unlisted_scopes, unlisted, handlers }
    }

    pub(super) async fn run_watches(mut self, apis: Vec<Api<DeserializeGuard<K>>>, config: watcher::Config) {
        let mut events = select_all(apis.into_iter().map(|api| {
            let scope = api.namespace().map(str::to_owned);
            let events = watcher(api, config.clone()).default_backoff();
            Box::pin(events.map(move |event| (scope.clone(), event)))
        }));
        while let Some((scope, event)) = events.next().await {
            match event {
                Ok(event) => self.take_event(&scope, event),
                Err(error) => log_interruption(K::KIND.name(), scope.as_deref(), &error),
            }
        }
    }

    fn take_event(&mut self, scope: &Scope, event: Event<DeserializeGuard<K>>) {
        match event {
            Event::Init => self.listing(scope).begin(),
            Event::InitApply(object) => {
                let key = self.key_of(&object);
                self.listing(scope).note_key(&key);
                self.take_object(object);
            }
            Event::InitDone => self.end_list(scope),
            Event::Apply(object) => self.take_object(object),
            Event::Delete(object) => {
                let known = self.writer.as_reader().get(&self.key_of(&object));
                if let Some(last) = self.parse_object(object).map(Arc::new).or(known) {
                    self.remove_object(&last);
                }
            }
        }
    }

    fn listing(&mut self, scope: &Scope) -> &mut Listing<ObjectRef<K>> {
        self.listings.entry(scope.clone()).or_default()
    }

    fn key_of(&self, object: &impl Resource<DynamicType: Clone>) -> ObjectRef<K> {
        let meta = object.meta();
        let key = ObjectRef::new_with(meta.name.as_deref().unwrap_or_default(), self.kind.clone());
        match &meta.namespace {
            Some(namespace) => key.within(namespace),
            None => key,
        }
    }

    /// Takes an object. An object that does not parse keeps its last version that did, and stops no
    /// other object.
    fn take_object(&mut self, object: DeserializeGuard<K>) {
        if let Some(mut object) = self.parse_object(object) {
            // Nothing reads the managed fields, which can be the larger part of an object.
            object.meta_mut().managed_fields = None;
            let key = self.key_of(&object);
            self.writer.apply_watcher_event(&Event::Apply(object));
            if let Some(object) = self.writer.as_reader().get(&key) {
                self.record_change(&object, Presence::Exists);
            }
        }
    }

    fn remove_object(&mut self, object: &Arc<K>) {
        self.writer.apply_watcher_event(&Event::Delete(K::clone(object)));
        self.record_change(object, Presence::Deleted);
    }

    /// Removes the objects that were deleted while the watch was interrupted, because they have no
    /// event.
    fn end_list(&mut self, scope: &Scope) {
        let store = self.writer.as_reader();
        let known: Vec<_> = store.state().iter().map(|object| self.key_of(&**object)).collect();
        let known = known.iter().filter(|key| scope.is_none() || key.namespace == *scope);
        for gone in self.listing(scope).end(known) {
            if let Some(object) = store.get(&gone) {
                self.remove_object(&object);
            }
        }
        if self.unlisted_scopes.remove(scope) && self.unlisted_scopes.is_empty() {
            self.unlisted.remove_kind();
        }
    }

    fn record_change(&self, object: &Arc<K>, presence: Presence) {
        let triggers = K::record_change(object, presence, &self.handlers);
        self.handlers.router.send_keys(triggers);
    }

    fn parse_object(&self, guarded: DeserializeGuard<K>) -> Option<K> {
        let key = self.key_of(&guarded);
        let parsed = guarded.0.inspect_err(|invalid: &InvalidObject| {
            self.handlers.metrics.count_unparsable(K::KIND.name());
            tracing::warn!(
                kind = K::KIND.name(),
                namespace = key.namespace,
                name = key.name,
                error = invalid.error,
                "object does not parse, its last usable version stays in use: correct the object"
            );
        });
        parsed.ok()
    }
}

fn log_interruption(kind: &str, namespace: Option<&str>, error: &watcher::Error) {
    tracing::warn!(kind, namespace, error = %chain(error), "watch interrupted, opening it again with backoff");
}

#[cfg(test)]
mod tests;
