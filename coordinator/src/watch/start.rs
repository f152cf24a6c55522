//! Starts the watches of all kinds of the table that are served.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::core::{ApiResource, DeserializeGuard, DynamicResourceScope, NamespaceResourceScope};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;

use super::follow::{ChangeHandlers, Feed, Watched};
use super::listing::Unlisted;
use super::{ApiVersions, Cache, Stored};
use crate::config::{Config, Metal3};
use crate::key::{Kind, Place, for_each_kind};
use crate::lease::replica::LABEL_SELECTOR;

/// Limit of one watch request. A connection that died without an end is noticed five seconds later, as
/// soon as in clients that ping their connections.
const WATCH_SECONDS: u32 = 40;

struct Watch<'a> {
    client: &'a Client,
    config: &'a Config,
    versions: &'a ApiVersions,
    handlers: &'a ChangeHandlers,
    tasks: &'a mut JoinSet<()>,
    unlisted: Unlisted,
    stores: HashMap<Kind, Box<dyn Any + Send + Sync>>,
}

/// Starts every watch and gives the stores that they fill.
pub fn start_watches(
    client: &Client,
    config: &Config,
    versions: &ApiVersions,
    handlers: &ChangeHandlers,
    tasks: &mut JoinSet<()>,
) -> Cache {
    let (unlisted, stores) = (Unlisted::default(), HashMap::new());
    let mut watch = Watch { client, config, versions, handlers, tasks, unlisted, stores };
    macro_rules! follow {
        (Versioned, $object:ty) => {
            watch.follow_versioned::<$object>()
        };
        ($place:ident, $object:ty) => {
            watch.follow_objects::<$object>()
        };
    }
    macro_rules! follow_all {
        ($($kind:ident: $object:ty, $place:ident, $queue:ident, $($record:ident).+;)*) => {
            $(follow!($place, $object);)*
        };
    }
    for_each_kind!(follow_all);
    Cache { stores: Arc::new(watch.stores), unlisted: watch.unlisted }
}

impl Watch<'_> {
    fn follow_objects<K>(&mut self)
    where
        K: Watched + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        let open_api = |namespace: Option<&str>| match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        self.follow_kind::<K>(open_api, ());
    }

    fn follow_versioned<K>(&mut self)
    where
        K: Watched + Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let (client, kind) = (self.client.clone(), self.versions.resource_of(K::KIND).clone());
        let open_api = |namespace: Option<&str>| match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        self.follow_kind::<K>(open_api, kind.clone());
    }

    fn follow_kind<K: Watched>(
        &mut self,
        open_api: impl Fn(Option<&str>) -> Api<DeserializeGuard<K>>,
        kind: K::DynamicType,
    ) {
        if !self.is_served(K::KIND) {
            return;
        }
        let (namespaces, selection) = self.select_objects(K::KIND);
        let mut apis: Vec<_> = namespaces.iter().map(|namespace| open_api(Some(namespace))).collect();
        if apis.is_empty() {
            apis.push(open_api(None));
        }
        let is_optional = K::KIND.place() == Place::Optional;
        let unlisted = if is_optional { Unlisted::default() } else { self.unlisted.clone() };
        unlisted.add_kind();
        let scopes = apis.iter().map(|api| api.namespace().map(str::to_owned));
        let feed = Feed::<K>::new(kind.clone(), scopes, self.handlers.clone(), unlisted);
        let objects = feed.writer.as_reader();
        self.stores.insert(K::KIND, Box::new(Stored { objects, kind }));
        self.tasks.spawn(feed.run_watches(apis, selection));
    }

    fn is_served(&self, kind: Kind) -> bool {
        match kind.place() {
            Place::Everywhere | Place::Versioned | Place::Selected => true,
            Place::Metal3Hosts => self.config.metal3 != Metal3::Off,
            Place::Metal3Full => self.config.metal3 == Metal3::Full,
            Place::Optional => self.config.metal3 == Metal3::Full && self.versions.has_address_claims(),
        }
    }

    /// The watched namespaces of a kind, or none if all are watched, and the objects in them.
    fn select_objects(&self, kind: Kind) -> (BTreeSet<String>, watcher::Config) {
        let all = watcher::Config::default().timeout(WATCH_SECONDS);
        match kind {
            Kind::ConfigMap => {
                let catalog = self.config.catalog_key();
                let selection = all.fields(&format!("metadata.name={}", catalog.name));
                ([catalog.namespace.to_string()].into(), selection)
            }
            Kind::Lease => ([self.config.own_namespace.clone()].into(), all.labels(LABEL_SELECTOR)),
            _ => (self.config.namespaces.iter().cloned().collect(), all),
        }
    }
}
