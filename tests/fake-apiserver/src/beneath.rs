//! Operations beneath the API: what etcd, a backup or another client would have done.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::FakeApi;
use crate::object::{metadata_text, set_metadata};
use crate::request::{Call, Form, Request, Verb};
use crate::store::Key;

/// What becomes of the owner references of an object that is put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerReferences {
    /// They stay, with the UIDs of owners that may be gone.
    Keep,
    Drop,
}

fn key_of((resource, namespace, name): (&str, &str, &str)) -> Key {
    (resource.to_owned(), namespace.to_owned(), name.to_owned())
}

impl FakeApi {
    /// An object as it is, without a request. `resource` is `plural.group`, or the plural alone
    /// in the core group; `namespace` is empty for cluster-scoped kinds.
    pub fn look(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let store = self.server.store();
        store.get(&key_of((resource, namespace, name))).map(|stored| Value::clone(stored))
    }

    /// All objects of a resource, in all namespaces, without a request.
    pub fn look_at_all(&self, resource: &str) -> Vec<Value> {
        let store = self.server.store();
        store.list(resource, None).map(|(_, stored)| Value::clone(stored)).collect()
    }

    /// Every object with its key, without a request.
    pub fn look_everywhere(&self) -> Vec<((String, String, String), Value)> {
        let store = self.server.store();
        store.all().map(|(key, stored)| (key.clone(), Value::clone(stored))).collect()
    }

    /// The Events about the objects of a kind with this name, in all namespaces, without a request.
    pub fn look_at_events(&self, kind: &str, name: &str) -> Vec<Value> {
        let mut events = self.look_at_all("events");
        events.retain(|event| {
            let about = ["regarding", "involvedObject"].map(|field| &event[field]);
            about.iter().any(|about| about["kind"] == kind && about["name"] == name)
        });
        events
    }

    /// Changes an object without a request: a new resource version and an event, but no
    /// generation, no validation and no rule. Returns whether the object was there.
    pub fn edit(&self, object: (&str, &str, &str), edit: impl FnOnce(&mut Value)) -> bool {
        let key = key_of(object);
        let mut store = self.server.store();
        let Some(stored) = store.get(&key).cloned() else {
            return false;
        };
        let mut object = Value::clone(&stored);
        edit(&mut object);
        store.put(key, object);
        self.server.publish(&mut store);
        true
    }

    /// Removes an object from the store, finalizers or not. It gets no `deletionTimestamp`;
    /// watches see its deletion. Returns the object as it was stored.
    pub fn take_out(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut store = self.server.store();
        let object = store.remove(&key_of((resource, namespace, name)))?;
        self.server.publish(&mut store);
        Some(Value::clone(&object))
    }

    /// Creates an object again, as a restore from a backup does: with a new UID, resource version
    /// and creation time, without `deletionTimestamp`, and without `status` where the kind has the
    /// subresource. Labels, annotations and finalizers stay. Returns the object as it is stored.
    ///
    /// # Errors
    /// When the kind is not served, the name is taken, or the object is not valid.
    pub fn put_back(&self, mut object: Value, owners: OwnerReferences) -> Result<Value, String> {
        let part = |name: &str| object[name].as_str().unwrap_or_default();
        let mut store = self.server.store();
        let kind = store
            .kinds
            .all()
            .find(|kind| (kind.api_version(), &*kind.name) == (part("apiVersion").to_owned(), part("kind")))
            .cloned();
        let kind = kind.ok_or_else(|| format!("{} {} is not served", part("apiVersion"), part("kind")))?;
        set_metadata(&mut object, "resourceVersion", Value::Null);
        if owners == OwnerReferences::Drop {
            set_metadata(&mut object, "ownerReferences", Value::Null);
        }
        let call = Call {
            request: Request {
                user: "restore".into(),
                verb: Verb::Create,
                group: kind.group.clone(),
                resource: kind.plural.clone(),
                namespace: metadata_text(&object, "namespace").to_owned(),
                name: String::new(),
                subresource: String::new(),
            },
            kind,
            username: "restore".into(),
            query: BTreeMap::new(),
            content_type: "application/json".into(),
            form: Form::Whole,
            body: object.to_string().into(),
        };
        let done = store.create_object(&call).map_err(|failure| failure.to_string())?;
        self.server.publish(&mut store);
        Ok(done.body)
    }

    /// Begins the deletion of a namespace: nothing is created in it any more. Returns the
    /// resources and names of what it holds, for [`FakeApi::delete_content`].
    pub fn terminate_namespace(&self, namespace: &str) -> Vec<(String, String)> {
        let mut store = self.server.store();
        store.terminating.insert(namespace.to_owned());
        let held = store.all().filter(|((_, within, _), _)| within == namespace);
        held.map(|((resource, _, name), _)| (resource.clone(), name.clone())).collect()
    }

    /// Deletes an object as the namespace controller does: finalizers hold it.
    pub fn delete_content(&self, resource: &str, namespace: &str, name: &str) {
        let key = key_of((resource, namespace, name));
        let mut store = self.server.store();
        let Some(stored) = store.get(&key).cloned() else { return };
        store.delete_stored(&key, &stored, "Background");
        self.server.publish(&mut store);
    }

    /// Drops all history: watches and lists that resume must start again (410).
    pub fn compact(&self) {
        self.server.store().compact();
    }

    /// Calls `watcher` with every change as it happens: the key (`plural.group`, namespace, name)
    /// and the object, `None` once it is gone. It must not call the server.
    pub fn observe(&self, watcher: impl Fn((&str, &str, &str), Option<&Value>) + Send + 'static) {
        let watcher = move |(resource, namespace, name): &Key, now: Option<&Value>| {
            watcher((resource, namespace, name), now);
        };
        self.server.store().observe(Box::new(watcher));
    }
}
