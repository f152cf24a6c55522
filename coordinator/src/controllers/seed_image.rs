//! `SeedImage`: made from a base ISO and one registration, and served.

use std::sync::Arc;

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::retry;
use coordinator_core::seed_image::{self, Decision, Download, Progress};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Context, Error};
use crate::seed_iso::SeedIsos;
use crate::store::status::Written;
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
    let (progress, again) = match (decision, registration) {
        (Decision::Refuse(why), _) => (Progress::Refused(why), None),
        (Decision::Expire, _) => (Progress::Expired, None),
        (Decision::Begin, Some(_)) => (Progress::Started, None),
        (Decision::Build, Some(registration)) => {
            build(&image, &registration, &context.isos, &context.server_url).await
        }
        (Decision::AwaitRegistration | Decision::Begin | Decision::Build, _) => {
            (Progress::NoRegistration(name), None)
        }
    };
    let new = seed_image::status(&image, &progress, Timestamp::now());
    let written = status::apply(&context.client, &*image, new).await?;
    // After a write the change comes back as an event, and with it the version
    // that taking the wish back depends on.
    if written == Written::Unchanged && seed_image::is_answered(&image) {
        take_back(&image, &context).await?;
    }
    let again = again.or_else(|| seed_image::remaining(&image, Timestamp::now()));
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// How it went, and when to look again if it went wrong.
async fn build(
    image: &SeedImage,
    registration: &MachineRegistration,
    isos: &SeedIsos,
    server_url: &str,
) -> (Progress, Option<std::time::Duration>) {
    match isos.prepare(image, registration).await {
        Ok(prepared) => {
            let server_url = server_url.to_owned();
            (Progress::Completed(Download { server_url, token: token(image), file: prepared.file }), None)
        }
        Err(error) => {
            let pause = if error.is_terminal() { retry::LONGEST } else { retry::LONGEST / 10 };
            (Progress::Failed(chain(&error)), Some(pause))
        }
    }
}

/// The token that is open, or a new one: to begin anew closes it.
fn token(image: &SeedImage) -> String {
    let open = image.status.as_ref().and_then(|status| status.download_token.clone());
    open.unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string())
}

/// The `resourceVersion` is the precondition: from a stale cache the next wish
/// of a person must not be taken for the one that is done.
async fn take_back(image: &SeedImage, context: &Context) -> Result<(), Error> {
    let api: Api<SeedImage> = Api::namespaced(context.client.clone(), &image.namespace().unwrap_or_default());
    let name = image.name_any();
    let patch = json!({
        "metadata": { "resourceVersion": image.resource_version() },
        "spec": { "retriggerBuild": false },
    });
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map_err(StoreError::of("take the retrigger off", "SeedImage", &name))?;
    Ok(())
}

#[cfg(test)]
mod tests;
