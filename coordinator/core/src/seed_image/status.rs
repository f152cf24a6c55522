//! The status of a seed image, a projection of its progress.

use coordinator_api::conditions::{
    self, ConditionUpdate, Reason, Type, condition_false, condition_true, fields_ignored,
};
use coordinator_api::names::annotation;
use coordinator_api::seed_image::{SeedImage, SeedImageSpec, SeedImageState, SeedImageStatus, default_size};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{BaseRecord, Download, Progress};

pub fn seed_image_status(image: &SeedImage, progress: &Progress, now: Timestamp) -> SeedImageStatus {
    let mut status = image.status.clone().unwrap_or_default();
    let (state, reason, message) = describe_progress(progress);
    status.state = Some(state);
    let download = find_download(progress);
    let url = download.map(|download| {
        format!("{}/elemental/seedimage/{}/{}", download.server_url, download.token, download.file)
    });
    status.checksum_url = url.as_ref().map(|url| format!("{url}.sha256"));
    status.download_url = url;
    status.download_token = download.map(|download| download.token.clone());
    status.opened = download.map(|_| status.opened.take().unwrap_or(Time(now)));
    status.expired = *progress == Progress::Expired;
    let base = find_base(progress);
    status.base_digest = base.map(|base| base.digest.clone());
    status.base_manifest_digest = base.and_then(|base| base.manifest.clone());
    status.observed_generation = image.metadata.generation;
    let [ready, made] = project_conditions(progress, reason, &message);
    let updates = [ready, made, fields_ignored(&list_ignored(&image.spec))];
    conditions::set_conditions(&mut status.conditions, &updates, image.metadata.generation, now);
    status
}

/// Fields that are accepted from upstream's manifests and have no effect. Every object has upstream's
/// default of `size`.
fn list_ignored(spec: &SeedImageSpec) -> Vec<&'static str> {
    let has_container = spec.build_container.as_ref().is_some_and(|container| !container.is_null());
    let size = spec.size.as_ref().filter(|size| size.as_str() != Some("6Gi"));
    let has_size = size.is_some() && size != default_size().as_ref();
    let fields = [("spec.buildContainer", has_container), ("spec.size", has_size)];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect()
}

fn describe_progress(progress: &Progress) -> (SeedImageState, Reason, String) {
    match progress {
        Progress::Refused(why) => (SeedImageState::Failed, Reason::SeedImageBuildFailure, (*why).to_owned()),
        Progress::NoRegistration(name) => (
            SeedImageState::NotStarted,
            Reason::RegistrationNotFound,
            format!(
                "MachineRegistration {name} does not exist, is not ready, or is in another namespace without a grant: create it, correct spec.registrationRef, or list the namespace in its annotation {}",
                annotation::SEED_IMAGE_NAMESPACES
            ),
        ),
        Progress::Started => (
            SeedImageState::Started,
            Reason::SeedImageBuildOngoing,
            "the base ISO is being fetched".to_owned(),
        ),
        Progress::AwaitReplicas(base, replicas) => (
            SeedImageState::Started,
            Reason::SeedImageBuildOngoing,
            format!(
                "the base ISO {} is still being fetched by {} of the coordinator: if this takes long, read the cause in their logs, or set spec.retriggerBuild to fetch the ISO again",
                base.digest,
                replicas.join(", ")
            ),
        ),
        Progress::Failed(_, why) => (SeedImageState::Failed, Reason::SeedImageBuildFailure, why.clone()),
        Progress::Completed(_) => (SeedImageState::Completed, Reason::SeedImageBuildSuccess, String::new()),
        Progress::Expired => (
            SeedImageState::NotStarted,
            Reason::SeedImageBuildDeadline,
            "the time of spec.cleanupAfterMinutes is over: set spec.retriggerBuild to open the download again".to_owned(),
        ),
    }
}

fn find_download(progress: &Progress) -> Option<&Download> {
    match progress {
        Progress::Completed(download) => Some(download),
        Progress::Refused(_)
        | Progress::NoRegistration(_)
        | Progress::Started
        | Progress::AwaitReplicas(..)
        | Progress::Failed(..)
        | Progress::Expired => None,
    }
}

fn find_base(progress: &Progress) -> Option<&BaseRecord> {
    match progress {
        Progress::AwaitReplicas(base, _) => Some(base),
        Progress::Completed(download) => Some(&download.base),
        Progress::Refused(_)
        | Progress::NoRegistration(_)
        | Progress::Started
        | Progress::Failed(..)
        | Progress::Expired => None,
    }
}

fn project_conditions(progress: &Progress, reason: Reason, message: &str) -> [ConditionUpdate; 2] {
    match progress {
        Progress::Completed(_) => [
            condition_true(Type::Ready, Reason::ResourcesSuccessfullyCreated, ""),
            condition_true(Type::SeedImageReady, reason, ""),
        ],
        Progress::Started | Progress::AwaitReplicas(..) => [
            condition_true(Type::Ready, Reason::ResourcesSuccessfullyCreated, ""),
            condition_false(Type::SeedImageReady, reason, message),
        ],
        // `Ready` has the cause; `SeedImageReady` has only upstream's reasons.
        Progress::Failed(cause, _) => [
            condition_false(Type::Ready, *cause, message),
            condition_false(Type::SeedImageReady, reason, message),
        ],
        Progress::Refused(_) | Progress::NoRegistration(_) | Progress::Expired => [
            condition_false(Type::Ready, reason, message),
            condition_false(Type::SeedImageReady, reason, message),
        ],
    }
}
