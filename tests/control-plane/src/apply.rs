//! Manifests, applied as an operator does: server-side apply, whatever the kinds are.

use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Client, ResourceExt as _};
use serde::Deserialize as _;
use tokio::time::{Instant, sleep};

/// How long a CRD may take to be served.
const ESTABLISHED: Duration = Duration::from_mins(1);

/// Objects of one kind that are on their way at the same time.
const CONCURRENT: usize = 8;

/// The field manager of everything applied here.
pub const FIELD_MANAGER: &str = "control-plane";

/// Applying a manifest failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not YAML of Kubernetes objects.
    #[error("parse a manifest")]
    Parse(#[from] serde_norway::Error),
    /// An object has no `apiVersion` or `kind`.
    #[error("object {name:?} names no apiVersion and kind")]
    Untyped { name: String },
    /// The API server does not serve the kind.
    #[error("find the resource of {kind}")]
    Discover { kind: String, source: kube::Error },
    /// The API server refused an object.
    #[error("apply {kind} {name}")]
    Apply { kind: String, name: String, source: kube::Error },
    /// A CRD is there but not served.
    #[error("{name} was not established within {} s", ESTABLISHED.as_secs())]
    Established { name: String },
    /// A CRD could not be read.
    #[error("read {name}")]
    Read { name: String, source: kube::Error },
}

/// Parses a stream of YAML documents; empty ones are left out.
///
/// # Errors
/// [`Error::Parse`] when one is not an object of Kubernetes.
pub fn parse_manifest(text: &str) -> Result<Vec<DynamicObject>, Error> {
    let mut objects = Vec::new();
    for document in serde_norway::Deserializer::from_str(text) {
        if let Some(object) = Option::<DynamicObject>::deserialize(document)? {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Applies `objects` in their order and returns them as the server has them. Neighbours of one kind
/// go side by side. CRDs are waited for, so that objects of their kinds may follow.
///
/// # Errors
/// At the first object that the server does not take.
pub async fn objects(client: &Client, objects: &[DynamicObject]) -> Result<Vec<DynamicObject>, Error> {
    apply_objects(client, objects, &PatchParams::apply(FIELD_MANAGER).force()).await
}

/// As [`objects`], with `fieldValidation=Strict`: a field that the schema does not have is an error.
pub async fn objects_strictly(
    client: &Client,
    objects: &[DynamicObject],
) -> Result<Vec<DynamicObject>, Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    apply_objects(client, objects, &params).await
}

/// As [`objects_strictly`], without storing anything.
pub async fn try_objects_strictly(
    client: &Client,
    objects: &[DynamicObject],
) -> Result<Vec<DynamicObject>, Error> {
    let params =
        PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force().validation_strict() };
    apply_objects(client, objects, &params).await
}

async fn apply_objects(
    client: &Client,
    objects: &[DynamicObject],
    params: &PatchParams,
) -> Result<Vec<DynamicObject>, Error> {
    let mut kinds: HashMap<GroupVersionKind, (ApiResource, Scope)> = HashMap::new();
    let mut applied = Vec::with_capacity(objects.len());
    for group in objects.chunk_by(|a, b| a.types == b.types) {
        let kind = kind_of(&group[0])?;
        if !kinds.contains_key(&kind) {
            let (resource, capabilities) = pinned_kind(client, &kind)
                .await
                .map_err(|source| Error::Discover { kind: kind.kind.clone(), source })?;
            kinds.insert(kind.clone(), (resource, capabilities.scope));
        }
        let (resource, scope) = &kinds[&kind];
        let futures = group.iter().map(|object| one(client, resource, scope, object, params));
        let answers: Vec<DynamicObject> = stream::iter(futures).buffered(CONCURRENT).try_collect().await?;
        if kind.kind == "CustomResourceDefinition" {
            established(client, &answers).await?;
        }
        applied.extend(answers);
    }
    Ok(applied)
}

pub async fn manifest(client: &Client, text: &str) -> Result<Vec<DynamicObject>, Error> {
    objects(client, &parse_manifest(text)?).await
}

fn kind_of(object: &DynamicObject) -> Result<GroupVersionKind, Error> {
    let untyped = || Error::Untyped { name: object.name_any() };
    let types = object.types.as_ref().ok_or_else(untyped)?;
    GroupVersionKind::try_from(types).map_err(|_| untyped())
}

async fn one(
    client: &Client,
    resource: &ApiResource,
    scope: &Scope,
    object: &DynamicObject,
    params: &PatchParams,
) -> Result<DynamicObject, Error> {
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
            Api::namespaced_with(client.clone(), &namespace, resource)
        }
    };
    let name = object.name_any();
    let answer = api.patch(&name, params, &Patch::Apply(object)).await;
    answer.map_err(|source| Error::Apply { kind: resource.kind.clone(), name, source })
}

async fn established(client: &Client, definitions: &[DynamicObject]) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let deadline = Instant::now() + ESTABLISHED;
    for definition in definitions {
        let name = definition.name_any();
        loop {
            let found = api.get(&name).await.map_err(|source| Error::Read { name: name.clone(), source })?;
            if is_established(&found) {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::Established { name });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::ResourceExt;

    #[test]
    fn empty_documents_of_manifests_are_ignored() {
        let text = "---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: a}\ndata: {x: 'y'}\n";
        let objects = parse_manifest(text).unwrap();
        let names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(objects[1].data["data"]["x"], "y");
    }
}
