//! All objects, one counter of revisions, and the history that watches read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::admission::{self, Policy};
use crate::clock::Clock;
use crate::kinds::Kinds;
use crate::object::set_metadata;

/// Resource, namespace (empty for the cluster), name.
pub(crate) type Key = (String, String, String);

/// Watches that ask for something older than this many changes must list again.
const HISTORY_LIMIT: usize = 20_000;

/// One change, as a watch without selectors would see it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) at: Instant,
    pub(crate) key: Key,
    /// After the change; `None` once deleted.
    pub(crate) now: Option<Arc<Value>>,
    /// Before it; `None` when created.
    pub(crate) before: Option<Arc<Value>>,
}

impl Change {
    fn is_of(&self, resource: &str, namespace: Option<&str>) -> bool {
        self.key.0 == resource && namespace.is_none_or(|wanted| wanted == self.key.1)
    }
}

type Watcher = Box<dyn Fn(&Key, Option<&Value>) + Send>;

/// Called with every change as it happens.
#[derive(Default)]
pub(crate) struct Observer(Option<Watcher>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observer({})", self.0.is_some())
    }
}

/// The state of the server.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) kinds: Kinds,
    pub(crate) clock: Clock,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    revision: u64,
    oldest: u64,
    serial: u64,
    /// When the garbage collector deletes, by UID.
    pub(crate) due: BTreeMap<String, Instant>,
    /// Namespaces in which nothing can be created.
    pub(crate) terminating: BTreeSet<String>,
    observer: Observer,
    pub(crate) policies: Vec<Policy>,
}

impl Store {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            kinds: Kinds::built_in(),
            clock,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            revision: 100,
            oldest: 100,
            serial: 0,
            due: BTreeMap::new(),
            terminating: BTreeSet::new(),
            observer: Observer::default(),
            policies: vec![],
        }
    }

    pub(crate) fn observe(&mut self, watcher: Watcher) {
        self.observer = Observer(Some(watcher));
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest resource version that a watch can start from.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// In the order of namespace and name, as a real list.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &'a str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        let first = (resource.to_owned(), namespace.unwrap_or_default().to_owned(), String::new());
        self.objects.range(first..).take_while(move |((of, within, _), _)| {
            of == resource && namespace.is_none_or(|namespace| namespace == within)
        })
    }

    /// As [`Store::list`], at an earlier revision that is not older than the oldest.
    pub(crate) fn snapshot(
        &self,
        revision: u64,
        resource: &str,
        namespace: Option<&str>,
    ) -> BTreeMap<Key, Arc<Value>> {
        let present = self.list(resource, namespace);
        let mut objects: BTreeMap<_, _> =
            present.map(|(key, object)| (key.clone(), object.clone())).collect();
        let later = self.history.partition_point(|change| change.revision <= revision);
        let changes = self.history.range(later..).rev();
        for change in changes.filter(|change| change.is_of(resource, namespace)) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        objects
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }

    /// Never the same twice, and the same in every run: runs can be compared.
    pub(crate) fn new_uid(&mut self) -> String {
        self.serial += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.serial)
    }

    /// Five characters of the alphabet that `generateName` uses.
    pub(crate) fn new_suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.serial += 1;
        let mut rest = self.serial;
        let mut suffix = String::new();
        for _ in 0..5 {
            let index = usize::try_from(rest % ALPHABET.len() as u64).unwrap_or_default();
            suffix.insert(0, char::from(ALPHABET[index]));
            rest /= ALPHABET.len() as u64;
        }
        suffix
    }

    /// Keeps an object under a new resource version.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        set_metadata(&mut object, "resourceVersion", json!(self.revision.to_string()));
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        self.record_change(key, Some(object.clone()), before);
        object
    }

    /// Removes an object. Watches see its last state under the new resource version.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let object = self.objects.remove(key)?;
        self.revision += 1;
        self.record_change(key.clone(), None, Some(object.clone()));
        Some(object)
    }

    fn record_change(&mut self, key: Key, now: Option<Arc<Value>>, before: Option<Arc<Value>>) {
        if let Some(watcher) = &self.observer.0 {
            watcher(&key, now.as_deref());
        }
        let decides_admission = key.0.ends_with(admission::GROUP);
        self.history.push_back(Change { revision: self.revision, at: Instant::now(), key, now, before });
        while self.history.len() > HISTORY_LIMIT {
            self.oldest = self.history.pop_front().map_or(self.oldest, |change| change.revision);
        }
        if decides_admission {
            self.compile_policies();
        }
    }

    /// The first change after `revision` of this resource, in this namespace if one is given.
    pub(crate) fn next_change(
        &self,
        revision: u64,
        resource: &str,
        namespace: Option<&str>,
    ) -> Option<&Change> {
        let start = self.history.partition_point(|change| change.revision <= revision);
        self.history.range(start..).find(|change| change.is_of(resource, namespace))
    }

    /// Drops all history: requests for an old resource version get 410.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.revision;
    }
}
