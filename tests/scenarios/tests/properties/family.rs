//! Machines of both families, as one story needs them.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::names::annotation;
use kube::ResourceExt as _;
use scenarios::{NAMESPACE, World};
use serde_json::{Value, json};

use super::events::{Family, HOSTS};

impl Family {
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Baremetal => "BaremetalMachine",
            Self::Metal3 => "Metal3Machine",
        }
    }

    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Baremetal => "baremetalmachines.infrastructure.cluster.x-k8s.io",
            Self::Metal3 => "metal3machines.infrastructure.cluster.x-k8s.io",
        }
    }

    /// Kind and resource of the objects that claim hosts.
    pub(super) fn claimant(self) -> (&'static str, &'static str) {
        match self {
            Self::Baremetal => (self.kind(), self.resource()),
            Self::Metal3 => ("BareMetalHost", "baremetalhosts.metal3.io"),
        }
    }

    /// A world with free hosts, and all else that machines need.
    pub(super) async fn begin(self) -> World {
        let mut world = match self {
            Self::Baremetal => World::new().await,
            Self::Metal3 => World::with_metal3().await,
        };
        world.allow_unmet_faults();
        world.allows_custom_plans = true;
        match self {
            Self::Baremetal => world.create_prerequisites(&HOSTS).await,
            Self::Metal3 => {
                world.register_bare_metal_hosts(&HOSTS).await;
                world.apply_metal3_cluster("c1").await;
                world.apply_catalog().await;
                apply_data(&world).await;
            }
        }
        apply_operators_plan(&world).await;
        world
    }

    pub(super) async fn apply_machine(self, world: &World, name: &str, version: &str) {
        match self {
            Self::Baremetal => world.apply_machine_of(name, "pool", version).await,
            Self::Metal3 => {
                let image = json!({ "url": format!("oci://registry.example/os:{version}") });
                let spec = json!({ "image": image, "dataTemplate": { "name": "workers" } });
                world.apply_metal3_machine(name, json!({ "spec": spec })).await;
            }
        }
    }

    pub(super) async fn delete_machine(self, world: &World, name: &str) {
        match self {
            Self::Baremetal => world.delete_machine(name).await,
            Self::Metal3 => world.begin_metal3_deletion(name).await,
        }
    }

    pub(super) async fn wait_running(self, world: &World, name: &str) {
        match self {
            Self::Baremetal => world.wait_running(name).await,
            Self::Metal3 => world.wait_metal3_ready(name).await,
        }
    }

    pub(super) fn is_free(self, world: &World, host: &str) -> bool {
        match self {
            Self::Baremetal => world.is_available(host),
            Self::Metal3 => world.host_state(&format!("bmh-{host}")) == "available",
        }
    }

    /// The inventory or the `BareMetalHost` of each host whose machine was removed without its
    /// finalizer. Nothing frees such a host but an operator.
    pub(super) fn list_lost_hosts(self, world: &World) -> Vec<String> {
        match self {
            Self::Baremetal => {
                HOSTS.into_iter().filter(|host| is_orphan(world, host)).map(str::to_owned).collect()
            }
            Self::Metal3 => {
                let names = HOSTS.map(|host| format!("bmh-{host}"));
                names.into_iter().filter(|name| self.is_consumer_lost(world, name)).collect()
            }
        }
    }

    fn is_consumer_lost(self, world: &World, host: &str) -> bool {
        let host = world.get_object("baremetalhosts.metal3.io", host);
        let consumer = host.map(|host| host["spec"]["consumerRef"].clone()).unwrap_or_default();
        consumer["kind"] == self.kind()
            && consumer["name"].as_str().is_some_and(|name| world.get_object(self.resource(), name).is_none())
    }

    /// Frees a lost host as the documents say: the clean of its owner, or no consumer and no image.
    pub(super) async fn free_lost_host(self, world: &World, name: &str) {
        match self {
            Self::Baremetal => {
                let now = world.now().to_string();
                annotate_host(world, name, annotation::ABANDONED, &now).await;
            }
            Self::Metal3 => {
                let freed = json!({ "spec": { "consumerRef": null, "image": null, "userData": null } });
                world.patch("BareMetalHost", name, freed).await;
            }
        }
    }

    /// An object that an operator may edit, by its number.
    pub(super) fn object(self, number: usize, machines: &[Option<String>]) -> Option<(&'static str, String)> {
        let hosts = HOSTS.map(|host| ("machineinventories.elemental.cattle.io", host.to_owned())).to_vec();
        let others = match self {
            Self::Baremetal => vec![
                ("machineinventorypools.infrastructure.cluster.x-k8s.io", "pool".to_owned()),
                ("baremetalclusters.infrastructure.cluster.x-k8s.io", "c1".to_owned()),
            ],
            Self::Metal3 => vec![
                ("metal3clusters.infrastructure.cluster.x-k8s.io", "c1".to_owned()),
                ("metal3datatemplates.infrastructure.cluster.x-k8s.io", "workers".to_owned()),
                ("ippools.ipam.metal3.io", "net".to_owned()),
                ("baremetalhosts.metal3.io", "bmh-host-1".to_owned()),
                ("baremetalhosts.metal3.io", "bmh-host-2".to_owned()),
            ],
        };
        let machines = machines.iter().flatten().map(|name| (self.resource(), name.clone()));
        hosts.into_iter().chain(others).chain(machines).nth(number)
    }
}

/// The inventory says that the machine of its claim is missing, and nobody gave the host up.
fn is_orphan(world: &World, host: &str) -> bool {
    let is_given_up = world
        .inventory(host)
        .is_some_and(|inventory| inventory.annotations().contains_key(annotation::ABANDONED));
    !is_given_up
        && world
            .host_condition(host, Type::Ready)
            .is_some_and(|ready| ready.reason == <&str>::from(Reason::OwnerMissing))
}

/// Indexes and addresses for machines of Metal3.
async fn apply_data(world: &World) {
    let pool = json!({ "namePrefix": "net", "pools": [{ "subnet": "10.66.0.0/28" }] });
    world.create("IPPool", "net", json!({ "spec": pool })).await;
    let meta_data = json!({
        "indexes": [{ "key": "index" }],
        "ipAddressesFromIPPool": [{ "key": "ip", "name": "net" }],
    });
    let spec = json!({ "clusterName": "c1", "metaData": meta_data });
    world.create("Metal3DataTemplate", "workers", json!({ "spec": spec })).await;
}

async fn apply_operators_plan(world: &World) {
    let plan = json!({ "instructions": [{ "name": "firmware", "command": "true" }] });
    let secret = json!({
        "type": "elemental.cattle.io/plan",
        "metadata": { "annotations": { annotation::PLAN_TYPE: "custom" } },
        "stringData": { "plan": plan.to_string() },
    });
    world.create("Secret", "firmware", secret).await;
}

/// An operator annotates the inventory of a host, which may be deleted already.
pub(super) async fn annotate_host(world: &World, host: &str, key: &str, value: &str) {
    let patch = json!({ "metadata": { "annotations": { key: value } } });
    let _ = world.try_patch("MachineInventory", host, patch).await;
}

/// Changes an object that is not in deletion.
pub(super) fn edit_object(world: &World, (resource, name): (&str, &str), edit: impl FnOnce(&mut Value)) {
    world.fake.edit((resource, NAMESPACE, name), |object| {
        if object["metadata"]["deletionTimestamp"].is_null() {
            edit(object);
        }
    });
}

/// An annotation of ours that an operator deleted or changed.
pub(super) struct EditedAnnotation {
    place: (&'static str, String),
    uid: Value,
    key: String,
    before: Value,
    after: Value,
}

/// Replaces an annotation of ours, by its number; null removes it.
pub(super) fn edit_annotation(
    (resource, name): (&'static str, &str),
    object: &mut Value,
    number: usize,
    after: &Value,
) -> Option<EditedAnnotation> {
    let uid = object["metadata"]["uid"].clone();
    let annotations = object["metadata"]["annotations"].as_object_mut()?;
    let is_ours = |key: &&String| key.starts_with("baremetal.");
    let ours: Vec<_> = annotations.keys().filter(is_ours).cloned().collect();
    let key = ours.get(number.checked_rem(ours.len())?)?.clone();
    let before = annotations[&key].clone();
    set_annotation(annotations, &key, after);
    Some(EditedAnnotation { place: (resource, name.to_owned()), uid, key, before, after: after.clone() })
}

fn set_annotation(annotations: &mut serde_json::Map<String, Value>, key: &str, value: &Value) {
    if value.is_null() {
        annotations.remove(key);
    } else {
        annotations.insert(key.to_owned(), value.clone());
    }
}

impl EditedAnnotation {
    /// Puts the annotation back, unless it was written meanwhile.
    pub(super) fn undo(self, world: &World) {
        let Self { place: (resource, name), uid, key, before, after } = self;
        edit_object(world, (resource, &name), |object| {
            let is_same = object["metadata"]["uid"] == uid;
            // An object whose last annotation was removed has none.
            let annotations = &mut object["metadata"]["annotations"];
            if !is_same || annotations[&key] != after {
                return;
            }
            if annotations.is_null() {
                *annotations = json!({});
            }
            if let Some(annotations) = annotations.as_object_mut() {
                set_annotation(annotations, &key, &before);
            }
        });
    }
}
