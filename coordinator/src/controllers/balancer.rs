//! The internal endpoint of a cluster: the duty of each control-plane host.

use std::sync::Arc;

use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::conditions::ConditionUpdate;
use coordinator_api::inventory::{LoadBalancerDuty, MachineInventory};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::{kind, label};
use coordinator_api::network::ObservedNetwork;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::demand::baremetal_machine::{holding_of, is_releasing, named_host};
use coordinator_core::holding::Holding;
use coordinator_core::host::{HostRecord, facts};
use coordinator_core::load_balancer::{
    Candidate, Internal, Neighbour, decide_members, end_duty, find_holder, find_network, has_duties,
    is_other_endpoint, project_conditions,
};
use kube::ResourceExt as _;

use super::context::Context;
use crate::key::{Key, find_owner};
use crate::store::{StoreError, host};

/// A control-plane machine and the host that it claims.
struct Claimed {
    machine: Arc<BaremetalMachine>,
    inventory: Arc<MachineInventory>,
    record: HostRecord,
    network_device: Option<String>,
}

/// The state of the duties of a cluster's hosts.
#[derive(Debug, Default)]
pub(super) struct Distributed {
    /// Empty if hosts do not hold the load balancer.
    pub conditions: Vec<ConditionUpdate>,
    /// The host that holds the address.
    pub holder: Option<String>,
    /// The first host whose duty the API server refused, which keeps no other host from its duty.
    pub failed: Option<StoreError>,
}

/// Announces the duties that changed.
pub(super) async fn distribute_duties(
    context: &Context,
    cluster: &BaremetalCluster,
    owner: &Key,
) -> Result<Distributed, StoreError> {
    let balancer = cluster.spec.control_plane_load_balancer.as_ref();
    let balancer = balancer.filter(|_| !is_other_endpoint(&cluster.spec));
    let Some(internal) = balancer.and_then(Internal::parse) else { return Ok(Distributed::default()) };
    let claimed = gather_claimed(context, cluster, owner);
    let candidates: Vec<_> = claimed.iter().map(Claimed::as_candidate).collect();
    let network = find_network(internal, &candidates);
    // The network is set before the neighbours are read, so that a cluster that comes meanwhile is
    // seen.
    context.index.set_network(&Key::of(cluster), network);
    let neighbours = context.index.find_neighbours(internal, network).into_iter();
    let neighbours = neighbours.filter_map(|key| context.cache.get::<BaremetalCluster>(&key));
    let neighbours: Vec<_> = neighbours.map(|cluster| read_neighbour(context, cluster)).collect();
    let decision = decide_members(cluster, internal, &candidates, &neighbours);
    let mut failed = None;
    for member in decision.members.iter().filter(|member| member.is_new) {
        let Some(found) = claimed.iter().find(|claimed| claimed.record.name.as_str() == member.host) else {
            continue;
        };
        if let Err(error) = announce_duty(context, &found.inventory, &member.duty).await {
            failed.get_or_insert(error);
            continue;
        }
        let (host, generation) = (&member.host, member.duty.generation);
        tracing::info!(
            host,
            generation,
            position = member.duty.position,
            "duty for the load balancer announced"
        );
    }
    // A host that lost its place holds nothing.
    for (name, _) in &decision.problems {
        if decision.members.iter().any(|member| member.host == *name) {
            continue;
        }
        let found = claimed.iter().find(|claimed| claimed.record.name.as_str() == name);
        if let Some(found) = found
            && let Err(error) = dismiss_host(context, &found.inventory, &found.record).await
        {
            failed.get_or_insert(error);
        }
    }
    Ok(Distributed {
        conditions: project_conditions(&decision, &candidates),
        holder: find_holder(&decision, &candidates).map(str::to_owned),
        failed,
    })
}

fn read_neighbour(context: &Context, cluster: Arc<BaremetalCluster>) -> Neighbour {
    let owner = find_owner(&*cluster, kind::CLUSTER);
    let claimed = owner.map_or_else(Vec::new, |owner| gather_claimed(context, &cluster, &owner));
    let candidates: Vec<_> = claimed.iter().map(Claimed::as_candidate).collect();
    Neighbour { has_duties: has_duties(&candidates), cluster }
}

/// Ends the duty of a host that is no member any more; `false` if the host has none.
pub(super) async fn dismiss_host(
    context: &Context,
    inventory: &MachineInventory,
    record: &HostRecord,
) -> Result<bool, StoreError> {
    let Some(duty) = end_duty(record.load_balancer.as_ref(), carried_generation(record)) else {
        return Ok(false);
    };
    announce_duty(context, inventory, &duty).await?;
    tracing::info!(host = %record.name, generation = duty.generation, "duty for the load balancer ended");
    Ok(true)
}

/// Tells whether the host is a control-plane host: its machine is one, names the host, and does not
/// release it.
pub(super) fn is_member(context: &Context, machine: &BaremetalMachine, record: &HostRecord) -> bool {
    holding_of(machine, &record.name, record.claim.as_ref()) == Holding::Both
        && machine.labels().contains_key(label::CONTROL_PLANE)
        && !is_releasing(machine, context.find_owner(machine).as_deref())
        && !record.is_abandoned
        && record.foreign_owner().is_none()
}

async fn announce_duty(
    context: &Context,
    inventory: &MachineInventory,
    duty: &LoadBalancerDuty,
) -> Result<(), StoreError> {
    let now = context.clock.now();
    host::change_status(&context.client, inventory, now, |status| facts::record_duty(status, duty)).await
}

fn carried_generation(record: &HostRecord) -> i64 {
    record.carried.as_ref().map_or(0, |carried| carried.load_balancer_generation)
}

fn gather_claimed(context: &Context, cluster: &BaremetalCluster, owner: &Key) -> Vec<Claimed> {
    let machines = context.index.control_plane_machines(owner).into_iter();
    let machines = machines.filter_map(|key| context.cache.get::<BaremetalMachine>(&key));
    machines
        .filter_map(|machine| {
            let host = named_host(&machine)?;
            let key = Key::of(&*machine);
            let inventory = context.cache.get::<MachineInventory>(&key.in_namespace_of(host.as_str()))?;
            let record =
                HostRecord::parse(&inventory).filter(|record| is_member(context, &machine, record))?;
            let pool = context.cache.get::<MachineInventoryPool>(
                &key.in_namespace_of(&machine.spec.machine_inventory_pool_ref.name),
            );
            let member = pool.as_ref().and_then(|pool| {
                pool.spec.machine_inventories.iter().find(|member| member.name == record.name.as_str())
            });
            let device = member.and_then(|member| member.network_device.as_ref());
            let device = device.or(cluster.spec.network_device.as_ref());
            let network_device = device.filter(|device| !device.is_empty()).cloned();
            Some(Claimed { machine, inventory, record, network_device })
        })
        .collect()
}

impl Claimed {
    fn as_candidate(&self) -> Candidate<'_> {
        Candidate {
            host: self.record.name.as_str(),
            machine: (
                self.machine.metadata.name.as_deref().unwrap_or_default(),
                self.machine.metadata.creation_timestamp.as_ref().map(|time| time.0),
            ),
            network: newest_network(&self.inventory),
            network_device: self.network_device.as_deref(),
            known: self.record.load_balancer.as_ref(),
            carried_generation: carried_generation(&self.record),
            is_attached: self.record.is_attached(),
        }
    }
}

fn newest_network(inventory: &MachineInventory) -> Option<&ObservedNetwork> {
    let reported = inventory.status.as_ref().and_then(|status| status.observed_network.as_ref());
    reported.or(inventory.spec.observed_network.as_ref())
}
