//! Objects whose holder was removed by force: they are noted, and deleted when their holder stays away.

use std::time::Duration;

use coordinator_api::explain::EventReason;
use coordinator_api::metal3::names;
use coordinator_core::metal3::orphan::{OrphanStep, decide_orphan, describe_orphan, missing_until};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::controllers::context::Context;
use crate::key::Key;
use crate::store::{self, Object, StoreError, kind_name, metal3};
use crate::watch::Watched;

/// The state of an object with regard to its holder.
pub(super) enum Care {
    /// The holder exists, or nothing is to be released.
    Held,
    /// The object was changed or deleted now, which comes back as an event.
    Changed,
    /// The holder is missing, and the object is looked at again after the interval.
    Orphaned { message: String, recheck: Action },
}

/// Looks after an object that the holder of this name has to release. `finalizer` is on an object that holds
/// something; `None` stands for an object that another manager releases.
pub(super) async fn look_after<H: Object + Watched, K: Object>(
    context: &Context,
    object: &K,
    holder: &str,
    finalizer: Option<&str>,
) -> Result<Care, StoreError> {
    let is_held = finalizer.is_none_or(|finalizer| object.finalizers().iter().any(|held| held == finalizer));
    if !is_held || object.meta().deletion_timestamp.is_some() {
        return Ok(Care::Held);
    }
    let (now, named) = (context.clock.now(), Key::of(object).in_namespace_of(holder));
    let has_holder = context.cache.get::<H>(&named).is_some();
    let step = decide_orphan(object, has_holder, now);
    let is_read = matches!(step, OrphanStep::Note | OrphanStep::Delete);
    if is_read && is_there::<H>(context, &named).await? {
        return Ok(Care::Held);
    }
    let client = &context.client;
    let text = |end| describe_orphan((kind_name::<H>(), holder), end);
    match step {
        OrphanStep::Rest => Ok(Care::Held),
        OrphanStep::Forget => {
            metal3::drop_choice(client, object, &[names::ORPHANED_SINCE]).await?;
            Ok(Care::Changed)
        }
        OrphanStep::Note => {
            let note = json!({ "metadata": { "annotations": { names::ORPHANED_SINCE: now.to_string() } } });
            store::patch(client, object, "note the missing holder of", note).await?;
            context.events.publish(object, EventReason::Orphaned, &text(missing_until(now)));
            Ok(Care::Changed)
        }
        OrphanStep::Wait(end) => {
            let left = Duration::try_from(end.duration_since(now)).unwrap_or(Duration::ZERO);
            Ok(Care::Orphaned { message: text(end), recheck: Action::requeue(left) })
        }
        OrphanStep::Delete => {
            let note = format!("{} {holder} did not come back", kind_name::<H>());
            context.events.publish(object, EventReason::OrphanDeleted, &note);
            tracing::info!(holder, "deleting the object, because its holder was removed by force");
            metal3::delete(client, object).await?;
            Ok(Care::Changed)
        }
    }
}

/// Asks the API server, because the cache may be behind.
pub(super) async fn is_there<H: Object>(context: &Context, named: &Key) -> Result<bool, StoreError> {
    let api: Api<H> = Api::namespaced(context.client.clone(), &named.namespace);
    let found = api.get_opt(&named.name).await;
    found.map(|found| found.is_some()).map_err(StoreError::request("get", kind_name::<H>(), &named.name))
}
