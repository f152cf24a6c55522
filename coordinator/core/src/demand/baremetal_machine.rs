//! The demand of a `BaremetalMachine`: pool, image catalog, kubeadm data.

use std::collections::BTreeMap;
use std::time::Duration;

use coordinator_api::capi::{Cluster, ClusterStatus, Machine};
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{Claim, MachineInventory};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{annotation, finalizer, kind, label};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    BootstrapEdit, Demand, LeftNode, MachineKey, NodeDemand, NodeLink, Want, cluster_missing, owner_mismatch,
    owner_missing, version_missing,
};
use crate::cluster;
use crate::holding::{Holder, Holding, compare_names};
use crate::host::hardware::Capacity;
use crate::ids::{HostName, Uid};
use crate::image_catalog;
use crate::node_link::{self, Expected, UUID_LABEL};
use crate::pause;
use crate::plan::Names;
use crate::pool::{Roster, Wish};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// The objects that a demand is made of.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub machine: &'a BaremetalMachine,
    /// The Machine that its owner reference names.
    pub owner: Option<&'a Machine>,
    pub cluster: Option<&'a Cluster>,
    pub roster: Option<&'a Roster>,
    pub inventory: Option<&'a MachineInventory>,
    /// Names of the inventories whose claim, statement or plan names the machine.
    pub owned_hosts: &'a [HostName],
    /// From Kubernetes versions to images.
    pub catalog: Option<&'a BTreeMap<String, String>>,
    pub now: Timestamp,
}

/// The host that the machine names.
pub fn named_host(machine: &BaremetalMachine) -> Option<HostName> {
    let chosen = machine.annotations().get(annotation::MACHINE_INVENTORY);
    let chosen = chosen.and_then(|name| HostName::parse(name));
    chosen.or_else(|| ProviderId::parse(machine.spec.provider_id.as_deref()?)?.host())
}

/// True if the machine gives its host back. A machine that is in deletion without its Machine
/// ([`Reason::OwnerMismatch`]) does not: its node runs on.
pub fn is_releasing(machine: &BaremetalMachine, owner: Option<&Machine>) -> bool {
    machine.metadata.deletion_timestamp.is_some()
        && owner_mismatch(machine.owner_references(), owner).is_none()
}

/// Reads the demand. `is_reserved` tells which hosts are reserved for other
/// machines.
pub fn read_demand(inputs: &Inputs<'_>, is_reserved: impl Fn(&str) -> bool) -> Demand {
    let machine = inputs.machine;
    let annotated = |key| machine.annotations().contains_key(key);
    let host = named_host(machine);
    let (want, hold) = match (machine.metadata.deletion_timestamp.is_some(), inputs.owner) {
        // A machine that names no host loses nothing by its deletion.
        (true, _) => (
            Want::Release,
            host.as_ref().and_then(|_| owner_mismatch(inputs.machine.owner_references(), inputs.owner)),
        ),
        (false, None) => (
            Want::Release,
            Some(Blocker::waiting_for(Type::Ready, owner_missing(machine.owner_references()))),
        ),
        (false, Some(owner)) => (Want::Node(Box::new(read_node(inputs, owner, is_reserved))), None),
    };
    Demand {
        machine: MachineKey {
            kind: kind::BAREMETAL_MACHINE,
            namespace: machine.namespace().unwrap_or_default(),
            name: machine.name_any(),
            uid: machine.uid().as_deref().and_then(Uid::parse),
        },
        host,
        owned_hosts: inputs.owned_hosts.to_vec(),
        provider_id: machine.spec.provider_id.as_deref().and_then(ProviderId::parse),
        has_finalizer: machine.finalizers().iter().any(|name| name == finalizer::BAREMETAL_MACHINE),
        retry_clean: annotated(annotation::RETRY_PLAN),
        release_without_clean: annotated(annotation::RELEASE_WITHOUT_CLEAN),
        abandon_after: inputs.roster.and_then(abandon_after),
        left_node: cluster::leftover_cluster(inputs.cluster, machine.spec.provider_id.is_some())
            .map(|cluster| LeftNode { cluster, provider_id: None, uuid: None }),
        hold: pause_blocker(inputs).or(hold),
        want,
    }
}

fn pause_blocker(inputs: &Inputs<'_>) -> Option<Blocker> {
    if pause::is_paused(inputs.machine, inputs.cluster) {
        return Some(Blocker::waiting_for(
            Type::Paused,
            Problem::of_cause(Reason::Paused, pause::PAUSED_MESSAGE),
        ));
    }
    let owner = inputs.owner?;
    // A cluster that is not found is not a cluster that is not paused.
    let Some(cluster) = inputs.cluster else {
        return Some(Blocker::waiting_for(Type::Ready, cluster_missing(&owner.spec.cluster_name)));
    };
    infrastructure_blocker(inputs.machine, cluster)
}

/// Cluster API's contract: a machine waits for the infrastructure of its Cluster.
fn infrastructure_blocker(machine: &BaremetalMachine, cluster: &Cluster) -> Option<Blocker> {
    let is_begun = machine.spec.provider_id.is_some() || machine.metadata.deletion_timestamp.is_some();
    let is_provisioned = cluster.status.as_ref().is_some_and(ClusterStatus::is_infrastructure_provisioned);
    if is_begun || is_provisioned {
        return None;
    }
    let problem = Problem::new(
        Reason::ClusterInfrastructureWaiting,
        format!("the infrastructure of Cluster {} is not provisioned yet", cluster.name_any()),
        "see the conditions of its infrastructure object",
    );
    Some(Blocker::waiting_for(Type::Ready, problem))
}

fn read_node(inputs: &Inputs<'_>, owner: &Machine, is_reserved: impl Fn(&str) -> bool) -> NodeDemand {
    let machine = inputs.machine;
    let pool = machine.spec.machine_inventory_pool_ref.name.clone();
    let wish =
        Wish { failure_domain: owner.spec.failure_domain.clone(), reuse_group: reuse_group(inputs, owner) };
    NodeDemand {
        machine: owner.name_any(),
        cluster: owner.spec.cluster_name.clone(),
        is_listed: named_host(inputs.machine).is_some_and(|host| is_offered(inputs, &host)),
        candidate: (!holds_host(inputs)).then(|| choose_candidate(inputs, &pool, &wish, is_reserved)),
        pool,
        wish,
        bootstrap_secret: owner.spec.bootstrap.data_secret_name.clone(),
        bootstrap_edit: BootstrapEdit::Kubeadm,
        meta_data_secret: None,
        network_data_secret: None,
        image: resolve_image(inputs, owner),
        registry_secret: registry_secret(inputs),
        names: inputs.inventory.and_then(|inventory| read_names(inputs, owner, inventory)),
        other_ids: vec![],
        link: inputs.inventory.map(|inventory| read_link(machine, owner, inventory)),
    }
}

/// True if the pool lists the host and is not paused.
fn is_offered(inputs: &Inputs<'_>, host: &HostName) -> bool {
    inputs.roster.is_some_and(|roster| {
        !pause::is_paused(&**roster.pool(), None) && roster.member(host.as_str()).is_some()
    })
}

/// True if both sides name each other, or the machine was given a node: then it never
/// gets another host, and a full pool is not asked for one by each of its machines.
fn holds_host(inputs: &Inputs<'_>) -> bool {
    let machine = inputs.machine;
    let holding = inputs.inventory.and_then(|inventory| {
        let host = HostName::parse(&inventory.name_any())?;
        Some(holding_of(machine, &host, inventory.claim().as_ref()))
    });
    holding == Some(Holding::Both)
        || machine.spec.provider_id.as_deref().and_then(ProviderId::parse).is_some()
}

/// Compares a machine with a host and its claim.
pub fn holding_of(machine: &BaremetalMachine, host: &HostName, claim: Option<&Claim>) -> Holding {
    let (name, named) = (machine.name_any(), named_host(machine));
    compare_names(Holder { kind: kind::BAREMETAL_MACHINE, name: &name, host: named.as_ref() }, host, claim)
}

/// The plan's label value before the live one: a restore changes UIDs.
fn read_link(machine: &BaremetalMachine, owner: &Machine, inventory: &MachineInventory) -> NodeLink {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    let carried = host.and_then(|host| host.carried.as_ref()?.node.as_ref());
    let values = [carried.map(|node| node.uuid.clone()), inventory.uid()];
    let hostname = host.map(|host| host.hostname.clone());
    let hostnames = [hostname, Some(inventory.name_any())];
    let config = owner.spec.bootstrap.config_ref.as_ref();
    let expected = Expected {
        provider_ids: machine.spec.provider_id.iter().cloned().collect(),
        label: UUID_LABEL.to_owned(),
        label_values: node_link::distinct_texts(values),
        hostnames: node_link::distinct_texts(hostnames),
        may_use_hostname: config.is_none_or(|config| config.kind.is_empty()),
    };
    let is_found = owner.status.as_ref().is_some_and(|status| status.node_ref.is_some());
    NodeLink { expected, is_found }
}

fn choose_candidate(
    inputs: &Inputs<'_>,
    pool: &str,
    wish: &Wish,
    is_reserved: impl Fn(&str) -> bool,
) -> Result<HostName, Blocker> {
    let Some(roster) = inputs.roster else {
        let problem = Problem::new(
            Reason::PoolMissing,
            format!("no MachineInventoryPool {pool} in this namespace"),
            "create it, or correct the template",
        );
        return Err(Blocker::needs_operator(Type::InventoryAllocated, problem));
    };
    if pause::is_paused(&**roster.pool(), None) {
        let problem = Problem::new(
            Reason::Paused,
            format!("MachineInventoryPool {pool} is paused and gives no host away"),
            format!("remove its annotation {}", annotation::PAUSED),
        );
        return Err(Blocker::waiting_for(Type::InventoryAllocated, problem));
    }
    let cluster = &roster.pool().spec.cluster_name;
    if inputs.owner.is_none_or(|owner| owner.spec.cluster_name != *cluster) {
        let problem = Problem::new(
            Reason::PoolOfOtherCluster,
            format!("MachineInventoryPool {pool} is for Cluster {cluster}"),
            "name another pool in the template, or correct spec.clusterName of the pool",
        );
        return Err(Blocker::failed_with(Type::InventoryAllocated, problem));
    }
    let chosen = roster.choose_member(wish, inputs.now, is_reserved).and_then(|member| {
        let name = HostName::parse(&member.name);
        name.ok_or_else(|| Problem::of_cause(Reason::PoolExhausted, "a member has no name"))
    });
    chosen.map_err(|problem| {
        let message = format!("no member of MachineInventoryPool {pool} is available: {}", problem.message);
        Blocker::needs_operator(Type::InventoryAllocated, Problem { message, ..problem })
    })
}

/// The control plane or deployment of the machine, where its pool reuses nodes.
fn reuse_group(inputs: &Inputs<'_>, owner: &Machine) -> Option<String> {
    inputs.roster.filter(|roster| roster.pool().spec.node_reuse == Some(true))?;
    let kinds = [
        ("control-plane", label::CONTROL_PLANE_NAME),
        ("deployment", label::DEPLOYMENT_NAME),
        ("set", label::SET_NAME),
    ];
    kinds.into_iter().find_map(|(kind, label)| Some(format!("{kind}/{}", owner.labels().get(label)?)))
}

fn resolve_image(inputs: &Inputs<'_>, owner: &Machine) -> Result<proto::plan::Image, Blocker> {
    let version = owner
        .spec
        .version
        .as_deref()
        .ok_or_else(|| Blocker::failed_with(Type::ImageResolved, version_missing()))?;
    let registry = inputs.cluster.and_then(|cluster| cluster.annotations().get(annotation::REGISTRY_ADDRESS));
    let empty = BTreeMap::new();
    let catalog = inputs.catalog.unwrap_or(&empty);
    let status = inputs.inventory.and_then(|inventory| inventory.status.as_ref()?.host.as_ref());
    let hardware = status.and_then(|host| host.hardware.as_ref());
    let architecture = hardware.and_then(|hardware| Capacity::of_hardware(hardware).architecture);
    let registry = registry.map(String::as_str);
    image_catalog::resolve_image(catalog, version, architecture, registry)
        .map_err(|error| Blocker::failed_with(Type::ImageResolved, error.problem()))
}

fn registry_secret(inputs: &Inputs<'_>) -> Option<String> {
    let of_machine = inputs.machine.annotations().get(annotation::REGISTRY_SECRET);
    of_machine
        .or_else(|| inputs.cluster?.annotations().get(annotation::REGISTRY_SECRET))
        .filter(|name| !name.is_empty())
        .cloned()
}

fn read_names(inputs: &Inputs<'_>, owner: &Machine, inventory: &MachineInventory) -> Option<Names> {
    let host = HostName::parse(&inventory.name_any())?;
    let entry = inputs.roster.and_then(|roster| roster.member(host.as_str()));
    Some(Names {
        hostname: entry.and_then(|entry| entry.hostname.clone()).unwrap_or_else(|| host.to_string()),
        machine: owner.name_any(),
        namespace: inventory.namespace().unwrap_or_default(),
        uuid: inventory.uid().unwrap_or_default(),
        provider_id: ProviderId::of_host(&host).to_string(),
    })
}

fn abandon_after(roster: &Roster) -> Option<Duration> {
    roster.pool().spec.abandon_unreachable_after.map(Duration::from)
}

#[cfg(test)]
mod tests;
