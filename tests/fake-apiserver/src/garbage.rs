//! The garbage collector of kube-controller-manager.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::kinds::Scope;
use crate::object::{finalizers, is_deleting, metadata_text, set_metadata};
use crate::server::Server;
use crate::store::{Key, Store};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// Whether and when the server deletes objects whose owners are gone. A real kube-apiserver alone
/// does not: kube-controller-manager does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GarbageCollection {
    /// Owner references are only data.
    #[default]
    Off,
    /// After every change, within the request that made it.
    Immediate,
    /// As the real collector: this long after an object became garbage, by tokio's clock, if it is
    /// garbage still. An object is garbage when none of its owners exists, whether they were
    /// deleted or never existed; an owner exists when an object of its kind, namespace and name
    /// has its UID. Needs a tokio runtime.
    After(Duration),
}

/// One step of the collector.
#[derive(Clone, Debug)]
pub(crate) enum Garbage {
    Delete(Key, Arc<Value>),
    RemoveFinalizer(Key, Arc<Value>, &'static str),
    RemoveReference(Key, Arc<Value>, String),
}

impl Garbage {
    fn uid(&self) -> &str {
        let (Self::Delete(_, object)
        | Self::RemoveFinalizer(_, object, _)
        | Self::RemoveReference(_, object, _)) = self;
        metadata_text(object, "uid")
    }
}

impl Server {
    /// To be called after every change, before the store is unlocked.
    pub(crate) fn publish(self: &Arc<Self>, store: &mut Store) {
        match self.garbage_collection() {
            GarbageCollection::Off => {}
            GarbageCollection::Immediate => {
                while let Some(step) = store.find_garbage().into_iter().next() {
                    store.collect_step(step);
                }
            }
            GarbageCollection::After(delay) => self.schedule_collection(store, delay),
        }
        self.revisions.send_replace(store.revision());
    }

    fn schedule_collection(self: &Arc<Self>, store: &mut Store, delay: Duration) {
        let garbage = store.find_garbage();
        let uids: BTreeSet<_> = garbage.iter().map(Garbage::uid).collect();
        store.due.retain(|uid, _| uids.contains(uid.as_str()));
        let due = Instant::now() + delay;
        let before = store.due.len();
        for uid in uids {
            store.due.entry(uid.to_owned()).or_insert(due);
        }
        if store.due.len() > before {
            let server = Arc::downgrade(self);
            tokio::spawn(async move {
                sleep_until(due).await;
                if let Some(server) = server.upgrade() {
                    server.collect_due_garbage();
                }
            });
        }
    }

    fn collect_due_garbage(self: &Arc<Self>) {
        let mut store = self.store();
        let GarbageCollection::After(_) = self.garbage_collection() else {
            return;
        };
        let now = Instant::now();
        let due: Vec<_> = store.due.extract_if(.., |_, due| *due <= now).map(|(uid, _)| uid).collect();
        for step in store.find_garbage().into_iter().filter(|step| due.iter().any(|uid| uid == step.uid())) {
            store.collect_step(step);
        }
        self.publish(&mut store);
    }
}

impl Store {
    fn collect_step(&mut self, step: Garbage) {
        match step {
            Garbage::Delete(key, stored) => {
                self.delete_stored(&key, &stored, "Background");
            }
            Garbage::RemoveFinalizer(key, stored, finalizer) => {
                let mut object = Value::clone(&stored);
                let kept: Vec<_> = finalizers(&stored).into_iter().filter(|f| *f != finalizer).collect();
                if kept.is_empty() {
                    self.remove(&key);
                } else {
                    set_metadata(&mut object, "finalizers", json!(kept));
                    self.put(key, object);
                }
            }
            Garbage::RemoveReference(key, stored, owner) => {
                let mut object = Value::clone(&stored);
                let others: Vec<_> = owner_references(&object)
                    .filter(|reference| reference["uid"] != owner)
                    .cloned()
                    .collect();
                let others = if others.is_empty() { Value::Null } else { json!(others) };
                set_metadata(&mut object, "ownerReferences", others);
                self.put(key, object);
            }
        }
    }

    /// Every step that can be done now.
    fn find_garbage(&self) -> Vec<Garbage> {
        let held_by = |finalizer: &str| -> BTreeSet<&str> {
            let objects = self.all().map(|(_, stored)| &**stored);
            let held = objects.filter(|o| is_deleting(o) && finalizers(o).contains(&finalizer));
            held.map(|object| metadata_text(object, "uid")).collect()
        };
        let (foreground, orphaning) = (held_by(FOREGROUND), held_by(ORPHAN));
        let mut garbage = Vec::new();
        let mut blocked = BTreeSet::new();
        let mut referenced = BTreeSet::new();
        for (key, stored) in self.all() {
            let mut is_owned = false;
            for reference in owner_references(stored) {
                let uid = reference["uid"].as_str().unwrap_or_default();
                referenced.insert(uid);
                if reference["blockOwnerDeletion"] == true {
                    blocked.insert(uid);
                }
                if orphaning.contains(uid) {
                    garbage.push(Garbage::RemoveReference(key.clone(), stored.clone(), uid.to_owned()));
                }
                is_owned |= orphaning.contains(uid)
                    || (self.owner_exists(reference, &key.1) && !foreground.contains(uid));
            }
            if owner_references(stored).next().is_some() && !is_owned && !is_deleting(stored) {
                garbage.push(Garbage::Delete(key.clone(), stored.clone()));
            }
        }
        for (key, stored) in self.all() {
            let uid = metadata_text(stored, "uid");
            let finalizer = if orphaning.contains(uid) && !referenced.contains(uid) {
                ORPHAN
            } else if foreground.contains(uid) && !blocked.contains(uid) {
                FOREGROUND
            } else {
                continue;
            };
            garbage.push(Garbage::RemoveFinalizer(key.clone(), stored.clone(), finalizer));
        }
        garbage
    }

    /// Also true where the collector cannot find out: it deletes nothing then.
    fn owner_exists(&self, reference: &Value, namespace: &str) -> bool {
        let part = |name: &str| reference[name].as_str().unwrap_or_default();
        let group = part("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
        let Some(kind) = self.kinds.find_by_name(group, part("kind")) else {
            return true;
        };
        let namespace = match kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced if namespace.is_empty() => return true,
            Scope::Namespaced => namespace,
        };
        let key = (kind.resource(), namespace.to_owned(), part("name").to_owned());
        self.get(&key).is_some_and(|owner| metadata_text(owner, "uid") == part("uid"))
    }
}

fn owner_references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}
