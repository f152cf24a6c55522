//! The writes that the Metal3 kinds share.

use std::collections::BTreeMap;

use coordinator_api::capi::Machine;
use coordinator_api::metal3::data::Metal3Data;
use coordinator_api::metal3::names;
use coordinator_api::names::label;
use coordinator_core::metal3::remediation::request_replacement as request_conditions;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::{
    Object, StoreError, is_not_found, kind_name, open_api, patch, with_finalizer, without_finalizer,
};
use crate::key::Namespace;

const SECRET: &str = "Secret";

/// Creates an object; the answer is the existing object of its name, if there is one.
///
/// # Errors
/// [`StoreError::Request`]; [`StoreError::Gone`] if the existing object was deleted meanwhile.
pub async fn create<K: Object>(
    client: &Client,
    namespace: &str,
    object: &K,
) -> Result<Option<K>, StoreError> {
    let (kind, name) = (kind_name::<K>(), object.name_any());
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = api.get_opt(&name).await.map_err(StoreError::request("get", kind, &name))?;
            found.map(Some).ok_or(StoreError::Gone { kind, name })
        }
        Err(error) => Err(StoreError::request("create", kind, &name)(error)),
    }
}

/// Deletes an object and no other of its name; the answer is the object that a finalizer keeps.
///
/// # Errors
/// Conflict if another object has the name.
pub async fn delete<K: Object>(client: &Client, object: &K) -> Result<Option<K>, StoreError> {
    let (kind, name) = (kind_name::<K>(), object.name_any());
    let api: Api<K> = open_api(client, object);
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&name, &params).await {
        Ok(deleted) => Ok(deleted.left()),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(StoreError::request("delete", kind, &name)(error)),
    }
}

/// Deletes an object that `finalizer` holds.
pub async fn delete_held<K: Object>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let left = delete(client, object).await?;
    match left.filter(|left| left.finalizers().iter().any(|held| held == finalizer)) {
        Some(left) => drop_finalizer(client, &left, finalizer).await,
        None => Ok(()),
    }
}

/// Makes sure that a Secret with rendered data exists. A Secret of this data stays as it was
/// rendered, and a Secret of former data is replaced.
pub async fn ensure_secret(
    client: &Client,
    data: &Metal3Data,
    name: &str,
    (key, content): (&str, String),
) -> Result<(), StoreError> {
    let namespace = Namespace::of(data);
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let owner = OwnerReference { controller: Some(true), ..data.owner_ref(&()).unwrap_or_default() };
    let contents = BTreeMap::from([(key.to_owned(), ByteString(content.into_bytes()))]);
    let found = api.get_opt(name).await.map_err(StoreError::request("get", SECRET, name))?;
    if let Some(mut found) = found {
        if found.type_.as_deref() != Some(names::DATA_SECRET) {
            let why = "was not rendered from a Metal3DataTemplate";
            return Err(StoreError::Taken { kind: SECRET, name: name.to_owned(), why });
        }
        if found.owner_references().iter().any(|known| known.uid == owner.uid) {
            return Ok(());
        }
        found.metadata.namespace = Some(namespace.to_string());
        let change = json!({ "metadata": { "ownerReferences": [owner] }, "data": contents });
        return patch(client, &found, "render again", change).await.map(drop);
    }
    let cluster = data.labels().get(label::CLUSTER_NAME).cloned();
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: cluster.map(|cluster| [(label::CLUSTER_NAME.to_owned(), cluster)].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some(names::DATA_SECRET.to_owned()),
        data: Some(contents),
        ..Secret::default()
    };
    let created = api.create(&PostParams::default(), &secret).await;
    created.map(drop).map_err(StoreError::request("create", SECRET, name))
}

pub async fn add_finalizer<K: Object>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<(), StoreError> {
    let finalizers = with_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, object, "add the finalizer of", change).await.map(drop)
}

/// Adds a missing finalizer and missing labels, unless the object is being deleted; tells whether
/// there was a write.
pub async fn hold_labelled<K: Object>(
    client: &Client,
    object: &K,
    finalizer: &str,
    labels: &BTreeMap<&str, &str>,
) -> Result<bool, StoreError> {
    let is_held = object.finalizers().iter().any(|held| held == finalizer);
    let is_labelled =
        labels.iter().all(|(key, value)| object.labels().get(*key).is_some_and(|known| known == value));
    if object.meta().deletion_timestamp.is_some() || is_held && is_labelled {
        return Ok(false);
    }
    let finalizers = with_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers, "labels": labels } });
    patch(client, object, "add finalizer and labels of", change).await.map(|_| true)
}

pub async fn drop_finalizer<K: Object>(
    client: &Client,
    object: &K,
    finalizer: &str,
) -> Result<(), StoreError> {
    let finalizers = without_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, object, "remove the finalizer of", change).await.map(drop)
}

/// Lets the owner of a Machine replace it, by the condition that Cluster API's own health check
/// sets. The Machine is read again, because its conditions are written as a whole.
pub async fn request_replacement(
    client: &Client,
    machine: &Machine,
    resource: &ApiResource,
    now: Timestamp,
) -> Result<(), StoreError> {
    const KIND: &str = "Machine";
    let name = machine.name_any();
    let namespace = Namespace::of(machine);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, resource);
    let found = api.get(&name).await.map_err(StoreError::request("get", KIND, &name))?;
    let known = found.data.pointer("/status/conditions").and_then(Value::as_array);
    let known = known.map_or(&[][..], Vec::as_slice);
    let Some(conditions) = request_conditions(known, &resource.version, now) else { return Ok(()) };
    let patch = json!({
        "metadata": { "resourceVersion": found.resource_version() },
        "status": { "conditions": conditions },
    });
    let written = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(drop).map_err(StoreError::request("request the replacement of", KIND, &name))
}

/// Records the value that a claim will take, with the finalizer that holds the claim until the
/// value is released.
pub async fn record_choice<K: Object>(
    client: &Client,
    claim: &K,
    notes: impl IntoIterator<Item = (&'static str, String)>,
    finalizer: &str,
) -> Result<(), StoreError> {
    let finalizers = with_finalizer(claim.finalizers(), finalizer);
    let notes: BTreeMap<_, _> = notes.into_iter().collect();
    let change = json!({ "metadata": { "annotations": notes, "finalizers": finalizers } });
    patch(client, claim, "record the choice of", change).await.map(drop)
}

/// Removes the annotations of a choice.
pub async fn drop_choice<K: Object>(
    client: &Client,
    claim: &K,
    annotations: &[&'static str],
) -> Result<(), StoreError> {
    let notes: BTreeMap<_, _> = annotations.iter().map(|key| (*key, Value::Null)).collect();
    let change = json!({ "metadata": { "annotations": notes } });
    patch(client, claim, "drop the choice of", change).await.map(drop)
}
