//! `IPPool`: has a finalizer while an address of it is in use, and a status that lists the
//! addresses.

use std::sync::Arc;

use coordinator_api::metal3::ipam::IPPool;
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::{labels_of_pool, project_pool};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use crate::controllers::context::Context;
use crate::controllers::failures::show_condition;
use crate::controllers::reconciled::{Failure, Reconciled};
use crate::key::Key;
use crate::store::{StoreError, metal3, status};

impl Reconciled for IPPool {
    async fn reconcile(pool: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        if context.is_paused(&*pool) {
            return Ok(Action::await_change());
        }
        let used = context.metal3.used_addresses(&Key::of(&*pool));
        let is_held = pool.finalizers().iter().any(|name| name == names::POOL_FINALIZER);
        let is_deleted = pool.metadata.deletion_timestamp.is_some();
        let may_go = is_deleted && is_held && used.is_empty();
        if change_metadata(&context, &pool, may_go).await? {
            return Ok(Action::await_change());
        }
        let projected = project_pool(&pool, used, context.clock.now());
        status::write_status(&context.client, &*pool, &projected).await?;
        Ok(Action::await_change())
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_condition(context, self, error, |status| &mut status.conditions).await
    }
}

/// Adds finalizer and labels, or removes the finalizer; tells whether that changed the pool.
async fn change_metadata(context: &Context, pool: &IPPool, may_go: bool) -> Result<bool, StoreError> {
    let labels = labels_of_pool(pool);
    if metal3::hold_labelled(&context.client, pool, names::POOL_FINALIZER, &labels).await? {
        return Ok(true);
    }
    if may_go {
        metal3::drop_finalizer(&context.client, pool, names::POOL_FINALIZER).await?;
    }
    Ok(may_go)
}
