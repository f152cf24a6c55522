//! `metadata.managedFields`: which client wrote which top-level members. Server-side apply, the
//! only reader of the details on a real server, is not served.

use serde_json::{Value, json};

use crate::object::set_metadata;
use crate::request::Call;

/// Members of `metadata` that clients own.
const OWNED_METADATA: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];

/// Adds what this write changed to the entry of its manager.
pub(crate) fn record_manager(call: &Call, now: &str, old: &Value, new: &mut Value) {
    let changed = changed_members(old, new);
    if changed.is_empty() {
        return;
    }
    let manager = Some(call.query("fieldManager")).filter(|name| !name.is_empty()).unwrap_or("unknown");
    let subresource = &call.request.subresource;
    let mut entry = json!({
        "manager": manager,
        "operation": "Update",
        "apiVersion": call.kind.api_version(),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": {},
    });
    if !subresource.is_empty() {
        entry["subresource"] = json!(subresource);
    }
    let mut entries = old["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let is_same = |other: &Value| {
        ["manager", "apiVersion", "subresource"].into_iter().all(|name| other[name] == entry[name])
    };
    if let Some(index) = entries.iter().position(is_same) {
        entry["fieldsV1"] = entries.remove(index)["fieldsV1"].take();
    }
    for member in changed {
        entry["fieldsV1"][format!("f:{member}")] = json!({});
    }
    entries.push(entry);
    set_metadata(new, "managedFields", json!(entries));
}

fn changed_members(old: &Value, new: &Value) -> Vec<String> {
    let is_changed = |name: &String| match name.as_str() {
        "apiVersion" | "kind" => false,
        "metadata" => OWNED_METADATA.iter().any(|of| old["metadata"][of] != new["metadata"][of]),
        _ => old[name] != new[name],
    };
    new.as_object()
        .into_iter()
        .flat_map(|members| members.keys())
        .filter(|name| is_changed(name))
        .cloned()
        .collect()
}
