//! Objects taken out of a cluster and created again, as a backup tool does it:
//! without status, with new UIDs.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use control_plane::etcd::Key;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::requests::retry;

/// Group, version and kind.
pub type Kind = (&'static str, &'static str, &'static str);

/// Secrets, where plans, tokens and bootstrap data are.
pub const SECRETS: Kind = ("", "v1", "Secret");
/// Every kind of a cluster of bare metal hosts, Cluster API's among them.
pub const TREE: [Kind; 11] = [
    ("elemental.cattle.io", "v1beta1", "MachineRegistration"),
    ("elemental.cattle.io", "v1beta1", "SeedImage"),
    ("elemental.cattle.io", "v1beta1", "MachineInventory"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "MachineInventoryPool"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "BaremetalCluster"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "BaremetalMachineTemplate"),
    ("infrastructure.cluster.x-k8s.io", "v1beta1", "BaremetalMachine"),
    ("cluster.x-k8s.io", "v1beta2", "Cluster"),
    ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
    ("cluster.x-k8s.io", "v1beta2", "MachineSet"),
    ("cluster.x-k8s.io", "v1beta2", "Machine"),
];

/// What becomes of owner references, whose UIDs are not those of the new
/// objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    Dropped,
    /// Kept with the old UIDs.
    Stale,
    /// Given the new UIDs; owners are created first.
    Corrected,
}

/// Objects of one namespace.
#[derive(Clone, Debug)]
pub struct Backup {
    objects: Vec<(ApiResource, DynamicObject)>,
}

impl Backup {
    /// Reads all objects of `kinds` in `namespace`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn take(client: &Client, namespace: &str, kinds: &[Kind]) -> anyhow::Result<Self> {
        let mut objects = vec![];
        for (group, version, kind) in kinds {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            let listed = retry("read objects", async || api.list(&ListParams::default()).await).await?;
            objects.extend(listed.items.into_iter().map(|object| (resource.clone(), object)));
        }
        Ok(Self { objects })
    }

    /// Keeps the objects for which `keep` holds.
    pub fn filtered(&self, keep: impl Fn(&str, &DynamicObject) -> bool) -> Self {
        let objects = self.objects.iter().filter(|(resource, object)| keep(&resource.kind, object));
        Self { objects: objects.cloned().collect() }
    }

    /// The same objects in an order that follows from `seed`.
    pub fn shuffled(mut self, seed: u64) -> Self {
        fastrand::Rng::with_seed(seed).shuffle(&mut self.objects);
        self
    }

    /// Changes all objects of `kind`.
    pub fn edit(&mut self, kind: &str, change: impl Fn(&mut DynamicObject)) {
        for (_, object) in self.objects.iter_mut().filter(|(resource, _)| resource.kind == kind) {
            change(object);
        }
    }

    /// Kinds and names, in order.
    pub fn names(&self) -> Vec<String> {
        self.objects
            .iter()
            .map(|(resource, object)| format!("{}/{}", resource.kind, object.name_any()))
            .collect()
    }

    /// Where etcd stores the objects.
    pub fn keys(&self) -> Vec<Key> {
        let key = |(resource, object): &(ApiResource, DynamicObject)| {
            let place = match resource.group.as_str() {
                // Built-in kinds are stored without their group.
                "" | "coordination.k8s.io" => resource.plural.clone(),
                group => format!("{group}/{}", resource.plural),
            };
            Key::new(&place, &object.namespace().unwrap_or_default(), &object.name_any())
        };
        self.objects.iter().map(key).collect()
    }

    /// Creates the objects, one after the other. One that exists already is
    /// left as it is; the answer is which.
    ///
    /// # Errors
    /// When the API server refuses, and owners that refer to each other.
    pub async fn restore(&self, client: &Client, owners: Owners) -> anyhow::Result<Vec<String>> {
        let mut existing = vec![];
        let mut uids = HashMap::new();
        let mut pending: Vec<_> = self.objects.iter().collect();
        let old: Vec<_> = self.objects.iter().filter_map(|(_, object)| object.uid()).collect();
        while !pending.is_empty() {
            let is_ready = |object: &DynamicObject| {
                owners != Owners::Corrected
                    || object
                        .owner_references()
                        .iter()
                        .all(|owner| uids.contains_key(&owner.uid) || !old.contains(&owner.uid))
            };
            let position = pending.iter().position(|(_, object)| is_ready(object));
            let (resource, object) = pending.remove(position.context("objects own each other in a circle")?);
            let created = create(client, resource, &strip(object, owners, &uids)).await?;
            match (created, object.uid()) {
                (Some(uid), Some(old)) => drop(uids.insert(old, uid)),
                _ => existing.push(format!("{}/{}", resource.kind, object.name_any())),
            }
        }
        Ok(existing)
    }

    /// Writes the status of `kind` as it was.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn restore_status(&self, client: &Client, kind: &str) -> anyhow::Result<()> {
        for (resource, object) in self.objects.iter().filter(|(resource, _)| resource.kind == kind) {
            let api = namespaced(client, resource, object);
            let patch = Patch::Merge(json!({ "status": object.data["status"] }));
            let name = object.name_any();
            retry("write a status", async || api.patch_status(&name, &PatchParams::default(), &patch).await)
                .await?;
        }
        Ok(())
    }
}

fn namespaced(client: &Client, resource: &ApiResource, object: &DynamicObject) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &object.namespace().unwrap_or_default(), resource)
}

/// `None` when it exists.
async fn create(
    client: &Client,
    resource: &ApiResource,
    object: &DynamicObject,
) -> anyhow::Result<Option<String>> {
    let api = namespaced(client, resource, object);
    let attempt = format!("create {} {}", resource.kind, object.name_any());
    let created = retry(&attempt, async || match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(None),
        answer => answer.map(Some),
    });
    let Some(created) = created.await? else { return Ok(None) };
    let uid = created.uid().context("an object without UID")?;
    ensure!(Some(&uid) != object.uid().as_ref(), "{attempt}: the UID is the old one");
    Ok(Some(uid))
}

/// Without status and without what the API server sets.
fn strip(object: &DynamicObject, owners: Owners, uids: &HashMap<String, String>) -> DynamicObject {
    let mut stripped = object.clone();
    if let Some(data) = stripped.data.as_object_mut() {
        data.remove("status");
    }
    let old = std::mem::take(&mut stripped.metadata);
    stripped.metadata.name = old.name;
    stripped.metadata.namespace = old.namespace;
    stripped.metadata.labels = old.labels;
    stripped.metadata.annotations = old.annotations;
    stripped.metadata.finalizers = old.finalizers;
    stripped.metadata.owner_references = old.owner_references.filter(|_| owners != Owners::Dropped);
    if owners == Owners::Corrected {
        for owner in stripped.metadata.owner_references.iter_mut().flatten() {
            if let Some(uid) = uids.get(&owner.uid) {
                owner.uid.clone_from(uid);
            }
        }
    }
    stripped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup() -> Backup {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("g", "v1", "Thing"));
        let object = |name: &str| {
            let object = json!({
                "apiVersion": "g/v1", "kind": "Thing", "spec": { "a": 1 }, "status": { "b": 2 },
                "metadata": {
                    "name": name, "namespace": "n", "uid": format!("uid-of-{name}"), "resourceVersion": "7",
                    "finalizers": ["f"], "annotations": { "k": "v" },
                    "ownerReferences": [{ "apiVersion": "g/v1", "kind": "Thing", "name": "o", "uid": "old" }],
                },
            });
            (resource.clone(), serde_json::from_value(object).unwrap())
        };
        Backup { objects: ["a", "b", "c", "d", "e"].map(object).to_vec() }
    }

    #[test]
    fn restored_objects_lack_status_and_server_fields() {
        let backup = backup();
        let uids = HashMap::from([("old".to_owned(), "new".to_owned())]);
        for (owners, want) in
            [(Owners::Dropped, None), (Owners::Stale, Some("old")), (Owners::Corrected, Some("new"))]
        {
            let object = strip(&backup.objects[0].1, owners, &uids);
            let owner = object.owner_references().first().map(|owner| owner.uid.as_str());
            assert_eq!(owner, want, "{owners:?}");
            assert!(object.data.get("status").is_none() && object.data["spec"]["a"] == 1);
            let metadata = object.metadata;
            assert_eq!((metadata.uid, metadata.resource_version), (None, None));
            assert_eq!(metadata.finalizers, Some(vec!["f".to_owned()]));
        }
    }

    #[test]
    fn orders_follow_from_seeds() {
        let order = |seed| backup().shuffled(seed).names();
        assert_eq!(order(1), order(1));
        assert!((1..5).any(|seed| order(seed) != order(0)));
        assert_eq!(backup().keys().len(), 5);
    }
}
