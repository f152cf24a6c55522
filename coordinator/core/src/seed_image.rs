//! The progress of a seed image, and the lifetime of its download.

pub mod base;
mod catalog;
pub mod image_files;
pub mod platform;
pub mod pull_secret;
mod replicas;
mod status;

use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::{SeedImage, SeedImageState, SeedImageType};
use jiff::Timestamp;
use kube::ResourceExt as _;

pub use catalog::project_fit;
pub use replicas::{BaseRecord, ReplicaBases, base_to_hold, find_waiting};
pub use status::seed_image_status;

/// The change that is due for a `SeedImage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The spec cannot be built.
    Refuse(&'static str),
    /// The registration does not exist or is not ready.
    AwaitRegistration,
    /// Close the open download and set the building condition, because a large base takes
    /// minutes.
    Begin,
    /// Build the image, or check that the built one is current.
    Build,
    /// Close the download because its lifetime is over.
    Expire,
}

/// The base ISO of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The base ISO that the replica holds, if any.
    Kept,
    /// The base ISO that its source has now.
    Fresh,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The spec cannot be built.
    Refused(&'static str),
    /// The registration of this name does not exist or is not ready.
    NoRegistration(String),
    /// The base ISO is being fetched.
    Started,
    /// The image is built, but these other replicas cannot serve it yet.
    AwaitReplicas(BaseRecord, Vec<String>),
    /// The base ISO is missing or not usable.
    Failed(Reason, String),
    /// The image can be downloaded.
    Completed(Download),
    /// The lifetime of the download is over.
    Expired,
}

/// An open download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// `https://host:port`.
    pub server_url: String,
    /// The secret part of the URL.
    pub token: String,
    /// Name of the file.
    pub file: String,
    pub base: BaseRecord,
}

pub fn decide_build(
    image: &SeedImage,
    registration: Option<&MachineRegistration>,
    now: Timestamp,
) -> Decision {
    if image.spec.kind == SeedImageType::Raw {
        return Decision::Refuse("disk images are not made here: use type iso");
    }
    if let Err(refusal) = base::check_base(&image.spec) {
        return Decision::Refuse(refusal.0);
    }
    let is_asked = is_asked(image);
    if !is_asked && is_over(image, now) {
        return Decision::Expire;
    }
    let granted = registration.filter(|registration| is_granted(image, registration));
    let status = granted.and_then(|registration| registration.status.as_ref());
    if status.is_none_or(|status| status.registration_url.is_none()) {
        return Decision::AwaitRegistration;
    }
    let has_begun = match recorded_state(image) {
        None | Some(SeedImageState::NotStarted) => false,
        // A corrected image is shown as started at once.
        Some(SeedImageState::Failed) => is_current(image),
        Some(SeedImageState::Initialized | SeedImageState::Started | SeedImageState::Completed) => {
            !is_asked || is_current(image)
        }
    };
    if has_begun { Decision::Build } else { Decision::Begin }
}

impl Decision {
    /// The progress to show; `None` while the outcome of the build decides it.
    pub fn progress(&self, registration: &str) -> Option<Progress> {
        match self {
            Self::Refuse(why) => Some(Progress::Refused(why)),
            Self::AwaitRegistration => Some(Progress::NoRegistration(registration.to_owned())),
            Self::Begin => Some(Progress::Started),
            Self::Expire => Some(Progress::Expired),
            Self::Build => None,
        }
    }
}

/// The download of a built image. It keeps the token of an open download; [`Decision::Begin`]
/// closes a download, so that a new token is needed.
pub fn open_download(
    image: &SeedImage,
    server_url: &str,
    (file, base): (String, BaseRecord),
    new_token: impl FnOnce() -> String,
) -> Download {
    let open = image.status.as_ref().and_then(|status| status.download_token.clone());
    Download { server_url: server_url.to_owned(), token: open.unwrap_or_else(new_token), file, base }
}

/// The image may carry the token of the registration.
fn is_granted(image: &SeedImage, registration: &MachineRegistration) -> bool {
    let (own, other) = (&image.metadata.namespace, &registration.metadata.namespace);
    let listed = registration.annotations().get(annotation::SEED_IMAGE_NAMESPACES);
    let mut listed = listed.into_iter().flat_map(|namespaces| namespaces.split(',')).map(str::trim);
    own == other || own.as_deref().is_some_and(|own| listed.any(|namespace| namespace == own))
}

fn recorded_state(image: &SeedImage) -> Option<SeedImageState> {
    image.status.as_ref().and_then(|status| status.state)
}

/// The status was decided on this spec. A request for a rebuild changes the spec, so that an
/// answered request differs from a new one.
fn is_current(image: &SeedImage) -> bool {
    let observed = image.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == image.metadata.generation
}

/// `spec.retriggerBuild` is still due. A rebuild is done once for each change of the spec, even if
/// the field cannot be reset: a token that is recreated again and again could never be used.
pub fn is_asked(image: &SeedImage) -> bool {
    let done =
        is_current(image) && (recorded_state(image) == Some(SeedImageState::Completed) || has_expired(image));
    image.spec.retrigger_build && !done
}

/// `spec.retriggerBuild` is done and still set. The field is reset only after the status has the
/// new token, so that a crash in between repeats the rebuild.
pub fn is_answered(image: &SeedImage) -> bool {
    image.spec.retrigger_build && !is_asked(image)
}

/// The base ISO to build from. A fresh one is fetched once; the status names it while other
/// replicas fetch it.
pub fn base_image(image: &SeedImage) -> Base {
    let is_fetched = recorded_base(image).is_some();
    if is_asked(image) && !is_fetched { Base::Fresh } else { Base::Kept }
}

/// The base ISO that the status names, if the status was decided on this spec.
pub fn recorded_base(image: &SeedImage) -> Option<BaseRecord> {
    image.status.as_ref().filter(|_| is_current(image)).and_then(BaseRecord::of)
}

/// The image may be downloaded as `file` now. The status may lag, therefore all conditions of a
/// download are checked again.
pub fn may_download(
    image: &SeedImage,
    registration: Option<&MachineRegistration>,
    file: &str,
    now: Timestamp,
) -> bool {
    let url = image.status.as_ref().and_then(|status| status.download_url.as_deref());
    url.and_then(|url| url.rsplit('/').next()).is_some_and(|last| last == file)
        && recorded_state(image) == Some(SeedImageState::Completed)
        && decide_build(image, registration, now) == Decision::Build
}

/// Remaining lifetime of the download; `None` if it is unlimited, or the download is not open.
pub fn remaining_lifetime(image: &SeedImage, now: Timestamp) -> Option<Duration> {
    let minutes = u64::try_from(image.spec.cleanup_after_minutes).ok().filter(|minutes| *minutes > 0)?;
    let opened = image.status.as_ref()?.opened.as_ref()?.0;
    let open = Duration::try_from(now.duration_since(opened)).unwrap_or(Duration::ZERO);
    Some(Duration::from_secs(minutes * 60).saturating_sub(open))
}

fn is_over(image: &SeedImage, now: Timestamp) -> bool {
    has_expired(image) || remaining_lifetime(image, now) == Some(Duration::ZERO)
}

fn has_expired(image: &SeedImage) -> bool {
    image.status.as_ref().is_some_and(|status| status.expired)
}

#[cfg(test)]
mod tests;
