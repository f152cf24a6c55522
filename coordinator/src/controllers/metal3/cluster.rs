//! `Metal3Cluster`: has a finalizer while machines of it exist, and a projected status.

use std::sync::Arc;

use coordinator_api::capi::Cluster;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::names;
use coordinator_core::metal3::cluster::{Decision, decide_cluster, project_status};
use kube::Client;
use kube::runtime::controller::Action;

use crate::controllers::context::Context;
use crate::controllers::failures::show_condition;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::index::metal3::cluster_of_infrastructure;
use crate::store::{StoreError, metal3, status};

impl Reconciled for Metal3Cluster {
    async fn reconcile(infrastructure: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if !context.serves(&*infrastructure) {
            return Ok(Action::await_change());
        }
        let cluster_key = cluster_of_infrastructure(&infrastructure);
        let cluster = cluster_key.as_ref().and_then(|cluster| context.cache.get::<Cluster>(cluster));
        let machines = cluster_key.map_or(0, |cluster| context.metal3.machines_of_cluster(&cluster).len());
        let decision = decide_cluster(&infrastructure, cluster.as_deref(), machines);
        if decision == Decision::WriteStatus {
            let is_list = context.versions.cluster.version != "v1beta1";
            let now = context.clock.now();
            let projected = project_status(&infrastructure, cluster.as_deref(), machines, is_list, now);
            status::write_status(&context.client, &*infrastructure, &projected).await?;
        }
        change_finalizer(&context.client, &infrastructure, decision).await?;
        Ok(Action::await_change())
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_condition(context, self, error, |status| &mut status.conditions).await
    }
}

async fn change_finalizer(
    client: &Client,
    infrastructure: &Metal3Cluster,
    decision: Decision,
) -> Result<(), StoreError> {
    match decision {
        Decision::AddFinalizer => {
            metal3::add_finalizer(client, infrastructure, names::CLUSTER_FINALIZER).await
        }
        Decision::RemoveFinalizer => {
            metal3::drop_finalizer(client, infrastructure, names::CLUSTER_FINALIZER).await
        }
        Decision::Rest | Decision::WriteStatus => Ok(()),
    }
}
