//! `Metal3Cluster`: held while machines of it exist; its status is projected.

use std::sync::Arc;

use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::names;
use coordinator_api::names::label;
use coordinator_core::metal3::cluster::project_status;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use crate::controllers::Context;
use crate::controllers::index::Key;
use crate::store::{StoreError, metal3, status};

/// Adds or removes the finalizer, projects the status.
///
/// # Errors
/// [`StoreError`].
pub(super) async fn reconcile(
    infrastructure: Arc<Metal3Cluster>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    let Some(cache) = &context.cache.metal3 else { return Ok(Action::await_change()) };
    let key = Key::of(&*infrastructure);
    let owner = infrastructure.owner_references().iter().find(|owner| owner.kind == "Cluster");
    let name = owner.map(|owner| &owner.name).or_else(|| infrastructure.labels().get(label::CLUSTER_NAME));
    let cluster_key = name.map(|name| key.in_namespace_of(name));
    let is_held = infrastructure.finalizers().iter().any(|name| name == names::CLUSTER_FINALIZER);
    if infrastructure.metadata.deletion_timestamp.is_some() {
        let is_used =
            cluster_key.is_some_and(|cluster| !cache.index.machines_of_cluster(&cluster).is_empty());
        if is_held && !is_used {
            metal3::drop_finalizer(&context.client, &*infrastructure, names::CLUSTER_FINALIZER).await?;
        }
        return Ok(Action::await_change());
    }
    if !is_held {
        metal3::add_finalizer(&context.client, &*infrastructure, names::CLUSTER_FINALIZER).await?;
        return Ok(Action::await_change());
    }
    let cluster = cluster_key.and_then(|cluster| context.cache.find_cluster(&cluster));
    let is_list = context.versions.cluster.version != "v1beta1";
    let projected = project_status(&infrastructure, cluster.as_deref(), is_list, context.clock.now());
    status::write_status(&context.client, &*infrastructure, &projected).await?;
    Ok(Action::await_change())
}
