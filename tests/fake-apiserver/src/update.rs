//! PUT, and the storing of every change of an existing object.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::CRDS;
use crate::managed::record_manager;
use crate::object::{
    SYSTEM, content, finalizers, immutable_change, is_deleting, metadata_text, normalise_object,
    set_metadata, validate_object, without_metadata,
};
use crate::read::Done;
use crate::request::Call;
use crate::store::Store;

impl Store {
    pub(crate) fn update_object(&mut self, call: &Call) -> Result<Done, Failure> {
        let object = call.object()?;
        let name = &call.request.name;
        if metadata_text(&object, "name").is_empty() {
            return Err(Failure::bad_request("name must be provided"));
        }
        let stored = self.get_existing(call)?;
        let (wanted, actual) = (metadata_text(&object, "uid"), metadata_text(&stored, "uid"));
        if !wanted.is_empty() && wanted != actual {
            let why =
                format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}");
            return Err(Failure::conflict(&call.kind, name, &why));
        }
        self.store_update(call, object)
    }

    pub(crate) fn get_existing(&self, call: &Call) -> Result<Arc<Value>, Failure> {
        let stored = self.get(&call.key()).cloned();
        stored.ok_or_else(|| Failure::not_found(&call.kind, &call.request.name))
    }

    /// Stores `new` in place of the present object, unless the server's rules forbid it.
    pub(crate) fn store_update(&mut self, call: &Call, mut new: Value) -> Result<Done, Failure> {
        let (kind, name) = (&*call.kind, &call.request.name);
        let old = self.get_existing(call)?;
        check_version(call, &old, &new)?;
        isolate_status(call, &old, &mut new);
        normalise_object(kind, &mut new)?;
        check_metadata(call, &old, &new)?;
        for field in SYSTEM {
            set_metadata(&mut new, field, old["metadata"][field].clone());
        }
        set_metadata(&mut new, "name", json!(name));
        set_metadata(&mut new, "namespace", old["metadata"]["namespace"].clone());
        if let Some((field, why)) = immutable_change(kind, &old, &new) {
            return Err(Failure::invalid(kind, name, field, why));
        }
        validate_object(call, name, &new, Some(&old))?;
        Self::check_policy(call, &new)?;
        self.admit(call, name, &new, Some(&old))?;
        let generation = old["metadata"]["generation"].as_u64();
        if let Some(generation) = generation
            && without_metadata(&old, kind) != without_metadata(&new, kind)
        {
            set_metadata(&mut new, "generation", json!(generation + 1));
        }
        if content(&old) == content(&new) {
            return Ok(Done::unchanged(call.present_object(&old)));
        }
        record_manager(call, &self.clock.rfc3339(), &old, &mut new);
        if call.is_dry_run() {
            return Ok(Done::unchanged(call.present_object(&new)));
        }
        if is_deleting(&old) && finalizers(&new).is_empty() {
            self.remove(&call.key());
            return Ok(Done { code: 200, body: call.present_object(&new), changed: true });
        }
        if kind.plural == CRDS && call.request.subresource.is_empty() {
            self.serve_crd(kind, &mut new)?;
        }
        let object = self.put(call.key(), new);
        Ok(Done { code: 200, body: call.present_object(&object), changed: true })
    }
}

fn check_version(call: &Call, old: &Value, new: &Value) -> Result<(), Failure> {
    let (kind, name) = (&*call.kind, &call.request.name);
    if !new.is_object() {
        return Err(Failure::bad_request("the result of the patch is not an object"));
    }
    let (wanted, actual) = (metadata_text(new, "resourceVersion"), metadata_text(old, "resourceVersion"));
    if wanted.is_empty() && !kind.unconditional_update {
        let why = "Invalid value: 0: must be specified for an update";
        return Err(Failure::invalid(kind, name, "metadata.resourceVersion", why));
    }
    if !wanted.is_empty() && wanted != actual {
        return Err(Failure::modified(kind, name));
    }
    call.check_place(new)
}

/// `/status` changes status and nothing else; every other write changes all but status.
///
/// Metadata of a write to `/status` is dropped before it is validated, so a `metadata.uid` in a
/// PATCH of `/status` guards nothing, on the real server too.
fn isolate_status(call: &Call, old: &Value, new: &mut Value) {
    if !call.kind.has_status {
        return;
    }
    let status = if call.request.subresource == "status" {
        let status = new.get("status").cloned();
        new.clone_from(old);
        status
    } else {
        old.get("status").cloned()
    };
    if let Value::Object(members) = new {
        members.remove("status");
        members.extend(status.map(|status| ("status".to_owned(), status)));
    }
}

fn check_metadata(call: &Call, old: &Value, new: &Value) -> Result<(), Failure> {
    let (kind, name) = (&*call.kind, &call.request.name);
    let uid = metadata_text(new, "uid");
    if !uid.is_empty() && uid != metadata_text(old, "uid") {
        let why = format!("Invalid value: \"{uid}\": field is immutable");
        return Err(Failure::invalid(kind, name, "metadata.uid", &why));
    }
    let known = finalizers(old);
    let added: Vec<_> = finalizers(new).into_iter().filter(|f| !known.contains(f)).collect();
    if is_deleting(old) && !added.is_empty() {
        let why = format!(
            "Forbidden: no new finalizers can be added if the object is being deleted, found new \
             finalizers {added:?}"
        );
        return Err(Failure::invalid(kind, name, "metadata.finalizers", &why));
    }
    Ok(())
}
