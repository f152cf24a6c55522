//! The objects of one moment, and how they refer to each other.

mod kind;
mod object;

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::names::label;
use coordinator_api::pool::MachineInventoryPool;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use crate::failure::Failure;

pub(crate) use kind::{Kind, parse_object};
pub(crate) use object::{Condition, Id, Object, holders_of, join_words, text_of};

#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    objects: BTreeMap<Id, Object>,
    /// Kinds that were listed, so that an object which is not here does not exist.
    listed: BTreeSet<Kind>,
    /// The only namespace that was listed; `None` stands for all.
    namespace: Option<String>,
}

impl Fleet {
    /// A fleet without objects, of one namespace or of all.
    pub(crate) fn new(namespace: Option<&str>) -> Self {
        Self { namespace: namespace.map(str::to_owned), ..Self::default() }
    }

    /// Marks the kind as listed: all its objects are here.
    pub(crate) fn set_listed(&mut self, kind: Kind) {
        self.listed.insert(kind);
    }

    /// `true` if the object would be here if it existed.
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

    /// The object, or the failure that a command ends with.
    pub(crate) fn require(&self, id: &Id) -> Result<&Object, Failure> {
        self.get(id).ok_or_else(|| {
            let Id { kind, namespace, name } = id;
            Failure::NotFound(format!(
                "{} {name} does not exist in namespace {namespace}: name another by --namespace",
                kind.name()
            ))
        })
    }

    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let first = Id { kind, namespace: String::new(), name: String::new() };
        self.objects.range(first..).map(|(_, object)| object).take_while(move |object| object.id.kind == kind)
    }

    pub(crate) fn of_namespace<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Object> {
        self.of(kind).filter(move |object| object.id.namespace == namespace)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// The control plane and the deployments that make the Machines of a cluster.
    pub(crate) fn groups_of_cluster(&self, cluster: &Object) -> Vec<Id> {
        let deployments = self.of_namespace(Kind::MachineDeployment, &cluster.id.namespace);
        let deployments = deployments.filter(|one| one.spec()["clusterName"] == cluster.id.name.as_str());
        let control_plane = cluster.reference("controlPlaneRef");
        control_plane.into_iter().chain(deployments.map(|one| one.id.clone())).collect()
    }

    /// The Machines of a control plane, a deployment, a set, or a cluster.
    pub(crate) fn machines_of(&self, owner: &Object) -> Vec<Id> {
        let machines = self.of_namespace(Kind::Machine, &owner.id.namespace);
        machines
            .filter(|machine| is_machine_of(machine, &owner.id))
            .map(|machine| machine.id.clone())
            .collect()
    }

    /// Names of the members of a pool: the listed ones in their order, then the selected ones.
    pub(crate) fn members_of(&self, pool: &MachineInventoryPool) -> Vec<String> {
        let listed = &pool.spec.machine_inventories;
        let mut names: Vec<_> = listed.iter().map(|member| member.name.clone()).collect();
        let selector = pool.spec.selector.clone().and_then(|selector| Selector::try_from(selector).ok());
        if let Some((selector, namespace)) = selector.zip(pool.namespace()) {
            let hosts = self.of_namespace(Kind::MachineInventory, &namespace);
            let selected = hosts.filter(|host| selector.matches(host.data.labels()));
            let others = selected.filter(|host| listed.iter().all(|member| member.name != host.id.name));
            names.extend(others.map(|host| host.id.name.clone()));
        }
        names
    }
}

fn is_machine_of(machine: &Object, owner: &Id) -> bool {
    match owner.kind {
        Kind::Cluster => machine.spec()["clusterName"] == *owner.name,
        Kind::MachineDeployment => machine.label(label::DEPLOYMENT_NAME) == Some(&owner.name),
        kind => {
            let mut references = machine.data.owner_references().iter();
            references.any(|reference| reference.kind == kind.name() && reference.name == owner.name)
        }
    }
}
