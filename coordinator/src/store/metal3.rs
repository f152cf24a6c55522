//! Writes that the Metal3 kinds have in common.

use std::collections::BTreeMap;
use std::fmt::Debug;

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
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{StoreError, is_not_found, kind_name, patch, with_finalizer, without_finalizer};

const SECRET: &str = "Secret";

/// A kind that is written here.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// Creates an object; the existing one where there is one of its name.
///
/// # Errors
/// [`StoreError::Request`]; [`StoreError::Gone`] when that one was deleted
/// meanwhile.
pub async fn create<K: Kind>(client: &Client, namespace: &str, object: &K) -> Result<Option<K>, StoreError> {
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

/// Deletes an object, and no other of its name; what a finalizer leaves of it.
///
/// # Errors
/// Conflict when it is another object.
pub async fn delete<K: Kind>(client: &Client, object: &K) -> Result<Option<K>, StoreError> {
    let (kind, name) = (kind_name::<K>(), object.name_any());
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&name, &params).await {
        Ok(deleted) => Ok(deleted.left()),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(StoreError::request("delete", kind, &name)(error)),
    }
}

/// Deletes an object that `finalizer` holds.
pub async fn delete_held<K: Kind>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let left = delete(client, object).await?;
    match left.filter(|left| left.finalizers().iter().any(|held| held == finalizer)) {
        Some(left) => drop_finalizer(client, &left, finalizer).await,
        None => Ok(()),
    }
}

/// Makes sure that a Secret with rendered data exists. What was rendered for this
/// data stays as it is; a Secret of former data is replaced.
pub async fn ensure_secret(
    client: &Client,
    data: &Metal3Data,
    name: &str,
    (key, content): (&str, String),
) -> Result<(), StoreError> {
    let namespace = data.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let owner = OwnerReference { controller: Some(true), ..data.owner_ref(&()).unwrap_or_default() };
    let contents = BTreeMap::from([(key.to_owned(), ByteString(content.into_bytes()))]);
    let found = api.get_opt(name).await.map_err(StoreError::request("get", SECRET, name))?;
    if let Some(mut found) = found {
        if found.type_.as_deref() != Some(names::DATA_SECRET) {
            let why = "was not rendered from a Metal3DataTemplate: delete it, or name the machine otherwise";
            return Err(StoreError::Taken { kind: SECRET, name: name.to_owned(), why });
        }
        if found.owner_references().iter().any(|known| known.uid == owner.uid) {
            return Ok(());
        }
        found.metadata.namespace = Some(namespace);
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

/// Adds a finalizer.
pub async fn add_finalizer<K: Kind>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let finalizers = with_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, object, "add the finalizer of", change).await.map(drop)
}

/// Adds what is missing of a finalizer and labels, unless the object is in deletion; whether it wrote.
pub async fn hold_labelled<K: Kind>(
    client: &Client,
    object: &K,
    finalizer: &str,
    labels: &BTreeMap<&str, &str>,
) -> Result<bool, StoreError> {
    let has = |(key, value): (&&str, &&str)| object.labels().get(*key).is_some_and(|found| found == value);
    let is_held = object.finalizers().iter().any(|held| held == finalizer);
    if object.meta().deletion_timestamp.is_some() || is_held && labels.iter().all(has) {
        return Ok(false);
    }
    let finalizers = with_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers, "labels": labels } });
    patch(client, object, "add finalizer and labels of", change).await.map(|_| true)
}

/// Removes a finalizer.
pub async fn drop_finalizer<K: Kind>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let finalizers = without_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, object, "remove the finalizer of", change).await.map(drop)
}

/// Has the owner of a Machine replace it, by the condition that Cluster API's own health
/// check sets. The Machine is read again: its conditions are written as a whole.
pub async fn request_replacement(
    client: &Client,
    machine: &Machine,
    resource: &ApiResource,
    now: Timestamp,
) -> Result<(), StoreError> {
    const KIND: &str = "Machine";
    let name = machine.name_any();
    let namespace = machine.namespace().unwrap_or_default();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, resource);
    let found = api.get(&name).await.map_err(StoreError::request("get", KIND, &name))?;
    let known = found.data.pointer("/status/conditions").and_then(Value::as_array);
    let known = known.map(Vec::as_slice).unwrap_or_default();
    let Some(conditions) = request_conditions(known, &resource.version, now) else { return Ok(()) };
    let patch = json!({
        "metadata": { "resourceVersion": found.resource_version() },
        "status": { "conditions": conditions },
    });
    let written = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map(drop).map_err(StoreError::request("request the replacement of", KIND, &name))
}

/// Records on a claim what it will take, with the finalizer that holds it until
/// that is given back.
pub async fn record_choice<K: Kind>(
    client: &Client,
    claim: &K,
    (annotation, value): (&str, String),
    finalizer: &str,
) -> Result<(), StoreError> {
    let finalizers = with_finalizer(claim.finalizers(), finalizer);
    let change = json!({ "metadata": { "annotations": { annotation: value }, "finalizers": finalizers } });
    patch(client, claim, "record the choice of", change).await.map(drop)
}

/// Forgets what a claim has chosen.
pub async fn drop_choice<K: Kind>(client: &Client, claim: &K, annotation: &str) -> Result<(), StoreError> {
    let change = json!({ "metadata": { "annotations": { annotation: null } } });
    patch(client, claim, "drop the choice of", change).await.map(drop)
}
