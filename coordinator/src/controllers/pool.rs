//! `MachineInventoryPool`: writes the counts of its roster, and takes the members that no pool
//! holds.

use std::sync::Arc;

use coordinator_api::capi::Cluster;
use coordinator_api::cluster::BaremetalCluster;
use coordinator_api::conditions::{self, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::pool::MachineInventoryPool;
use coordinator_core::load_balancer;
use coordinator_core::pause;
use coordinator_core::pool::ignored_condition;
use coordinator_core::retry::CONFLICT_RETRY_MIN;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};

use super::context::Context;
use super::failures::describe_failure;
use super::reconciled::{Failure, Reconciled};
use crate::index::infrastructure_of;
use crate::key::{Key, OfKind as _};
use crate::store::{Class, StoreError, host, kind_name, status};

impl Reconciled for MachineInventoryPool {
    async fn reconcile(pool: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        let key = Key::of(&*pool);
        let cluster = context.cache.get::<Cluster>(&key.in_namespace_of(&pool.spec.cluster_name));
        let is_paused = pause::is_paused(&*pool, cluster.as_deref());
        let is_taking = !is_paused && pool.metadata.deletion_timestamp.is_none();
        let taken = if is_taking { take_members(&key, &context).await } else { Taken::default() };
        // The others come first: a failure is retried after a growing pause.
        if let Some(failed) = taken.failed.filter(|_| !taken.has_more) {
            return Err(failed.into());
        }
        if let Some(remaining) = context.pool_writes.remaining(&key) {
            return Ok(Action::requeue(if taken.has_more { CONFLICT_RETRY_MIN } else { remaining }));
        }
        let now = context.clock.now();
        let projected =
            context.index.read_roster(&key, |roster| (roster.pool().clone(), roster.project_status(now)));
        if let Some((pool, mut projected)) = projected {
            let generation = pool.metadata.generation;
            let mut updates = vec![pause::paused_condition(is_paused)];
            let holds_endpoint = holds_endpoint(&context, cluster.as_deref());
            updates.extend(ignored_condition(&pool, holds_endpoint));
            let admission = context.index.admission_condition(&key);
            // A pool without selector has no such condition.
            let is_kept = |kind: &str| admission.is_some() || kind != Type::AdmissionOpen.as_str();
            projected.conditions.retain(|condition| is_kept(&condition.type_));
            updates.extend(admission);
            conditions::set_conditions(&mut projected.conditions, &updates, generation, now);
            status::write_status(&context.client, &*pool, &projected).await?;
        }
        Ok(if taken.has_more { Action::requeue(CONFLICT_RETRY_MIN) } else { Action::await_change() })
    }

    /// Shows the failure beside the newest counters.
    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        let now = context.clock.now();
        let projected = context
            .index
            .read_roster(&Key::of(self), |roster| (roster.pool().clone(), roster.project_status(now)));
        let Some((pool, mut projected)) = projected.filter(|_| !error.is_status_write(Self::KIND)) else {
            return Ok(());
        };
        let stored = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let (failed, generation) = (describe_failure(error), pool.metadata.generation);
        conditions::set_failure(&mut projected.conditions, stored, &failed, generation, now);
        status::write_status(&context.client, &*pool, &projected).await.map(drop)
    }
}

/// Tells whether hosts of the Cluster are to hold its endpoint, once that is known.
fn holds_endpoint(context: &Context, cluster: Option<&Cluster>) -> Option<bool> {
    let cluster = cluster?;
    cluster.spec.infrastructure_ref.as_ref()?;
    let Some(infrastructure) = infrastructure_of(cluster) else { return Some(false) };
    let infrastructure = context.cache.get::<BaremetalCluster>(&infrastructure)?;
    Some(load_balancer::holds_endpoint(&infrastructure.spec))
}

/// Members that a pool takes in one reconcile, so that its counters are written soon. Refused members are
/// not counted, because they are the first ones again in each reconcile.
const MEMBERS_AT_ONCE: usize = 50;

/// The members that a pool took.
#[derive(Default)]
struct Taken {
    has_more: bool,
    /// The first member that the API server refused, which keeps no other member from its pool.
    failed: Option<StoreError>,
}

/// A member that changes meanwhile is decided again with its event.
async fn take_members(pool: &Key, context: &Context) -> Taken {
    let (mut taken, mut count) = (Taken::default(), 0);
    for member in &context.index.unheld_members(pool) {
        if count >= MEMBERS_AT_ONCE {
            taken.has_more = true;
            break;
        }
        match take_member(pool, member, context).await {
            Ok(()) => count += 1,
            Err(error) if error.class() == Class::Conflict => count += 1,
            Err(error) if error.class() == Class::Terminal => {
                taken.failed.get_or_insert(error);
            }
            // The API server is away, so that the others would fail too.
            Err(error) => return Taken { failed: Some(error), ..taken },
        }
    }
    taken
}

async fn take_member(pool: &Key, member: &str, context: &Context) -> Result<(), StoreError> {
    let key = pool.in_namespace_of(member);
    let Some(inventory) = context.cache.get::<MachineInventory>(&key) else { return Ok(()) };
    let former = inventory.annotations().get(annotation::POOL).filter(|name| !name.is_empty());
    if let Some(former) = former {
        let former = pool.in_namespace_of(former);
        if inventory.claim().is_some() || is_holding(&former, member, context).await? {
            return Ok(());
        }
    }
    host::hold_in_pool(&context.client, &inventory, &pool.name).await?;
    tracing::info!(inventory = member, former, "pool holds its member");
    Ok(())
}

/// Tells whether a pool lists the member. A pool that the cache lacks may be one that does not
/// parse.
async fn is_holding(pool: &Key, member: &str, context: &Context) -> Result<bool, StoreError> {
    let listed = context.index.read_roster(pool, |roster| roster.member(member).is_some());
    if let Some(listed) = listed {
        return Ok(listed);
    }
    let pools: Api<MachineInventoryPool> = Api::namespaced(context.client.clone(), &pool.namespace);
    let found = pools.get_metadata_opt(&pool.name).await;
    let kind = kind_name::<MachineInventoryPool>();
    Ok(found.map_err(StoreError::request("get", kind, &pool.name))?.is_some())
}

#[cfg(test)]
mod tests;
