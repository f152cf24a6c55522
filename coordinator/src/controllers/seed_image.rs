//! `SeedImage`: an ISO made from a base ISO and one registration, and served.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::conditions::{self, Reason, Type, find_condition};
use coordinator_api::explain::EventReason;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::{SeedImage, SeedImageState, SeedImageStatus};
use coordinator_core::pause;
use coordinator_core::retry;
use coordinator_core::seed_image::{self, Progress};
use kube::runtime::controller::Action;
use serde_json::json;

use super::context::Context;
use super::failures::show_condition;
use super::reconciled::{Failure, Reconciled};
use crate::index::Triggers;
use crate::key::{Key, Kind};
use crate::seed_iso::{Prepared, SeedIsoError};
use crate::store::{self, StoreError, status};
use crate::telemetry::chain;

/// The interval after an error that may end by itself.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The interval between two looks at the Leases of replicas that are waited for.
const REPLICA_INTERVAL: Duration = Duration::from_secs(2);
/// The time after which a build is looked at again whose outcome triggered nothing.
const BUILD_INTERVAL: Duration = Duration::from_mins(1);

impl Reconciled for SeedImage {
    async fn reconcile(image: Arc<Self>, context: Arc<Context>) -> Result<Action, Failure> {
        let now = context.clock.now();
        if pause::is_paused(&*image, None) {
            let mut projected = image.status.clone().unwrap_or_default();
            let paused = pause::paused_condition(true);
            conditions::set_conditions(&mut projected.conditions, &[paused], image.metadata.generation, now);
            status::write_status(&context.client, &*image, &projected).await?;
            return Ok(Action::await_change());
        }
        let key = image.registration_key();
        let registration = context.cache.get::<MachineRegistration>(&key);
        let decision = seed_image::decide_build(&image, registration.as_deref(), now);
        let (progress, retry) = match (decision.progress(&key.name), registration) {
            (Some(progress), _) => (progress, None),
            (None, Some(registration)) => {
                let Some(built) = poll_build(&image, &registration, &context) else {
                    return Ok(Action::requeue(BUILD_INTERVAL));
                };
                project_build(&image, built, &context)
            }
            (None, None) => (Progress::NoRegistration(key.name.to_string()), None),
        };
        let now = context.clock.now();
        let mut projected = seed_image::seed_image_status(&image, &progress, now);
        let catalog = context.cache.image_catalog().and_then(|catalog| catalog.data.clone());
        let resumed = pause::paused_condition(false);
        conditions::set_conditions(&mut projected.conditions, &[resumed], image.metadata.generation, now);
        seed_image::project_fit(&mut projected, &image, &catalog.unwrap_or_default(), now);
        // The stored status has the answer and the new token.
        if seed_image::is_answered(&image) {
            clear_request(&image, &context).await?;
            // The change comes back as an event.
            return Ok(Action::await_change());
        }
        let before = image.status.as_ref().and_then(|status| status.state);
        let written = status::write_status(&context.client, &*image, &projected).await?;
        if written.is_some() && before != projected.state {
            let state: &str = projected.state.map_or("", Into::into);
            tracing::info!(state, "state of seed image changed");
            announce_state(&image, &projected, &context);
        }
        let wait = retry.or_else(|| seed_image::remaining_lifetime(&image, context.clock.now()));
        Ok(wait.map_or_else(Action::await_change, Action::requeue))
    }

    async fn show_failure(&self, context: &Context, error: &StoreError) -> Result<(), StoreError> {
        show_condition(context, self, error, |status| &mut status.conditions).await
    }
}

/// Writes an Event when a build succeeded or failed.
fn announce_state(image: &SeedImage, projected: &SeedImageStatus, context: &Context) {
    match projected.state {
        Some(SeedImageState::Completed) => {
            context.events.publish(image, EventReason::SeedImageReady, "the ISO can be downloaded");
        }
        Some(SeedImageState::Failed) => {
            let ready = find_condition(&projected.conditions, Type::Ready);
            if let Some((ready, reason)) =
                ready.and_then(|ready| Some((ready, ready.reason.parse::<Reason>().ok()?)))
            {
                context.events.publish(image, reason, &ready.message);
            }
        }
        _ => {}
    }
}

/// Starts the fetch of a base. A fetch takes minutes, so that the reconcile ends and the outcome
/// triggers the next reconcile.
fn poll_build(
    image: &Arc<SeedImage>,
    registration: &Arc<MachineRegistration>,
    context: &Context,
) -> Option<Result<Prepared, SeedIsoError>> {
    let triggers = Triggers::of(Kind::SeedImage, [Key::of(&**image)]);
    let router = context.router.clone();
    context.isos.poll_build(image, registration, move || router.send_keys(triggers))
}

/// The progress after a build, and the interval until a retry.
fn project_build(
    image: &SeedImage,
    built: Result<Prepared, SeedIsoError>,
    context: &Context,
) -> (Progress, Option<Duration>) {
    match built {
        Ok(Prepared { file, base, .. }) => {
            let waiting = seed_image::find_waiting(image, &base, &context.replicas.list_others());
            if !waiting.is_empty() {
                return (Progress::AwaitReplicas(base, waiting), Some(REPLICA_INTERVAL));
            }
            let download = seed_image::open_download(image, &context.server_url, (file, base), || {
                uuid::Uuid::new_v4().simple().to_string()
            });
            (Progress::Completed(download), None)
        }
        Err(error) => {
            let interval = match &error {
                // A retry would fetch the whole base each time.
                error if error.is_fetched_in_vain() => None,
                error if error.is_terminal() => Some(retry::RETRY_MAX),
                _ => Some(RETRY_INTERVAL),
            };
            tracing::warn!(error = chain(&error), retry_in = ?interval, "cannot prepare seed image");
            (Progress::Failed(error.reason(), error.status_text()), interval)
        }
    }
}

/// Clears the request by the `resourceVersion`, so that a newer request of an operator is not taken
/// for the one that was answered.
async fn clear_request(image: &SeedImage, context: &Context) -> Result<(), StoreError> {
    let change = json!({ "spec": { "retriggerBuild": false } });
    store::patch(&context.client, image, "clear spec.retriggerBuild of", change).await.map(drop)
}

#[cfg(test)]
mod tests;
