//! `IPPool`: held while an address of it is in use; its status lists them.

use std::sync::Arc;

use coordinator_api::metal3::ipam::IPPool;
use coordinator_api::metal3::names;
use coordinator_core::metal3::ipam::{labels_of_pool, project_pool};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use crate::controllers::context::Context;
use crate::controllers::failures::show_result;
use crate::key::Key;
use crate::store::{StoreError, metal3, status};

/// Adds finalizer and labels, or removes the finalizer; projects the status.
pub(super) async fn reconcile(pool: Arc<IPPool>, context: Arc<Context>) -> Result<Action, StoreError> {
    let Some(cache) = context.cache.metal3.as_ref().filter(|_| !context.is_paused(&*pool)) else {
        return Ok(Action::await_change());
    };
    let used = cache.index.used_addresses(&Key::of(&*pool));
    let is_held = pool.finalizers().iter().any(|name| name == names::POOL_FINALIZER);
    let is_deleted = pool.metadata.deletion_timestamp.is_some();
    let may_go = is_deleted && is_held && used.is_empty();
    let changed = change_metadata(&context, &pool, may_go).await;
    if show_result(&context, &*pool, changed, |status| &mut status.conditions).await? {
        return Ok(Action::await_change());
    }
    let projected = project_pool(&pool, used, context.clock.now());
    status::write_status(&context.client, &*pool, &projected).await?;
    Ok(Action::await_change())
}

/// Holds and labels it, or lets it go; whether that changed it.
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
