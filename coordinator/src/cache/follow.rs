//! From the events of one watch to store, index and queues.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::TryStreamExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::Sinks;
use crate::controllers::index::{Presence, Triggers};
use crate::metrics::Metrics;
use crate::telemetry::chain;

/// A kind that is watched.
pub(super) trait Watched: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    const KIND: &'static str;

    /// Records a change; what is to be reconciled.
    fn record_change(this: &Arc<Self>, presence: Presence, sinks: &Sinks) -> Triggers;

    /// Passes an event on as it is.
    fn observe_event(_: &Event<Self>, _: &Sinks) {}
}

/// Starts watches.
pub(super) struct Watch<'a> {
    pub client: &'a Client,
    pub sinks: &'a Sinks,
    pub tasks: &'a mut JoinSet<()>,
}

impl Watch<'_> {
    /// Watches a kind in every namespace; gives the store that is filled.
    pub(super) fn follow_all<K: Watched>(&mut self, kind: K::DynamicType) -> Store<K>
    where
        K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
    {
        let api = Api::all_with(self.client.clone(), &kind);
        self.follow_kind(api, watcher::Config::default(), kind)
    }

    pub(super) fn follow_kind<K: Watched>(
        &mut self,
        api: Api<DeserializeGuard<K>>,
        config: watcher::Config,
        kind: K::DynamicType,
    ) -> Store<K>
    where
        K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
    {
        let writer = Writer::new(kind.clone());
        let store = writer.as_reader();
        let feed = Feed { writer, kind, sinks: self.sinks.clone() };
        self.tasks.spawn(feed.run_watch(api, config));
        store
    }
}

/// What one watch feeds.
struct Feed<K: Watched>
where
    K::DynamicType: Eq + Hash + Clone,
{
    writer: Writer<K>,
    kind: K::DynamicType,
    sinks: Sinks,
}

impl<K: Watched> Feed<K>
where
    K::DynamicType: Eq + Hash + Clone + Debug + Send + Sync,
{
    /// For ever.
    async fn run_watch(mut self, api: Api<DeserializeGuard<K>>, config: watcher::Config) {
        let strip = |object: &mut DeserializeGuard<K>| object.managed_fields_mut().clear();
        let mut events = Box::pin(watcher(api, config).default_backoff().modify(strip));
        loop {
            match events.try_next().await {
                Ok(Some(event)) => self.take_event(event),
                Ok(None) => return,
                Err(error) => log_interruption(K::KIND, &error),
            }
        }
    }

    fn take_event(&mut self, event: Event<DeserializeGuard<K>>) {
        let store = self.writer.as_reader();
        if let Some(event) = parse_event(event, &store, &self.kind, &self.sinks.metrics) {
            self.apply_event(&event, &store);
        }
    }

    fn apply_event(&mut self, event: &Event<K>, store: &Store<K>) {
        let before = matches!(event, Event::InitDone).then(|| store.state()).unwrap_or_default();
        self.writer.apply_watcher_event(event);
        K::observe_event(event, &self.sinks);
        let reference = |object: &K| ObjectRef::from_obj_with(object, self.kind.clone());
        match event {
            Event::Init | Event::InitApply(_) => {}
            Event::Apply(object) => {
                if let Some(object) = store.get(&reference(object)) {
                    self.record_change(&object, Presence::Exists);
                }
            }
            Event::Delete(object) => self.record_change(&Arc::new(object.clone()), Presence::Deleted),
            // What was deleted while the watch was interrupted has no event.
            Event::InitDone => {
                for object in before.iter().filter(|object| store.get(&reference(object)).is_none()) {
                    self.record_change(object, Presence::Deleted);
                }
                for object in store.state() {
                    self.record_change(&object, Presence::Exists);
                }
            }
        }
    }

    fn record_change(&self, object: &Arc<K>, presence: Presence) {
        let triggers = K::record_change(object, presence, &self.sinks);
        self.sinks.router.send_keys(&triggers);
    }
}

/// An object that does not parse keeps its last version that did, and stops no
/// other.
fn parse_event<K: Watched>(
    event: Event<DeserializeGuard<K>>,
    store: &Store<K>,
    kind: &K::DynamicType,
    metrics: &Metrics,
) -> Option<Event<K>>
where
    K::DynamicType: Eq + Hash + Clone,
{
    let parse = |guarded: DeserializeGuard<K>| {
        let reference = ObjectRef::from_obj_with(&guarded, kind.clone());
        guarded.0.map_err(|invalid| {
            metrics.count_unparsable(K::KIND);
            tracing::warn!(
                kind = K::KIND,
                namespace = reference.namespace,
                name = reference.name,
                error = invalid.error,
                "an object does not parse; its last usable version stays in use: correct the object"
            );
            let key = ObjectRef::new_with(&reference.name, kind.clone());
            store.get(&match &reference.namespace {
                Some(namespace) => key.within(namespace),
                None => key,
            })
        })
    };
    match event {
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
        Event::Apply(object) => parse(object).ok().map(Event::Apply),
        Event::InitApply(object) => match parse(object) {
            Ok(object) => Some(Event::InitApply(object)),
            Err(known) => known.map(|known| Event::InitApply(Arc::unwrap_or_clone(known))),
        },
        Event::Delete(object) => match parse(object) {
            Ok(object) => Some(Event::Delete(object)),
            Err(known) => known.map(|known| Event::Delete(Arc::unwrap_or_clone(known))),
        },
    }
}

fn log_interruption(kind: &str, error: &watcher::Error) {
    tracing::warn!(kind, error = %chain(error), "a watch was interrupted; it is opened again with backoff");
}

#[cfg(test)]
mod tests;
