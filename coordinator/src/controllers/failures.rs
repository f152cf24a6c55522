//! The texts and conditions that show a failed effect.

use coordinator_api::conditions::{ConditionUpdate, set_conditions};
use coordinator_core::assignment::effect_failed;
use coordinator_core::problem::{Blocker, Problem, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;

use super::context::Context;
use crate::key::OfKind;
use crate::store::{Object, StoreError, status};
use crate::telemetry::chain;

/// The condition of a failed effect.
pub(super) fn describe_failure(error: &StoreError) -> ConditionUpdate {
    let failed = effect_failed(&chain(error));
    if !matches!(error, StoreError::Taken { .. }) {
        return failed;
    }
    // An operator has to act, because the object of that name is something else.
    let next_action = "correct it, or delete it to have it created again".to_owned();
    ConditionUpdate { message: chain(error), next_action, ..failed }
}

/// Shows a failed effect in the conditions of its object, unless it is the write of this status.
pub(super) async fn show_condition<K>(
    context: &Context,
    object: &K,
    error: &StoreError,
    conditions: impl FnOnce(&mut K::Status) -> &mut Vec<Condition>,
) -> Result<(), StoreError>
where
    K: Object + OfKind + HasStatus<Status: Clone + Default + Serialize>,
{
    if error.is_status_write(K::KIND) {
        return Ok(());
    }
    let mut projected = object.status().map_or_else(K::Status::default, K::Status::clone);
    let (failed, generation, now) = (describe_failure(error), object.meta().generation, context.clock.now());
    set_conditions(conditions(&mut projected), &[failed], generation, now);
    status::write_status(&context.client, object, &projected).await.map(drop)
}

/// Writes an Event if an operator has to act and the reason is new. `before` is the reason that the
/// object showed; a text that changes under the same reason is no new cause.
pub(super) fn announce_blocker(
    context: &Context,
    object: &impl Resource<DynamicType = ()>,
    blocker: &Blocker,
    before: Option<&str>,
) {
    if blocker.severity != Severity::Waiting {
        announce_problem(context, object, &blocker.problem, before);
    }
}

/// Writes an Event if the reason of a problem is new.
pub(super) fn announce_problem(
    context: &Context,
    object: &impl Resource<DynamicType = ()>,
    problem: &Problem,
    before: Option<&str>,
) {
    if before != Some(problem.reason.as_str()) {
        context.events.publish(object, problem.reason, &problem.event_text());
    }
}

/// Shows a failed effect of an object without conditions in an Event.
pub(super) async fn show_event(
    context: &Context,
    object: &impl Resource<DynamicType = ()>,
    error: &StoreError,
) -> Result<(), StoreError> {
    let failed = describe_failure(error);
    context.events.publish(object, failed.reason, &failed.text());
    Ok(())
}
