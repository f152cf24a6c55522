//! The one writer of statuses. It sends no request if nothing changed.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Object, StoreError, diff, kind_name, open_api};

pub(super) const WRITE: &str = "write the status of";

/// Writes `status` to `object` with its `resourceVersion` as precondition; `None` if the stored
/// status is equal.
pub async fn write_status<K: Object>(
    client: &Client,
    object: &K,
    status: &impl Serialize,
) -> Result<Option<K>, StoreError> {
    let name = object.name_any();
    let api: Api<K> = open_api(client, object);
    let Some(change) = change(object, status) else { return Ok(None) };
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": change });
    let written = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(Some).map_err(StoreError::request(WRITE, kind_name::<K>(), &name))
}

/// The difference between the stored status of `object` and `status`.
fn change(object: &impl Serialize, status: &impl Serialize) -> Option<Value> {
    let object = serde_json::to_value(object).ok();
    let old = object.and_then(|object| object.get("status").cloned()).filter(|status| !status.is_null());
    diff(&old.unwrap_or_else(|| json!({})), &json!(status))
}
