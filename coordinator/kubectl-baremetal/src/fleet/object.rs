//! An object of any kind, and the objects that it refers to.

use std::sync::OnceLock;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::names::HOST_OF_MACHINE;
use coordinator_api::names::{annotation, label};
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::host::HostRecord;
use coordinator_core::provider_id::ProviderId;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use super::kind::Kind;

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

impl Condition {
    fn read(value: &Value) -> Self {
        let text = |key: &str| text_of(&value[key]).to_owned();
        Self {
            kind: text("type"),
            status: text("status"),
            reason: text("reason"),
            message: join_words(&value["message"]),
            since: text_of(&value["lastTransitionTime"]).parse().ok(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) id: Id,
    pub(crate) data: DynamicObject,
    /// Parsed at the first use, because most objects are never read as an inventory.
    inventory: OnceLock<Option<MachineInventory>>,
}

impl Object {
    pub(crate) fn new(kind: Kind, data: DynamicObject) -> Self {
        let namespace = data.metadata.namespace.as_deref().unwrap_or("");
        Self { id: Id::new(kind, namespace, &data.name_any()), data, inventory: OnceLock::new() }
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

    /// A Cluster is paused by its spec, because its annotation pauses no other object.
    pub(crate) fn is_paused(&self) -> bool {
        match self.id.kind {
            Kind::Cluster => self.spec()["paused"] == true,
            _ => self.data.annotations().contains_key(annotation::PAUSED),
        }
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
        self.status()["conditions"].as_array().into_iter().flatten().map(Condition::read).collect()
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<Condition> {
        self.conditions().into_iter().find(|condition| condition.kind == kind)
    }

    pub(crate) fn inventory(&self) -> Option<&MachineInventory> {
        let is_inventory = self.id.kind == Kind::MachineInventory;
        self.inventory.get_or_init(|| is_inventory.then(|| self.data.clone().try_parse().ok())?).as_ref()
    }

    pub(crate) fn pool(&self) -> Option<MachineInventoryPool> {
        (self.id.kind == Kind::MachineInventoryPool).then(|| self.data.clone().try_parse().ok())?
    }

    pub(crate) fn host(&self) -> Option<HostRecord> {
        HostRecord::parse(self.inventory()?)
    }

    /// The registration by which a host came.
    pub(crate) fn registration(&self) -> Option<&str> {
        self.annotation(annotation::REGISTRATION)
    }

    /// The infrastructure cluster and the control plane of a Cluster, in this order.
    pub(crate) fn parts(&self) -> Vec<Id> {
        let fields = ["infrastructureRef", "controlPlaneRef"];
        fields.into_iter().filter_map(|field| self.reference(field)).collect()
    }

    pub(crate) fn infrastructure(&self) -> Option<Id> {
        self.reference("infrastructureRef")
    }

    pub(crate) fn cluster(&self) -> Option<Id> {
        let named = self.spec()["clusterName"].as_str().filter(|name| !name.is_empty());
        let name = named.or_else(|| self.label(label::CLUSTER_NAME))?;
        Some(Id::new(Kind::Cluster, &self.id.namespace, name))
    }

    /// The inventory of an infrastructure machine or of a `BareMetalHost`.
    pub(crate) fn named_host(&self) -> Option<Id> {
        let name = match self.annotation(annotation::MACHINE_INVENTORY) {
            Some(name) => name.to_owned(),
            None => ProviderId::parse(self.spec()["providerID"].as_str()?)?.host()?.to_string(),
        };
        Some(Id::new(Kind::MachineInventory, &self.id.namespace, &name))
    }

    /// The `BareMetalHost` of a `Metal3Machine`.
    pub(crate) fn bare_metal_host(&self) -> Option<Id> {
        let (namespace, name) = self.annotation(HOST_OF_MACHINE)?.split_once('/')?;
        Some(Id::new(Kind::BareMetalHost, namespace, name))
    }

    /// The pool of a `BaremetalMachine`.
    pub(crate) fn named_pool(&self) -> Option<Id> {
        let name = self.spec()["machineInventoryPoolRef"]["name"].as_str()?;
        Some(Id::new(Kind::MachineInventoryPool, &self.id.namespace, name))
    }

    /// The object of the same namespace that a field of the spec names.
    pub(super) fn reference(&self, field: &str) -> Option<Id> {
        let reference = &self.spec()[field];
        let kind = Kind::of(reference["kind"].as_str()?)?;
        let name = reference["name"].as_str().filter(|name| !name.is_empty())?;
        Some(Id::new(kind, &self.id.namespace, name))
    }
}

/// The infrastructure machine and the Machine that hold a host, in this order.
pub(crate) fn holders_of(host: &HostRecord) -> Vec<Id> {
    let Some(claim) = &host.claim else { return vec![] };
    let holder = Kind::of(&claim.kind).map(|kind| Id::new(kind, &host.namespace, &claim.baremetal_machine));
    let machine = Some(&claim.machine).filter(|name| !name.is_empty());
    let machine = machine.map(|name| Id::new(Kind::Machine, &host.namespace, name));
    holder.into_iter().chain(machine).collect()
}

/// The text of a JSON value; empty for a value of another type.
pub(crate) fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The text of a JSON value in one line.
pub(crate) fn join_words(value: &Value) -> String {
    text_of(value).split_whitespace().collect::<Vec<_>>().join(" ")
}
