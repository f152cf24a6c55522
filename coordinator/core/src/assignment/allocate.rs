//! From no host to a claim, and a claim that comes back.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::Claim;
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;

use super::{Effect, Host, Outcome, Situation, State};
use crate::demand::{MachineKey, NodeDemand};
use crate::host::{HostRecord, owner_text};
use crate::ids::HostName;
use crate::pool::{self, Availability, Exclusion};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// The machine holds no host.
pub(super) fn allocate_host(situation: &Situation<'_>, node: &NodeDemand) -> Outcome {
    let demand = situation.demand;
    let pending = State::new(Phase::Pending, None);
    if let Some(provider_id) = &demand.provider_id {
        return reclaim_host(situation, node, provider_id);
    }
    let others: Vec<_> =
        demand.owned_hosts.iter().filter(|host| Some(*host) != demand.host.as_ref()).collect();
    match (&demand.host, &others[..]) {
        (_, []) => {}
        (None, [host]) => return Outcome::from_effect(Effect::Choose { host: (*host).clone() }),
        (named, others) => return hold_second_host(named.as_ref(), others),
    }
    if let Some(named) = &demand.host {
        let Some(host) = situation.host else {
            let problem = Problem::new(
                Reason::InventoryMissing,
                format!("MachineInventory {named} does not exist"),
                format!(
                    "restore it, or remove the annotation {} to choose another host",
                    annotation::MACHINE_INVENTORY
                ),
            );
            return Outcome::from_blocker(
                pending,
                Blocker::needs_operator(Type::InventoryAllocated, problem),
            );
        };
        if is_owned_without_claim(&demand.machine, host.record) {
            return Outcome::from_effect(restore_claim(&demand.machine, node, host.record));
        }
        match pool::host_availability(&node.pool, Some(host.record)) {
            Availability::Available if demand.has_finalizer && node.is_listed => {
                return Outcome::from_effect(claim_effect(
                    &demand.machine,
                    node,
                    host.record.newest_generation().0,
                ));
            }
            Availability::Unavailable(Exclusion::CarriesNode | Exclusion::NotAttached)
                if host.record.claim.is_none() && !may_choose_again(host.record) =>
            {
                return await_owned_host(named);
            }
            _ if demand.owned_hosts.contains(named) => return await_owned_host(named),
            _ => {}
        }
    }
    match &node.candidate {
        Some(Ok(host)) => Outcome::from_effect(Effect::Choose { host: host.clone() }),
        Some(Err(blocker)) => Outcome::from_blocker(pending, blocker.clone()),
        None => Outcome::without_effect(),
    }
}

/// The host may carry the node of the machine, so that the machine gets no other one.
fn await_owned_host(host: &HostName) -> Outcome {
    let problem = Problem::new(
        Reason::HostCarriesNode,
        format!("MachineInventory {host} has no claim of this machine and may carry its node"),
        "wait until its host attaches, or restore its owner annotations; where the host is lost, delete the Machine",
    );
    let blocker = Blocker::waiting_for(Type::InventoryAllocated, problem);
    Outcome::from_blocker(State::new(Phase::Pending, None), blocker)
}

/// A machine has one host. Another host that names the machine may run its node.
fn hold_second_host(named: Option<&HostName>, others: &[&HostName]) -> Outcome {
    let others = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let message = match named {
        Some(named) => format!(
            "this object names MachineInventory {named}, and {others} names this object by its claim, its node or its plan"
        ),
        None => format!("several MachineInventories name this object: {others}"),
    };
    let action = format!(
        "set the annotation {} to the host that runs the node of this machine; another one is released by a clean",
        annotation::MACHINE_INVENTORY
    );
    let problem = Problem::new(Reason::SeveralHosts, message, action);
    let blocker = Blocker::needs_operator(Type::InventoryAllocated, problem);
    Outcome::from_blocker(State::new(Phase::Pending, None), blocker)
}

/// The host lost its claim, and its node or its plan names the machine.
fn is_owned_without_claim(machine: &MachineKey, host: &HostRecord) -> bool {
    let owner = owner_text(machine.kind, &machine.name);
    may_be_reclaimed(host) && host.stated_owner() == Some(owner.as_str())
}

/// Nothing forbids to write a lost claim again on the statement of an attached host.
fn may_be_reclaimed(host: &HostRecord) -> bool {
    host.claim.is_none() && !host.is_quarantined && !host.is_paused && host.is_attached()
}

/// The plan that made the node belongs to the claim.
fn restore_claim(machine: &MachineKey, node: &NodeDemand, host: &HostRecord) -> Effect {
    claim_effect(machine, node, host.newest_generation().0.saturating_sub(1))
}

/// A host that stated before that it carries nothing was never given a plan, unless one is in flight.
fn may_choose_again(host: &HostRecord) -> bool {
    let carried = host.carried.as_ref();
    carried.is_some_and(|carried| carried.node.is_none() && carried.plan.is_none())
        && host.plan_in_flight().is_none()
}

/// Plans of a generation higher than `generation` belong to the claim.
fn claim_effect(machine: &MachineKey, node: &NodeDemand, generation: u64) -> Effect {
    let claim = Claim {
        kind: machine.kind.to_owned(),
        baremetal_machine: machine.name.clone(),
        uid: machine.uid.as_ref().map(|uid| uid.as_str().to_owned()),
        machine: node.machine.clone(),
        cluster: node.cluster.clone(),
        pool: node.pool.clone(),
        generation,
    };
    Effect::Claim { claim, reuse_group: node.wish.reuse_group.clone() }
}

/// The machine has a providerID and its host no claim of it. Where the host
/// states that it carries this node, the claim is restored.
fn reclaim_host(situation: &Situation<'_>, node: &NodeDemand, provider_id: &ProviderId) -> Outcome {
    let machine = &situation.demand.machine;
    if let Some(Host { record: host, .. }) = situation.host
        && may_be_reclaimed(host)
        && host.carries_node_of(provider_id)
        && host.owner_other_than(&owner_text(machine.kind, &machine.name)).is_none()
    {
        return Outcome::from_effect(restore_claim(machine, node, host));
    }
    let problem = Problem::new(
        Reason::InventoryMissing,
        format!("the host of {provider_id} is gone or has another owner; it is not touched"),
        "restore its MachineInventory, or delete this Machine",
    );
    let blocker = Blocker::failed_with(Type::InventoryAllocated, problem);
    Outcome::from_blocker(State::new(Phase::Running, None), blocker)
}
