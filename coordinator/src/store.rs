//! The writers of our own objects and of the Secrets that belong to them, one file for each object.
//!
//! Every change of ownership or plan is one write with a `resourceVersion` precondition, because
//! leader election saves work but does not make writes safe. A change of an object that was changed
//! since it was read fails with [`Class::Conflict`].

pub mod bootstrap_secret;
pub mod host;
pub mod machine;
pub mod metal3;
pub mod plan_record;
pub mod registration;
pub mod registration_admission;
pub mod registration_token;
pub mod secret;
pub mod status;

use std::fmt::Debug;

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::key::{Kind, Namespace};

/// The number of attempts of a write against other writers of the same object.
const TRIES: usize = 5;

/// The retry after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Class {
    /// The object has changed, so that the reconcile is repeated at once.
    Conflict,
    Transient,
    /// A retry does not help until something changes.
    Terminal,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server answered with an error, or not at all.
    #[error("cannot {verb} {kind} {name}")]
    Request {
        verb: &'static str,
        kind: &'static str,
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The object does not exist, or another object has its name.
    #[error("{kind} {name} is gone")]
    Gone { kind: &'static str, name: String },
    /// Other writers changed the object at each try.
    #[error("{kind} {name} was changed by others {TRIES} times in a row")]
    Contended { kind: &'static str, name: String },
    /// The object was changed since it was read.
    #[error("{kind} {name} was changed since it was read")]
    Changed { kind: &'static str, name: String },
    /// The cluster or part that the object names cannot be reached.
    #[error("{kind} {name} cannot be used: {why}")]
    Unusable { kind: &'static str, name: String, why: String },
    /// The reconcile of the object panicked, which is a defect of the coordinator.
    #[error("the reconcile of {kind} {name} panicked: see the log of the coordinator")]
    Panicked { kind: &'static str, name: String },
    /// An object of the name exists and belongs to something else.
    #[error("{kind} {name} exists and {why}")]
    Taken { kind: &'static str, name: String, why: &'static str },
}

impl StoreError {
    pub fn class(&self) -> Class {
        match self {
            Self::Request { source, .. } => classify(source),
            Self::Gone { .. } | Self::Contended { .. } | Self::Changed { .. } => Class::Conflict,
            Self::Unusable { .. } | Self::Panicked { .. } => Class::Transient,
            Self::Taken { .. } => Class::Terminal,
        }
    }

    /// Tells whether the object has to be read again.
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Changed { .. })
    }

    /// Tells whether the status of an object of that kind could not be written.
    pub(crate) fn is_status_write(&self, of: Kind) -> bool {
        matches!(self, Self::Request { verb: status::WRITE, kind, .. } if *kind == of.name())
    }

    pub(crate) fn request(
        verb: &'static str,
        kind: &'static str,
        name: &str,
    ) -> impl FnOnce(kube::Error) -> Self + use<> {
        let name = name.to_owned();
        move |source| Self::Request { verb, kind, name, source: Box::new(source) }
    }
}

pub fn classify(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            // The object was deleted meanwhile (404), which the next reconcile sees. A subresource that
            // an older CRD lacks is such an answer too, and is shown if it lasts.
            404 | 409 => Class::Conflict,
            400 | 403 | 405 | 413 | 415 | 422 => Class::Terminal,
            _ => Class::Transient,
        },
        _ => Class::Transient,
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Tells whether the namespace is being deleted, so that nothing can be created in it.
fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden() && causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// An object of a namespace.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Serialize
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// The kind of an object, for messages.
pub fn kind_name<K>() -> &'static str {
    std::any::type_name::<K>().rsplit("::").next().unwrap_or("object")
}

/// The API of a kind in the namespace of `object`.
pub(crate) fn open_api<K>(client: &Client, object: &impl ResourceExt) -> Api<K>
where
    K: Resource<DynamicType: Default, Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &Namespace::of(object))
}

/// Merges `patch` into an object, with its `resourceVersion` as precondition.
pub(crate) async fn patch<K: Object>(
    client: &Client,
    object: &K,
    verb: &'static str,
    mut patch: Value,
) -> Result<K, StoreError> {
    patch["metadata"]["resourceVersion"] = json!(object.resource_version());
    let api: Api<K> = open_api(client, object);
    let name = object.name_any();
    let written = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    written.map_err(StoreError::request(verb, kind_name::<K>(), &name))
}

/// Asks the API server whether `object` is as it was read. A cache may be behind by any time, and no host
/// is given or taken by what its owner wanted then.
///
/// # Errors
/// [`StoreError::Changed`] if the object has changed, or is gone.
pub(crate) async fn check_unchanged<K: Object>(client: &Client, object: &K) -> Result<(), StoreError> {
    let (kind, name) = (kind_name::<K>(), object.name_any());
    let api: Api<K> = open_api(client, object);
    let found = api.get_metadata_opt(&name).await.map_err(StoreError::request("get", kind, &name))?;
    let is_same = found.is_some_and(|found| found.resource_version() == object.resource_version());
    if is_same { Ok(()) } else { Err(StoreError::Changed { kind, name }) }
}

fn with_finalizer(finalizers: &[String], name: &str) -> Vec<String> {
    let mut finalizers = without_finalizer(finalizers, name);
    finalizers.push(name.to_owned());
    finalizers
}

fn without_finalizer(finalizers: &[String], name: &str) -> Vec<String> {
    finalizers.iter().filter(|held| *held != name).cloned().collect()
}

/// The least JSON merge patch that leads from `old` to `new`.
pub fn diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = serde_json::Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let change = match old.get(key) {
            Some(old) => diff(old, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_is_the_least_merge_patch() {
        for (name, old, new, want) in [
            ("equal", json!({"a": 1}), json!({"a": 1}), None),
            ("added", json!({}), json!({"a": 1}), Some(json!({"a": 1}))),
            ("removed", json!({"a": 1, "b": 2}), json!({"b": 2}), Some(json!({"a": null}))),
            (
                "deep",
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 3, "c": 2}}),
                Some(json!({"a": {"b": 3}})),
            ),
            ("lists whole", json!({"a": [1]}), json!({"a": [1, 2]}), Some(json!({"a": [1, 2]}))),
        ] {
            assert_eq!(diff(&old, &new), want, "{name}");
        }
    }
}
