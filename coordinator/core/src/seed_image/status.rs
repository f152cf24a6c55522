//! The status of a seed image, a projection of its progress.

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_true, fields_ignored};
use coordinator_api::names::annotation;
use coordinator_api::seed_image::{SeedImage, SeedImageSpec, SeedImageState, SeedImageStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{BaseRecord, Download, Progress};
use crate::problem::Problem;

pub fn seed_image_status(image: &SeedImage, progress: &Progress, now: Timestamp) -> SeedImageStatus {
    let mut status = image.status.clone().unwrap_or_default();
    let (state, problem) = describe_progress(progress);
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
    let [ready, made] = project_conditions(progress, &problem);
    let updates = [ready, made, fields_ignored(&list_ignored(&image.spec))];
    conditions::set_conditions(&mut status.conditions, &updates, image.metadata.generation, now);
    status
}

/// Fields that are accepted from upstream's manifests and have no effect. `size` is none of them: each
/// documented manifest sets it, and an ISO needs no volume of a size.
fn list_ignored(spec: &SeedImageSpec) -> Vec<&'static str> {
    let has_container = spec.build_container.as_ref().is_some_and(|container| !container.is_null());
    has_container.then_some("spec.buildContainer").into_iter().collect()
}

fn describe_progress(progress: &Progress) -> (SeedImageState, Problem) {
    match progress {
        Progress::Refused(why) => {
            (SeedImageState::Failed, Problem::of_cause(Reason::SeedImageBuildFailure, *why))
        }
        Progress::NoRegistration(name) => {
            let message = format!(
                "MachineRegistration {name} does not exist, is not ready, or is in another namespace without a grant"
            );
            let action = format!(
                "create it, correct spec.registrationRef, or list the namespace in its annotation {}",
                annotation::SEED_IMAGE_NAMESPACES
            );
            let problem = Problem::new(Reason::RegistrationNotFound, message, action);
            (SeedImageState::NotStarted, problem)
        }
        Progress::Started => {
            let message = "the base ISO is being fetched";
            (SeedImageState::Started, Problem::of_cause(Reason::SeedImageBuildOngoing, message))
        }
        Progress::AwaitReplicas(base, replicas) => {
            let message = format!(
                "the base ISO {} is still being fetched by {} of the coordinator",
                base.digest,
                replicas.join(", ")
            );
            let action = "if this takes long, read the cause in their logs, or set spec.retriggerBuild to fetch the ISO again";
            let problem = Problem::new(Reason::SeedImageBuildOngoing, message, action);
            (SeedImageState::Started, problem)
        }
        Progress::Failed(_, why) => {
            (SeedImageState::Failed, Problem::of_cause(Reason::SeedImageBuildFailure, why.clone()))
        }
        Progress::Completed(_) => {
            (SeedImageState::Completed, Problem::of_cause(Reason::SeedImageBuildSuccess, ""))
        }
        Progress::Expired => {
            let message = "the time of spec.cleanupAfterMinutes is over";
            let action = "set spec.retriggerBuild to open the download again";
            let problem = Problem::new(Reason::SeedImageBuildDeadline, message, action);
            (SeedImageState::NotStarted, problem)
        }
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

fn project_conditions(progress: &Progress, problem: &Problem) -> [ConditionUpdate; 2] {
    let created = condition_true(Type::Ready, Reason::ResourcesSuccessfullyCreated, "");
    match progress {
        Progress::Completed(_) => [created, condition_true(Type::SeedImageReady, problem.reason, "")],
        Progress::Started | Progress::AwaitReplicas(..) => {
            [created, problem.condition_false(Type::SeedImageReady)]
        }
        // `Ready` has the cause; `SeedImageReady` has only upstream's reasons.
        Progress::Failed(cause, _) => [
            Problem { reason: *cause, ..problem.clone() }.condition_false(Type::Ready),
            problem.condition_false(Type::SeedImageReady),
        ],
        Progress::Refused(_) | Progress::NoRegistration(_) | Progress::Expired => {
            [Type::Ready, Type::SeedImageReady].map(|kind| problem.condition_false(kind))
        }
    }
}
