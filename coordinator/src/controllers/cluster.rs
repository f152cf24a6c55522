//! `BaremetalCluster`: the endpoint, from the spec or the load balancer, and who
//! holds the address of an internal one.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::capi::{Cluster, ClusterStatus};
use coordinator_api::cluster::{BaremetalCluster, Endpoint};
use coordinator_api::conditions::{ConditionUpdate, set_conditions, set_failure};
use coordinator_core::cluster::{self, Decision, EndpointAnswer, Observed};
use coordinator_core::load_balancer;
use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::json;

use super::balancer;
use super::context::Context;
use super::failures::shown_failure;
use crate::key::{Key, find_owner};
use crate::store::{self, StoreError, status};

/// What a reconcile did and saw, for the status.
struct Applied {
    conditions: Vec<ConditionUpdate>,
    /// The host that holds the address.
    holder: Option<String>,
    observed: Observed,
    /// When the endpoint is to be asked again.
    next: Option<Duration>,
}

/// Decides, applies the effects, projects the status.
pub async fn reconcile_cluster(
    cluster: Arc<BaremetalCluster>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    let owner = find_owner(&*cluster, "Cluster").and_then(|key| context.cache.find_cluster(&key));
    let decision = cluster::decide_cluster(&cluster, owner.as_deref());
    if decision == Decision::ExternallyManaged || !context.serves(&*cluster) {
        return Ok(Action::await_change());
    }
    let applied = match apply_decision(&context, &cluster, owner.as_deref(), &decision).await {
        Ok(Some(applied)) => applied,
        // The change comes back as an event, and with it the status.
        Ok(None) => return Ok(Action::await_change()),
        Err(error) => return Err(show_failure(&context, &cluster, error).await),
    };
    let now = context.clock.now();
    let failed = show_holder(&context, owner.as_deref(), &applied, now).await.err();
    let generation = cluster.metadata.generation;
    let mut projected = cluster::cluster_status(&cluster, &decision, applied.observed, now);
    set_conditions(&mut projected.conditions, &applied.conditions, generation, now);
    // The Lease shows what is so without it: the rest of the status does not wait for it.
    if let Some(failed) = failed.as_ref().and_then(shown_failure) {
        let stored = cluster.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        set_failure(&mut projected.conditions, stored, &failed, generation, now);
    }
    let written = status::write_status(&context.client, &*cluster, &projected).await?;
    let was_ready = cluster.status.as_ref().is_some_and(|status| status.ready);
    if written.is_some() && was_ready != projected.ready {
        tracing::info!(ready = projected.ready, "readiness changed");
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(applied.next.map_or_else(Action::await_change, Action::requeue)),
    }
}

/// Writes the endpoint, for which the answer is `None`; else announces the duties of hosts, and
/// asks the endpoint.
async fn apply_decision(
    context: &Context,
    cluster: &BaremetalCluster,
    owner: Option<&Cluster>,
    decision: &Decision,
) -> Result<Option<Applied>, StoreError> {
    if let Decision::Fill(endpoint) = decision {
        fill_endpoint(context, cluster, endpoint).await?;
        return Ok(None);
    }
    let mut conditions = vec![load_balancer::ignored_condition(cluster)];
    let mut holder = None;
    if let (Decision::Rest, Some(owner)) = (decision, owner) {
        let distributed = balancer::distribute_duties(context, cluster, &Key::of(owner)).await?;
        conditions.extend(distributed.conditions);
        holder = distributed.holder;
    }
    let (observed, next) = observe_cluster(context, decision, owner).await?;
    Ok(Some(Applied { conditions, holder, observed, next }))
}

/// Only where an API server answers at the endpoint.
async fn show_holder(
    context: &Context,
    owner: Option<&Cluster>,
    applied: &Applied,
    now: Timestamp,
) -> Result<(), StoreError> {
    let holder = applied.holder.as_ref().filter(|_| applied.observed.endpoint == EndpointAnswer::Answered);
    let (Some(owner), Some(holder)) = (owner, holder) else { return Ok(()) };
    context.workloads.show_holder(&context.client, &Key::of(owner), holder, now).await
}

/// What the status shows beside the decision, and when the endpoint is to be asked again.
async fn observe_cluster(
    context: &Context,
    decision: &Decision,
    owner: Option<&Cluster>,
) -> Result<(Observed, Option<Duration>), StoreError> {
    let Some(owner) = owner else { return Ok(Default::default()) };
    let key = Key::of(owner);
    let domains = context.index.failure_domains(&key);
    let mut observed = Observed {
        domains: cluster::render_domains(&domains, &context.versions.cluster.version),
        is_control_plane_initialized: owner
            .status
            .as_ref()
            .is_some_and(ClusterStatus::is_control_plane_initialized),
        ..Observed::default()
    };
    if *decision != Decision::Rest || owner.metadata.deletion_timestamp.is_some() {
        return Ok((observed, None));
    }
    let is_initialized = observed.is_control_plane_initialized;
    let (answer, next) = context.workloads.ask_endpoint(&context.client, &key, is_initialized).await?;
    observed.endpoint = answer;
    Ok((observed, next))
}

async fn fill_endpoint(
    context: &Context,
    cluster: &BaremetalCluster,
    endpoint: &Endpoint,
) -> Result<(), StoreError> {
    let change = json!({ "spec": { "controlPlaneEndpoint": endpoint } });
    store::patch(&context.client, cluster, "write the endpoint of", change).await?;
    tracing::info!(host = endpoint.host, port = endpoint.port, "endpoint taken from the load balancer");
    Ok(())
}

async fn show_failure(context: &Context, cluster: &BaremetalCluster, error: StoreError) -> StoreError {
    let Some(failed) = shown_failure(&error) else { return error };
    let projected = cluster::failed_status(cluster, failed, context.clock.now());
    let shown = status::write_status(&context.client, cluster, &projected).await;
    shown.err().unwrap_or(error)
}

#[cfg(test)]
mod tests;
