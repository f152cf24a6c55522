//! `SeedImage`: made from a base ISO and one registration, and served.

use std::sync::Arc;

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::{SeedImage, SeedImageState};
use coordinator_core::retry;
use coordinator_core::seed_image::{self, Decision, Download, Progress};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Context, Error};
use crate::store::{StoreError, status};
use crate::telemetry::chain;

/// Observes, decides, prepares the ISO, projects the status.
///
/// # Errors
/// When Kubernetes cannot be told.
pub async fn reconcile(image: Arc<SeedImage>, context: Arc<Context>) -> Result<Action, Error> {
    let reference = &image.spec.registration_ref;
    let namespace = reference.namespace.clone().or_else(|| image.namespace()).unwrap_or_default();
    let name = reference.name.clone().unwrap_or_default();
    let registration = context.caches.registrations.get(&ObjectRef::new(&name).within(&namespace));
    let decision = seed_image::decide(&image, registration.as_deref(), Timestamp::now());
    let progress = match (decision, registration) {
        (Decision::Refuse(why), _) => Progress::Refused(why),
        (Decision::Expire, _) => Progress::Expired,
        (Decision::AwaitRegistration, _) | (Decision::Build, None) => Progress::NoRegistration(name),
        (Decision::Build, Some(registration)) => return build(&image, &registration, &context).await,
    };
    let new = seed_image::status(&image, &progress, Timestamp::now());
    status::apply(&context.client, &*image, new).await?;
    Ok(Action::await_change())
}

async fn build(
    image: &SeedImage,
    registration: &MachineRegistration,
    context: &Context,
) -> Result<Action, Error> {
    let state = image.status.as_ref().and_then(|status| status.state);
    if matches!(state, None | Some(SeedImageState::NotStarted)) {
        // A large base takes minutes: say so before. The change comes back.
        let new = seed_image::status(image, &Progress::Started, Timestamp::now());
        status::apply(&context.client, image, new).await?;
        return Ok(Action::await_change());
    }
    let (progress, again) = match context.isos.prepare(image, registration).await {
        Ok(prepared) => {
            let download =
                Download { server_url: context.server_url.clone(), token: token(image), file: prepared.file };
            (Progress::Completed(download), None)
        }
        Err(error) => (Progress::Failed(chain(&error)), Some(retry::LONGEST / 10)),
    };
    let new = seed_image::status(image, &progress, Timestamp::now());
    status::apply(&context.client, image, new).await?;
    if image.spec.retrigger_build {
        take_back(image, context).await?;
    }
    let again = again.or_else(|| seed_image::remaining(image, Timestamp::now()));
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// A retrigger makes every earlier link useless.
fn token(image: &SeedImage) -> String {
    let old = image.status.as_ref().and_then(|status| status.download_token.clone());
    old.filter(|_| !image.spec.retrigger_build).unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string())
}

async fn take_back(image: &SeedImage, context: &Context) -> Result<(), Error> {
    let api: Api<SeedImage> = Api::namespaced(context.client.clone(), &image.namespace().unwrap_or_default());
    let (name, patch) = (image.name_any(), json!({ "spec": { "retriggerBuild": false } }));
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map_err(StoreError::of("take the retrigger off", "SeedImage", &name))?;
    Ok(())
}
