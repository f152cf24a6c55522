//! From the events of the watches of one kind to store, index and queues.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::select_all;
use kube::core::error_boundary::InvalidObject;
use kube::core::{ApiResource, DeserializeGuard, DynamicResourceScope, NamespaceResourceScope};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::Sinks;
use super::listing::{Listing, Unlisted};
use crate::index::Triggers;
use crate::key::Presence;
use crate::telemetry::chain;

/// A kind that is watched.
pub(super) trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    const KIND: &'static str;

    /// Records a change; what is to be reconciled.
    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers;
}

pub(super) struct Watch<'a> {
    pub client: &'a Client,
    /// Those that are watched; all when there is none.
    pub namespaces: &'a BTreeSet<String>,
    pub sinks: &'a Sinks,
    pub tasks: &'a mut JoinSet<()>,
    pub unlisted: Unlisted,
}

impl Watch<'_> {
    /// For kinds that an installation may lack: nothing waits for their lists.
    pub(super) fn of_optional_kinds(&mut self) -> Watch<'_> {
        let Self { client, namespaces, sinks, ref mut tasks, .. } = *self;
        Watch { client, namespaces, sinks, tasks, unlisted: Unlisted::default() }
    }

    /// Watches a kind in the namespaces that are watched; gives the store that is
    /// filled.
    pub(super) fn follow_objects<K>(&mut self) -> Store<K>
    where
        K: Watched + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let in_one = |namespace: &str| Api::namespaced(self.client.clone(), namespace);
        let apis = self.list_apis(Api::all(self.client.clone()), in_one);
        self.follow_kind(apis, &watcher::Config::default(), ())
    }

    /// The same for a kind that is known by its version.
    pub(super) fn follow_versioned<K>(&mut self, kind: ApiResource) -> Store<K>
    where
        K: Watched + Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let in_one = |namespace: &str| Api::namespaced_with(self.client.clone(), namespace, &kind);
        let apis = self.list_apis(Api::all_with(self.client.clone(), &kind), in_one);
        self.follow_kind(apis, &watcher::Config::default(), kind)
    }

    fn list_apis<K>(&self, all: Api<K>, in_one: impl Fn(&str) -> Api<K>) -> Vec<Api<K>> {
        if self.namespaces.is_empty() {
            return vec![all];
        }
        self.namespaces.iter().map(|namespace| in_one(namespace)).collect()
    }

    pub(super) fn follow_kind<K: Watched>(
        &mut self,
        apis: Vec<Api<DeserializeGuard<K>>>,
        config: &watcher::Config,
        kind: K::DynamicType,
    ) -> Store<K>
    where
        K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
    {
        let scopes = apis.iter().map(|api| api.namespace().map(str::to_owned));
        self.unlisted.add_kind();
        let feed = Feed::new(kind, scopes, self.sinks.clone(), self.unlisted.clone());
        let store = feed.writer.as_reader();
        self.tasks.spawn(feed.run_watches(apis, config.clone()));
        store
    }
}

/// The namespace of one watch; `None` for all.
type Scope = Option<String>;

/// What the watches of one kind feed.
struct Feed<K: Watched>
where
    K::DynamicType: Eq + Hash + Clone,
{
    writer: Writer<K>,
    kind: K::DynamicType,
    listings: HashMap<Scope, Listing<ObjectRef<K>>>,
    /// Watches whose first list is not complete.
    unlisted_scopes: HashSet<Scope>,
    unlisted: Unlisted,
    sinks: Sinks,
}

impl<K: Watched> Feed<K>
where
    K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
{
    fn new(
        kind: K::DynamicType,
        scopes: impl Iterator<Item = Scope>,
        sinks: Sinks,
        unlisted: Unlisted,
    ) -> Self {
        let mut writer = Writer::new(kind.clone());
        // Ready, while it is empty: an applier of kube-runtime waits for that, and is started when
        // all is listed.
        writer.apply_watcher_event(&Event::InitDone);
        let unlisted_scopes = scopes.collect();
        sinks.metrics.create_unparsable(K::KIND);
        Self { writer, kind, listings: HashMap::new(), unlisted_scopes, unlisted, sinks }
    }

    async fn run_watches(mut self, apis: Vec<Api<DeserializeGuard<K>>>, config: watcher::Config) {
        let mut events = select_all(apis.into_iter().map(|api| {
            let scope = api.namespace().map(str::to_owned);
            let events = watcher(api, config.clone()).default_backoff();
            Box::pin(events.map(move |event| (scope.clone(), event)))
        }));
        while let Some((scope, event)) = events.next().await {
            match event {
                Ok(event) => self.take_event(&scope, event),
                Err(error) => log_interruption(K::KIND, scope.as_deref(), &error),
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

    /// One that does not parse keeps its last version that did, and stops no other.
    fn take_object(&mut self, object: DeserializeGuard<K>) {
        if let Some(mut object) = self.parse_object(object) {
            // Nothing reads them, and they can be the larger part of an object.
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

    /// What was deleted while the watch was interrupted has no event.
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
        let triggers = K::record_change(object, presence, &self.sinks);
        self.sinks.router.send_keys(&triggers);
    }

    fn parse_object(&self, guarded: DeserializeGuard<K>) -> Option<K> {
        let key = self.key_of(&guarded);
        let log = |invalid: &InvalidObject| {
            self.sinks.metrics.count_unparsable(K::KIND);
            tracing::warn!(
                kind = K::KIND,
                namespace = key.namespace,
                name = key.name,
                error = invalid.error,
                "an object does not parse; its last usable version stays in use: correct the object"
            );
        };
        guarded.0.inspect_err(log).ok()
    }
}

fn log_interruption(kind: &str, namespace: Option<&str>, error: &watcher::Error) {
    tracing::warn!(kind, namespace, error = %chain(error), "a watch was interrupted; it is opened again with backoff");
}

#[cfg(test)]
mod tests;
