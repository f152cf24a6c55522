//! The objects of one moment, and how they refer to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::{annotation, label};
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::host::HostRecord;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::{DynamicObject, Selector, SelectorExt as _};
use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Id {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Id {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// `kind/name`, as kubectl prints it.
    pub(crate) fn short(&self) -> String {
        format!("{}/{}", self.kind.name().to_lowercase(), self.name)
    }
}

/// A condition of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
}

/// An object, whatever its kind.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) id: Id,
    pub(crate) data: DynamicObject,
    /// As it was parsed first.
    inventory: OnceLock<Option<MachineInventory>>,
}

impl Object {
    pub(crate) fn new(kind: Kind, data: DynamicObject) -> Self {
        let id = Id::new(kind, &data.namespace().unwrap_or_default(), &data.name_any());
        Self { id, data, inventory: OnceLock::new() }
    }

    pub(crate) fn spec(&self) -> &Value {
        &self.data.data["spec"]
    }

    pub(crate) fn status(&self) -> &Value {
        &self.data.data["status"]
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.data.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.spec()["paused"] == true
    }

    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.data.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.data.annotations().get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.data.labels().get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let read = |value: &Value| {
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            Condition {
                kind: text("type"),
                status: text("status"),
                reason: text("reason"),
                message: text("message").split_whitespace().collect::<Vec<_>>().join(" "),
                since: value["lastTransitionTime"].as_str().and_then(|time| time.parse().ok()),
            }
        };
        self.status()["conditions"].as_array().into_iter().flatten().map(read).collect()
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<Condition> {
        self.conditions().into_iter().find(|condition| condition.kind == kind)
    }

    pub(crate) fn inventory(&self) -> Option<&MachineInventory> {
        let is_inventory = self.id.kind == Kind::MachineInventory;
        let parse = || is_inventory.then(|| self.data.clone().try_parse().ok())?;
        self.inventory.get_or_init(parse).as_ref()
    }

    pub(crate) fn pool(&self) -> Option<MachineInventoryPool> {
        (self.id.kind == Kind::MachineInventoryPool).then(|| self.data.clone().try_parse().ok())?
    }

    pub(crate) fn host(&self) -> Option<HostRecord> {
        HostRecord::parse(self.inventory()?)
    }

    /// Of a Cluster: the infrastructure cluster, then the control plane.
    pub(crate) fn parts(&self) -> Vec<Id> {
        let fields = ["infrastructureRef", "controlPlaneRef"];
        fields.into_iter().filter_map(|field| self.reference(&self.spec()[field])).collect()
    }

    pub(crate) fn infrastructure(&self) -> Option<Id> {
        self.reference(&self.spec()["infrastructureRef"])
    }

    /// The Cluster that it is of.
    pub(crate) fn cluster(&self) -> Option<Id> {
        let named = self.spec()["clusterName"].as_str().filter(|name| !name.is_empty());
        let name = named.or_else(|| self.label(label::CLUSTER_NAME))?;
        Some(Id::new(Kind::Cluster, &self.id.namespace, name))
    }

    /// The inventory of an infrastructure machine or of a `BareMetalHost`.
    pub(crate) fn named_host(&self) -> Option<Id> {
        let chosen = self.annotation(annotation::MACHINE_INVENTORY);
        let by_provider_id = || self.spec()["providerID"].as_str()?.strip_prefix("baremetal:///");
        let name = chosen.or_else(by_provider_id).filter(|name| !name.is_empty())?;
        Some(Id::new(Kind::MachineInventory, &self.id.namespace, name))
    }

    /// The `BareMetalHost` of a `Metal3Machine`.
    pub(crate) fn bare_metal_host(&self) -> Option<Id> {
        let named = self.annotation(coordinator_api::metal3::names::HOST_OF_MACHINE)?;
        let (namespace, name) = named.split_once('/')?;
        Some(Id::new(Kind::BareMetalHost, namespace, name))
    }

    /// The pool of a `BaremetalMachine`.
    pub(crate) fn named_pool(&self) -> Option<Id> {
        let name = self.spec()["machineInventoryPoolRef"]["name"].as_str()?;
        Some(Id::new(Kind::MachineInventoryPool, &self.id.namespace, name))
    }

    /// The object that a reference in the same namespace names.
    fn reference(&self, reference: &Value) -> Option<Id> {
        let kind = Kind::of(reference["kind"].as_str()?)?;
        let name = reference["name"].as_str().filter(|name| !name.is_empty())?;
        Some(Id::new(kind, &self.id.namespace, name))
    }
}

/// The infrastructure machine and the Machine that hold a host.
pub(crate) fn holders_of(host: &HostRecord) -> Vec<Id> {
    let Some(claim) = &host.claim else { return vec![] };
    let holder = Kind::of(&claim.kind).map(|kind| Id::new(kind, &host.namespace, &claim.baremetal_machine));
    let machine = Some(&claim.machine).filter(|name| !name.is_empty());
    let machine = machine.map(|name| Id::new(Kind::Machine, &host.namespace, name));
    holder.into_iter().chain(machine).collect()
}

/// The objects of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    objects: BTreeMap<Id, Object>,
    /// Kinds whose objects are all here.
    listed: BTreeSet<Kind>,
    /// The only namespace that was looked at; `None` for all.
    namespace: Option<String>,
}

impl Fleet {
    /// Without objects: of one namespace, or of all.
    pub(crate) fn new(namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(str::to_owned), ..Self::default() }
    }

    /// All objects of the kind are here.
    pub(crate) fn set_listed(&mut self, kind: Kind) {
        self.listed.insert(kind);
    }

    /// Whether the object would be here if it existed.
    pub(crate) fn covers(&self, id: &Id) -> bool {
        let is_within = self.namespace.as_ref().is_none_or(|namespace| *namespace == id.namespace);
        is_within && self.listed.contains(&id.kind)
    }

    pub(crate) fn insert(&mut self, object: Object) {
        self.objects.insert(object.id.clone(), object);
    }

    pub(crate) fn remove(&mut self, id: &Id) {
        self.objects.remove(id);
    }

    pub(crate) fn remove_kind(&mut self, kind: Kind) {
        self.objects.retain(|id, _| id.kind != kind);
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&Object> {
        self.objects.get(id)
    }

    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let first = Id { kind, namespace: String::new(), name: String::new() };
        self.objects.range(first..).map(|(_, object)| object).take_while(move |object| object.id.kind == kind)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    fn of_namespace<'a>(&'a self, kind: Kind, namespace: &'a str) -> impl Iterator<Item = &'a Object> {
        self.of(kind).filter(move |object| object.id.namespace == namespace)
    }

    /// What makes the machines of a cluster: the control plane and its deployments.
    pub(crate) fn groups_of_cluster(&self, cluster: &Object) -> Vec<Id> {
        let control_plane = cluster.reference(&cluster.spec()["controlPlaneRef"]);
        let deployments = self.of_namespace(Kind::MachineDeployment, &cluster.id.namespace);
        let of_it = deployments.filter(|one| one.spec()["clusterName"] == cluster.id.name.as_str());
        control_plane.into_iter().chain(of_it.map(|one| one.id.clone())).collect()
    }

    /// The Machines of a control plane, a deployment, a set, or a cluster.
    pub(crate) fn machines_of(&self, owner: &Object) -> Vec<Id> {
        let machines = self.of_namespace(Kind::Machine, &owner.id.namespace);
        let name = owner.id.name.as_str();
        let is_owned = |machine: &Object| match owner.id.kind {
            Kind::Cluster => machine.spec()["clusterName"] == name,
            Kind::MachineDeployment => machine.label(label::DEPLOYMENT_NAME) == Some(name),
            kind => machine
                .data
                .owner_references()
                .iter()
                .any(|owner| owner.kind == kind.name() && owner.name == name),
        };
        machines.filter(|machine| is_owned(machine)).map(|machine| machine.id.clone()).collect()
    }

    /// Names of the members of a pool: listed ones in their order, then selected ones.
    pub(crate) fn members_of(&self, pool: &MachineInventoryPool) -> Vec<String> {
        let mut names: Vec<_> =
            pool.spec.machine_inventories.iter().map(|member| member.name.clone()).collect();
        let selector = pool.spec.selector.clone().and_then(|selector| Selector::try_from(selector).ok());
        if let Some(selector) = selector {
            let namespace = pool.namespace().unwrap_or_default();
            let hosts = self.of_namespace(Kind::MachineInventory, &namespace);
            let selected = hosts.filter(|host| selector.matches(host.data.labels()));
            let others: Vec<_> = selected.map(|host| host.id.name.clone()).collect();
            names.extend(
                others
                    .into_iter()
                    .filter(|name| !pool.spec.machine_inventories.iter().any(|member| member.name == *name)),
            );
        }
        names
    }
}
