//! Writes that the Metal3 kinds have in common.

use std::fmt::Debug;

use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{StoreError, is_not_found, kind_name, patch, with_finalizer, without_finalizer};

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

/// Deletes an object that `finalizer` holds.
///
/// # Errors
/// Conflict when the object has changed.
pub async fn delete_held<K: Kind>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let (kind, name) = (kind_name::<K>(), object.name_any());
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let left = match api.delete(&name, &params).await {
        Ok(deleted) => deleted.left(),
        Err(error) if is_not_found(&error) => None,
        Err(error) => return Err(StoreError::request("delete", kind, &name)(error)),
    };
    match left.filter(|left| left.finalizers().iter().any(|held| held == finalizer)) {
        Some(left) => drop_finalizer(client, &left, finalizer).await,
        None => Ok(()),
    }
}

/// Adds a finalizer.
///
/// # Errors
/// Conflict when the object has changed.
pub async fn add_finalizer<K: Kind>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let finalizers = with_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, object, "add the finalizer of", change).await.map(drop)
}

/// Removes a finalizer.
///
/// # Errors
/// Conflict when the object has changed.
pub async fn drop_finalizer<K: Kind>(client: &Client, object: &K, finalizer: &str) -> Result<(), StoreError> {
    let finalizers = without_finalizer(object.finalizers(), finalizer);
    let change = json!({ "metadata": { "finalizers": finalizers } });
    patch(client, object, "remove the finalizer of", change).await.map(drop)
}

/// Records on a claim what it will take, with the finalizer that holds it until
/// that is given back.
///
/// # Errors
/// Conflict when the claim has changed.
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
///
/// # Errors
/// Conflict when the claim has changed.
pub async fn drop_choice<K: Kind>(client: &Client, claim: &K, annotation: &str) -> Result<(), StoreError> {
    let change = json!({ "metadata": { "annotations": { annotation: null } } });
    patch(client, claim, "drop the choice of", change).await.map(drop)
}
