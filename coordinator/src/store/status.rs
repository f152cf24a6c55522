//! The one status writer: no request when nothing changed.

use std::fmt::Debug;

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{StoreError, diff, kind_name};

pub(super) const WRITE: &str = "write the status of";

/// Brings the status of `object` to `status`, with its `resourceVersion` as
/// precondition. `None` when it is so already.
pub async fn write_status<K, S>(client: &Client, object: &K, status: &S) -> Result<Option<K>, StoreError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
    S: Serialize,
{
    let name = object.name_any();
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let Some(change) = change(object, status) else { return Ok(None) };
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": change });
    let written = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(Some).map_err(StoreError::request(WRITE, kind_name::<K>(), &name))
}

/// What the status of `object` lacks.
fn change(object: &impl Serialize, status: &impl Serialize) -> Option<Value> {
    let value = |object: Value| object.get("status").filter(|status| !status.is_null()).cloned();
    let old = serde_json::to_value(object).ok().and_then(value).unwrap_or_else(|| json!({}));
    diff(&old, &serde_json::to_value(status).unwrap_or_default())
}
