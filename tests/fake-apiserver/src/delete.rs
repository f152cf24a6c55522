//! DELETE, finalizers, and the garbage collector that a test can switch on.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::object::{finalizers, is_deleting, set, text};
use crate::read::Done;
use crate::request::Call;
use crate::store::{Key, Store};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl Store {
    pub(crate) fn delete(&mut self, call: &Call) -> Result<Done, Failure> {
        let options = options(call)?;
        let (kind, name) = (&*call.kind, &call.request.name);
        let stored = self.existing(call)?;
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let actual = text(&stored, field);
            let wanted = options["preconditions"][field].as_str().unwrap_or(actual);
            if wanted != actual {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in \
                     record ({actual})"
                );
                return Err(Failure::conflict(kind, name, &why));
            }
        }
        let uid = text(&stored, "uid").to_owned();
        if call.is_dry_run() {
            return Ok(Done::unchanged(call.present(&stored)));
        }
        let policy = options["propagationPolicy"].as_str().unwrap_or_default();
        let changed = self.delete_stored(&call.key(), &stored, policy);
        match self.get(&call.key()) {
            Some(left) => Ok(Done { code: 200, body: call.present(left), changed }),
            None => Ok(Done {
                code: 200,
                body: json!({
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": {
                        "name": name, "group": kind.group, "kind": kind.plural, "uid": uid,
                    },
                }),
                changed,
            }),
        }
    }

    pub(crate) fn delete_all(&mut self, call: &Call) -> Result<Done, Failure> {
        let options = options(call)?;
        let policy = options["propagationPolicy"].as_str().unwrap_or_default();
        let chosen = self.select(call, &call.selector()?);
        let mut list = self.read_all(call)?;
        for object in chosen.iter().filter(|_| !call.is_dry_run()) {
            let (namespace, name) = (text(object, "namespace"), text(object, "name"));
            let key = (call.kind.resource(), namespace.to_owned(), name.to_owned());
            if let Some(stored) = self.get(&key).cloned() {
                list.changed |= self.delete_stored(&key, &stored, policy);
            }
        }
        Ok(list)
    }

    /// Removes the object, or marks it when finalizers hold it. Returns whether anything changed.
    fn delete_stored(&mut self, key: &Key, stored: &Value, policy: &str) -> bool {
        let mut object = Value::clone(stored);
        let mut holding: Vec<_> = finalizers(&object).into_iter().map(str::to_owned).collect();
        if !policy.is_empty() {
            holding.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
        }
        match policy {
            "Foreground" => holding.push(FOREGROUND.into()),
            "Orphan" => holding.push(ORPHAN.into()),
            _ => {}
        }
        if holding.is_empty() {
            self.remove(key);
            return true;
        }
        set(&mut object, "finalizers", json!(holding));
        if !is_deleting(&object) {
            let generation = object["metadata"]["generation"].as_u64();
            if let Some(generation) = generation {
                set(&mut object, "generation", json!(generation + 1));
            }
            set(&mut object, "deletionTimestamp", json!(self.clock.rfc3339()));
            set(&mut object, "deletionGracePeriodSeconds", json!(0));
        }
        if object == *stored {
            return false;
        }
        self.put(key.clone(), object);
        true
    }

    /// What kube-controller-manager's garbage collector does, at once and until nothing is left
    /// to do.
    pub(crate) fn collect_garbage(&mut self) {
        while let Some(step) = self.next_garbage() {
            match step {
                Garbage::Delete(key, stored) => {
                    self.delete_stored(&key, &stored, "Background");
                }
                Garbage::Release(key, stored, finalizer) => {
                    let mut object = Value::clone(&stored);
                    let kept: Vec<_> = finalizers(&stored).into_iter().filter(|f| *f != finalizer).collect();
                    if kept.is_empty() {
                        self.remove(&key);
                    } else {
                        set(&mut object, "finalizers", json!(kept));
                        self.put(key, object);
                    }
                }
                Garbage::Orphan(key, stored, owner) => {
                    let mut object = Value::clone(&stored);
                    let others: Vec<_> =
                        references(&object).filter(|r| r["uid"] != json!(owner)).cloned().collect();
                    let others = if others.is_empty() { Value::Null } else { json!(others) };
                    set(&mut object, "ownerReferences", others);
                    self.put(key, object);
                }
            }
        }
    }

    fn next_garbage(&self) -> Option<Garbage> {
        let uids: BTreeSet<_> = self.all().map(|(_, stored)| text(&stored, "uid")).collect();
        let held_by = |finalizer: &str| -> BTreeSet<&str> {
            let objects = self.all().map(|(_, stored)| &**stored);
            let held = objects.filter(|o| is_deleting(o) && finalizers(o).contains(&finalizer));
            held.map(|object| text(object, "uid")).collect()
        };
        let (foreground, orphaning) = (held_by(FOREGROUND), held_by(ORPHAN));
        for (key, stored) in self.all() {
            let owners: Vec<_> = references(&stored).filter_map(|r| r["uid"].as_str()).collect();
            if let Some(owner) = owners.iter().find(|uid| orphaning.contains(**uid)) {
                return Some(Garbage::Orphan(key.clone(), stored.clone(), (*owner).to_owned()));
            }
            let solid = |uid: &&str| uids.contains(uid) && !foreground.contains(uid);
            if !owners.is_empty() && !owners.iter().any(solid) && !is_deleting(&stored) {
                return Some(Garbage::Delete(key.clone(), stored.clone()));
            }
        }
        let blocked = |owner: &str| {
            self.all().flat_map(|(_, stored)| references(&stored)).any(|reference| {
                reference["uid"] == json!(owner) && reference["blockOwnerDeletion"] == json!(true)
            })
        };
        self.all().find_map(|(key, stored)| {
            let uid = text(&stored, "uid");
            let finalizer = if orphaning.contains(uid) {
                ORPHAN
            } else if foreground.contains(uid) && !blocked(uid) {
                FOREGROUND
            } else {
                return None;
            };
            Some(Garbage::Release(key.clone(), stored.clone(), finalizer))
        })
    }
}

/// One step of the garbage collector.
enum Garbage {
    Delete(Key, Arc<Value>),
    Release(Key, Arc<Value>, &'static str),
    Orphan(Key, Arc<Value>, String),
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn options(call: &Call) -> Result<Value, Failure> {
    if call.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&call.body)
        .map_err(|error| Failure::bad_request(format!("cannot parse the delete options: {error}")))
}
