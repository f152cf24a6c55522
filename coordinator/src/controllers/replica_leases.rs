//! Leases of replicas that are gone: each pod makes one, and no owner reference collects them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::MissedTickBehavior;

use super::context::Context;
use crate::lease::replica;
use crate::telemetry::chain;

/// The interval between two looks.
const INTERVAL: Duration = Duration::from_mins(1);

/// Deletes Leases that nobody has renewed for a while; never returns.
pub(super) async fn collect_leases(context: Arc<Context>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for stale in context.replicas.list_stale() {
            let leases: Api<Lease> = Api::namespaced(context.client.clone(), &stale.namespace);
            let (lease, uid, version) = (&stale.name, stale.uid.clone(), stale.resource_version.clone());
            match replica::delete_lease(&leases, lease, uid, version).await {
                Ok(()) => tracing::info!(lease, "Lease of a replica that is gone deleted"),
                Err(error) => {
                    tracing::warn!(
                        lease,
                        error = chain(&error),
                        "cannot delete the Lease of a replica that is gone"
                    );
                }
            }
        }
    }
}
