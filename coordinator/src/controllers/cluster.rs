//! `BaremetalCluster`: the endpoint from the spec or the load balancer, and the holder of an
//! internal endpoint.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::capi::{Cluster, ClusterStatus};
use coordinator_api::cluster::{BaremetalCluster, Endpoint};
use coordinator_api::conditions::{ConditionUpdate, Reason, set_conditions, set_failure};
use coordinator_api::names::kind;
use coordinator_core::cluster::{self, Decision, EndpointAnswer, Observed};
use coordinator_core::load_balancer;
use jiff::Timestamp;
use kube::runtime::controller::Action;
use serde_json::json;

use super::balancer;
use super::context::Context;
use super::failures::describe_failure;
use super::reconciled::{Failure, Reconciled};
use super::spread;
use crate::key::{Key, OfKind as _, find_owner};
use crate::store::{self, Class, StoreError, status};
use crate::telemetry::chain;

/// The effects and observations of a reconcile, for the status.
struct Applied {
    conditions: Vec<ConditionUpdate>,
    /// The host that holds the address.
    holder: Option<String>,
    observed: Observed,
    /// The time after which the endpoint is asked again.
    next: Option<Duration>,
    /// A host whose duty could not be written.
    failed: Option<StoreError>,
}

/// The interval after the Lease of the holder was refused. The Lease decides nothing.
const HOLDER_RETRY: Duration = Duration::from_mins(5);

impl Reconciled for BaremetalCluster {
    async fn reconcile(cluster: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        let owner = find_owner(&*cluster, kind::CLUSTER).and_then(|key| context.cache.get::<Cluster>(&key));
        let decision = cluster::decide_cluster(&cluster, owner.as_deref());
        if decision == Decision::ExternallyManaged || !context.serves(&*cluster) {
            return Ok(Action::await_change());
        }
        let applied = apply_decision(&context, &cluster, owner.as_deref(), &decision).await?;
        // The change comes back as an event and is shown then.
        let Some(applied) = applied else { return Ok(Action::await_change()) };
        let now = context.clock.now();
        let refused = show_holder(&context, owner.as_deref(), &applied, now).await.err();
        if let Some(error) = &refused {
            let note = format!("{}; the endpoint does not depend on it", chain(error));
            context.events.publish(&*cluster, Reason::ApiRequestFailed, &note);
        }
        let failed = applied.failed;
        let generation = cluster.metadata.generation;
        let mut projected = cluster::cluster_status(&cluster, &decision, applied.observed, now);
        set_conditions(&mut projected.conditions, &applied.conditions, generation, now);
        // The status is written even if the duty of a host could not be written.
        if let Some(error) = failed.as_ref().filter(|error| error.class() != Class::Conflict) {
            let failed = describe_failure(error);
            let stored = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
            set_failure(&mut projected.conditions, stored, &failed, generation, now);
        }
        let written = status::write_status(&context.client, &*cluster, &projected).await?;
        let was_ready = cluster.status.as_ref().is_some_and(|status| status.ready);
        if written.is_some() && was_ready != projected.ready {
            tracing::info!(ready = projected.ready, "readiness changed");
        }
        if let Some(error) = failed {
            let is_shown = error.class() != Class::Conflict;
            return Err(if is_shown { Failure::Shown(error) } else { Failure::Unshown(error) });
        }
        let next = applied.next.into_iter().chain(refused.map(|_| HOLDER_RETRY)).min();
        let next = next.map(|next| spread(next, &Key::of(&*cluster)));
        Ok(next.map_or_else(Action::await_change, Action::requeue))
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        if error.is_status_write(Self::KIND) {
            return Ok(());
        }
        let projected = cluster::failed_status(self, describe_failure(error), context.clock.now());
        status::write_status(&context.client, self, &projected).await.map(drop)
    }
}

/// Writes the endpoint, for which the answer is `None`. Otherwise announces the duties of hosts and
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
    let (mut holder, mut failed) = (None, None);
    if let (Decision::Rest, Some(owner)) = (decision, owner) {
        let distributed = balancer::distribute_duties(context, cluster, &Key::of(owner)).await?;
        conditions.extend(distributed.conditions);
        (holder, failed) = (distributed.holder, distributed.failed);
    }
    let (observed, next) = observe_cluster(context, cluster, decision, owner).await?;
    Ok(Some(Applied { conditions, holder, observed, next, failed }))
}

/// Names the holder of the endpoint in a Lease of the workload cluster, if an API server answers
/// there.
async fn show_holder(
    context: &Context,
    owner: Option<&Cluster>,
    applied: &Applied,
    now: Timestamp,
) -> Result<(), StoreError> {
    let has_answered = matches!(applied.observed.endpoint, EndpointAnswer::Answered(_));
    let holder = applied.holder.as_ref().filter(|_| has_answered);
    let (Some(owner), Some(holder)) = (owner, holder) else { return Ok(()) };
    context.workloads.show_holder(&context.client, &Key::of(owner), holder, now).await
}

/// The observations for the status, and the time after which the endpoint is asked again.
async fn observe_cluster(
    context: &Context,
    cluster: &BaremetalCluster,
    decision: &Decision,
    owner: Option<&Cluster>,
) -> Result<(Observed, Option<Duration>), StoreError> {
    let Some(owner) = owner else { return Ok((Observed::default(), None)) };
    let key = Key::of(owner);
    let domains = context.index.failure_domains(&key);
    let mut observed = Observed {
        named_endpoint: cluster::find_endpoint(cluster, owner),
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

#[cfg(test)]
mod tests;
