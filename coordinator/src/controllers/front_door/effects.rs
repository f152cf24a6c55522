//! The effects of a decision; a reconcile applies one of them.

use coordinator_api::explain::EventReason;
use coordinator_api::inventory::{AllocationState, MachineInventory, PlanType};
use coordinator_api::names::annotation;
use coordinator_api::notes::HostNote;
use coordinator_core::assignment::{Assignment, Effect, NodeRef, Outcome};
use coordinator_core::demand::Want;
use coordinator_core::provider_id::ProviderId;
use coordinator_core::trace::{Period, claim_span, machine_span};
use kube::ResourceExt as _;

use super::{FrontDoor, Gathered, ReadSecrets};
use crate::controllers::context::Context;
use crate::controllers::plans::{describe_release, write_plan};
use crate::key::Key;
use crate::store::{StoreError, bootstrap_secret, check_unchanged, host, machine};
use crate::telemetry::chain;

/// Shows the allocation state of the host, then applies the effect. No decision has a state for the
/// host and an effect on it.
pub(super) async fn apply_outcome<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    outcome: &Outcome,
    read: &ReadSecrets,
) -> Result<(), StoreError> {
    let allocation = outcome.state.as_ref().and_then(|state| state.allocation);
    if let (Some(inventory), Some(state)) = (gathered.inventory.as_deref(), allocation) {
        host::mark(&context.client, inventory, state).await?;
    }
    match &outcome.effect {
        Some(effect) => apply_effect(context, machine, gathered, effect, read).await,
        None => Ok(()),
    }
}

async fn apply_effect<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    effect: &Effect,
    read: &ReadSecrets,
) -> Result<(), StoreError> {
    let client = &context.client;
    if effect.needs_fresh_demand(&gathered.demand, gathered.host.as_ref()) {
        check_unchanged(client, machine).await?;
    }
    match (effect, gathered.inventory.as_deref()) {
        (Effect::Choose { host }, _) => machine::choose(client, machine, &gathered.demand, host).await,
        (Effect::ProtectMachine, _) => machine::protect(client, machine).await,
        (Effect::ForgetRetry, _) => machine::clear_retry(client, machine).await,
        (Effect::RemoveFinalizer, _) => {
            machine::remove_finalizer(client, machine, &gathered.demand, machine.release_change()).await
        }
        (Effect::ReadSecret(_) | Effect::FindNodes(_), _) | (_, None) => Ok(()),
        (Effect::LinkNode { node, provider_id }, _) => {
            link_node(context, machine, gathered, node, provider_id).await
        }
        (Effect::RemoveNode(node), _) => remove_node(context, machine, gathered, node).await,
        (Effect::Claim { claim, reuse_group }, Some(inventory)) => {
            host::claim(client, inventory, claim, reuse_group.as_deref()).await?;
            announce_claim(context, machine, gathered, inventory);
            Ok(())
        }
        (Effect::Adopt { uid }, Some(inventory)) => {
            host::adopt(client, inventory, uid).await?;
            let note = format!("{} is held by names; the UID of its claim was updated", inventory.name_any());
            context.events.publish(machine, EventReason::ClaimAdopted, &note);
            Ok(())
        }
        (Effect::ProtectHost, Some(inventory)) => host::protect(client, inventory).await,
        (Effect::Assign(assignment), Some(inventory)) => {
            assign_plan(context, machine, inventory, assignment, read).await?;
            announce_interruption(context, machine, gathered);
            Ok(())
        }
        (Effect::SetProviderId(provider_id), Some(inventory)) => {
            provide_machine(context, machine, gathered, inventory, provider_id).await
        }
        (Effect::Release, Some(inventory)) => release_host(context, inventory).await,
        (Effect::Abandon { node }, Some(inventory)) => {
            abandon_host(context, machine, gathered, inventory, node.as_ref()).await
        }
    }
}

fn announce_claim<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    inventory: &MachineInventory,
) {
    let note = HostNote::Claimed { host: &inventory.name_any() }.to_string();
    context.events.publish(machine, EventReason::InventoryAllocated, &note);
    tracing::info!(inventory = inventory.name_any(), "host claimed");
    let key = &gathered.demand.machine;
    context.traces.record_span(|| claim_span(key, &inventory.name_any(), age_of(machine, context)));
}

/// Writes the record, then announces it, because only an announced plan is streamed.
async fn assign_plan<K: FrontDoor>(
    context: &Context,
    machine: &K,
    inventory: &MachineInventory,
    assignment: &Assignment,
    read: &ReadSecrets,
) -> Result<(), StoreError> {
    let plan = &assignment.plan;
    if let (Some(secret), Some(resolved)) = (&read.bootstrap, &assignment.resolved) {
        bootstrap_secret::write_resolved(&context.client, secret, resolved).await?;
    }
    write_plan(context, inventory, assignment, read.plan.as_ref()).await?;
    let note = HostNote::Assigned { plan: plan.id.as_str(), host: &inventory.name_any() }.to_string();
    context.events.publish(machine, EventReason::PlanAssigned, &note);
    tracing::info!(inventory = inventory.name_any(), plan = plan.id.as_str(), "plan assigned");
    Ok(())
}

/// Writes an Event if machines are deleted again and again while their hosts are installed.
fn announce_interruption<K: FrontDoor>(context: &Context, machine: &K, gathered: &Gathered) {
    let Some(host) = gathered.host.as_ref().filter(|_| gathered.demand.want == Want::Release) else { return };
    let running = host.claimed_plan().filter(|plan| plan.state.is_none());
    let is_installed = running.is_none_or(|plan| plan.kind != PlanType::Reprovision);
    let Some(claim) = host.claim.as_ref().filter(|_| !is_installed) else { return };
    let cluster = Key::new(&*host.namespace, &*claim.cluster);
    if context.interruptions.note(cluster) {
        let note = format!(
            "machines of Cluster {} are deleted again and again while their hosts are installed, which takes longer than that: give the MachineHealthCheck more time",
            claim.cluster
        );
        context.events.publish(machine, EventReason::DeletedDuringPlan, &note);
    }
}

async fn provide_machine<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    inventory: &MachineInventory,
    provider_id: &ProviderId,
) -> Result<(), StoreError> {
    host::mark(&context.client, inventory, AllocationState::Allocated).await?;
    machine::set_provider_id(&context.client, machine, machine.provide_change(provider_id)).await?;
    context.events.publish(machine, EventReason::Provisioned, &format!("the host runs as {provider_id}"));
    tracing::info!(inventory = inventory.name_any(), %provider_id, "machine provisioned");
    let (key, host) = (&gathered.demand.machine, inventory.name_any());
    let id = provider_id.as_str();
    context.traces.record_span(|| machine_span(key, &host, id, age_of(machine, context)));
    Ok(())
}

/// The time since the creation of a machine.
fn age_of<K: FrontDoor>(machine: &K, context: &Context) -> Period {
    let end = context.clock.now();
    Period { start: machine.creation_timestamp().map_or(end, |created| created.0), end }
}

async fn link_node<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    node: &NodeRef,
    provider_id: &str,
) -> Result<(), StoreError> {
    let namespace = &gathered.demand.machine.namespace;
    context.workloads.set_provider_id(&context.client, namespace, node, provider_id).await?;
    let message = format!("Node {} of Cluster {} has the providerID {provider_id}", node.name, node.cluster);
    context.events.publish(machine, EventReason::NodeLinked, &message);
    tracing::info!(node = node.name, provider_id, "providerID written");
    Ok(())
}

async fn remove_node<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    node: &NodeRef,
) -> Result<(), StoreError> {
    let namespace = &gathered.demand.machine.namespace;
    context.workloads.delete_node(&context.client, namespace, node).await?;
    let message = format!("Node {} was deleted from Cluster {}", node.name, node.cluster);
    context.events.publish(machine, EventReason::NodeRemoved, &message);
    tracing::info!(node = node.name, "deleted Node of a released host");
    Ok(())
}

async fn release_host(context: &Context, inventory: &MachineInventory) -> Result<(), StoreError> {
    host::release(&context.client, inventory, AllocationState::Available).await?;
    let note = describe_release(inventory, " again");
    context.events.publish(inventory, EventReason::Released, &note);
    tracing::info!(inventory = inventory.name_any(), "host released");
    Ok(())
}

async fn abandon_host<K: FrontDoor>(
    context: &Context,
    machine: &K,
    gathered: &Gathered,
    inventory: &MachineInventory,
    left_node: Option<&NodeRef>,
) -> Result<(), StoreError> {
    // The host is abandoned even if the workload cluster cannot be reached.
    if let Some(node) = left_node
        && let Err(error) = remove_node(context, machine, gathered, node).await
    {
        tracing::warn!(node = node.name, error = %chain(&error), "cannot delete Node, delete it in the workload cluster");
    }
    if !inventory.annotations().contains_key(annotation::ABANDONED) {
        host::abandon(&context.client, inventory, context.clock.now()).await?;
        let note = format!(
            "{} was given up without a clean and may still hold the credentials of a node; it is cleaned when its host attaches",
            inventory.name_any()
        );
        context.events.publish(inventory, EventReason::ReleasedWithoutClean, &note);
        tracing::warn!(inventory = inventory.name_any(), "host abandoned");
    }
    machine::drop_finalizer(&context.client, machine, machine.release_change()).await
}
