//! DELETE and finalizers.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::garbage::{FOREGROUND, ORPHAN};
use crate::object::{finalizers, is_deleting, metadata_text, set_metadata};
use crate::read::Done;
use crate::request::Call;
use crate::store::{Key, Store};

impl Store {
    pub(crate) fn delete_object(&mut self, call: &Call) -> Result<Done, Failure> {
        let options = parse_options(call)?;
        let (kind, name) = (&*call.kind, &call.request.name);
        let stored = self.get_existing(call)?;
        for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let actual = metadata_text(&stored, field);
            let wanted = options["preconditions"][field].as_str().unwrap_or(actual);
            if wanted != actual {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in \
                     record ({actual})"
                );
                return Err(Failure::conflict(kind, name, &why));
            }
        }
        let uid = metadata_text(&stored, "uid").to_owned();
        let policy = options["propagationPolicy"].as_str().unwrap_or_default();
        let left = self.mark_deleted(&stored, policy);
        let is_dry_run = is_dry_run(call, &options);
        let changed = !is_dry_run && self.delete_stored(&call.key(), &stored, policy);
        if changed && kind.resource() == "namespaces" {
            self.terminating.insert(name.clone());
        }
        let left = if is_dry_run { left } else { self.get(&call.key()).map(|left| Value::clone(left)) };
        match left {
            Some(left) => Ok(Done { code: 200, body: call.present_object(&left), changed }),
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

    pub(crate) fn delete_collection(&mut self, call: &Call) -> Result<Done, Failure> {
        let options = parse_options(call)?;
        let policy = options["propagationPolicy"].as_str().unwrap_or_default();
        let chosen = self.select(call, &call.selector()?);
        let mut list = self.list_objects(call)?;
        for object in chosen.iter().filter(|_| !is_dry_run(call, &options)) {
            let (namespace, name) = (metadata_text(object, "namespace"), metadata_text(object, "name"));
            let key = (call.kind.resource(), namespace.to_owned(), name.to_owned());
            if let Some(stored) = self.get(&key).cloned() {
                list.changed |= self.delete_stored(&key, &stored, policy);
            }
        }
        Ok(list)
    }

    /// Removes the object, or marks it when finalizers hold it. Returns whether anything changed.
    pub(crate) fn delete_stored(&mut self, key: &Key, stored: &Value, policy: &str) -> bool {
        match self.mark_deleted(stored, policy) {
            None => {
                self.remove(key);
                true
            }
            Some(object) if object == *stored => false,
            Some(object) => {
                self.put(key.clone(), object);
                true
            }
        }
    }

    /// The object as a delete leaves it; `None` if no finalizer holds it.
    fn mark_deleted(&self, stored: &Value, policy: &str) -> Option<Value> {
        let mut object = stored.clone();
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
            return None;
        }
        set_metadata(&mut object, "finalizers", json!(holding));
        if !is_deleting(&object) {
            let generation = object["metadata"]["generation"].as_u64();
            if let Some(generation) = generation {
                set_metadata(&mut object, "generation", json!(generation + 1));
            }
            set_metadata(&mut object, "deletionTimestamp", json!(self.clock.rfc3339()));
            set_metadata(&mut object, "deletionGracePeriodSeconds", json!(0));
        }
        Some(object)
    }
}

/// In the query, or in the options in the body.
fn is_dry_run(call: &Call, options: &Value) -> bool {
    call.is_dry_run() || options["dryRun"] == json!(["All"])
}

fn parse_options(call: &Call) -> Result<Value, Failure> {
    if call.body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&call.body)
        .map_err(|error| Failure::bad_request(format!("cannot parse the delete options: {error}")))
}
