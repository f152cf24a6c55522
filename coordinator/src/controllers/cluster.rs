//! `BaremetalCluster`: the endpoint, from the spec or the load balancer.

use std::sync::Arc;

use coordinator_api::cluster::BaremetalCluster;
use coordinator_core::cluster::{self, Decision};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Context, Error};
use crate::store::{StoreError, status};

/// Observes, decides, fills the endpoint in, projects the status.
///
/// # Errors
/// When Kubernetes cannot be told.
pub async fn reconcile(cluster: Arc<BaremetalCluster>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let owner = cluster.owner_references().iter().find(|owner| owner.kind == "Cluster").and_then(|owner| {
        let key = ObjectRef::new_with(&owner.name, context.versions.cluster.clone()).within(&namespace);
        context.caches.clusters.get(&key)
    });
    let decision = cluster::decide(&cluster, owner.as_deref());
    if let Decision::Fill(endpoint) = &decision {
        let name = cluster.name_any();
        let api: Api<BaremetalCluster> = Api::namespaced(context.client.clone(), &namespace);
        let patch = json!({ "spec": { "controlPlaneEndpoint": endpoint } });
        let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        done.map_err(StoreError::of("fill the endpoint of", "BaremetalCluster", &name))?;
        // The change comes back as an event, and with it the status.
        return Ok(Action::await_change());
    }
    let new = cluster::status(&cluster, &decision, Timestamp::now());
    status::apply(&context.client, &*cluster, new).await?;
    Ok(Action::await_change())
}
