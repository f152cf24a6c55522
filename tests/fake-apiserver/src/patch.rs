//! PATCH: merge, JSON and apply.

use serde_json::{Value, json};

use crate::apply::{Application, Force, apply};
use crate::failure::Failure;
use crate::object::{set, text};
use crate::owners::{Operation, Owners};
use crate::read::Done;
use crate::request::Call;
use crate::store::Store;

impl Store {
    pub(crate) fn patch(&mut self, call: &Call) -> Result<Done, Failure> {
        let content_type = call.content_type.split(';').next().unwrap_or_default().trim();
        match content_type {
            "application/merge-patch+json" => self.merge_patch(call),
            "application/json-patch+json" => self.json_patch(call),
            "application/apply-patch+yaml" => self.apply_patch(call),
            _ => Err(Failure::unsupported_media_type()),
        }
    }

    fn merge_patch(&mut self, call: &Call) -> Result<Done, Failure> {
        let patch: Value = serde_json::from_slice(&call.body)
            .map_err(|error| Failure::bad_request(format!("cannot parse the patch: {error}")))?;
        let mut object = Value::clone(&self.existing(call)?.object);
        json_patch::merge(&mut object, &patch);
        self.change(call, object, None)
    }

    fn json_patch(&mut self, call: &Call) -> Result<Done, Failure> {
        let patch: json_patch::Patch = serde_json::from_slice(&call.body)
            .map_err(|error| Failure::bad_request(format!("cannot parse the patch: {error}")))?;
        let mut object = Value::clone(&self.existing(call)?.object);
        json_patch::patch(&mut object, &patch).map_err(|error| {
            let message = format!("the server rejected our request due to an error in our request: {error}");
            Failure::unprocessable(message)
        })?;
        self.change(call, object, None)
    }

    fn apply_patch(&mut self, call: &Call) -> Result<Done, Failure> {
        let config = applied_config(call)?;
        let shape = &call.kind.shape;
        let writer = call.writer(Operation::Apply);
        let now = self.clock.rfc3339();
        let application = Application {
            config: &config,
            writer: &writer,
            force: if call.query("force") == "true" { Force::Yes } else { Force::No },
            now: &now,
        };
        let conflict = |fields: Vec<_>| Failure::apply_conflict(&fields);
        if let Some(stored) = self.get(&call.key()).cloned() {
            let mut live = Value::clone(&stored.object);
            set(&mut live, "managedFields", Value::Null);
            let (object, owners) = apply(&live, &stored.owners, &application, shape).map_err(conflict)?;
            return self.change(call, object, Some(owners));
        }
        check_birth(call, &config)?;
        let (object, owners) =
            apply(&json!({}), &Owners::default(), &application, shape).map_err(conflict)?;
        self.insert(call, object, Some(owners))
    }
}

/// What of the body can be applied through this URL.
fn applied_config(call: &Call) -> Result<Value, Failure> {
    if call.query("fieldManager").is_empty() {
        return Err(Failure::unprocessable(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required \
             for apply patch",
        ));
    }
    let mut config = call.object()?;
    if config["metadata"]["managedFields"].as_array().is_some_and(|list| !list.is_empty()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    set(&mut config, "managedFields", Value::Null);
    if !call.kind.has_status {
        return Ok(config);
    }
    if call.request.subresource == "status" {
        let kept = |name: &str| config["metadata"][name].clone();
        let mut only = json!({ "apiVersion": config["apiVersion"], "kind": config["kind"] });
        for name in ["name", "namespace", "uid", "resourceVersion"] {
            set(&mut only, name, kept(name));
        }
        if !config["status"].is_null() {
            only["status"] = config["status"].take();
        }
        return Ok(only);
    }
    if let Value::Object(members) = &mut config {
        members.remove("status");
    }
    Ok(config)
}

/// An apply makes the object if it is not there, unless it speaks of one that was.
fn check_birth(call: &Call, config: &Value) -> Result<(), Failure> {
    if !call.request.subresource.is_empty() {
        return Err(Failure::not_found(&call.kind, &call.request.name));
    }
    let uid = text(config, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Failure::conflict(&call.kind, &call.request.name, &why))
}
