//! How far a seed image is, and how long it may be downloaded.

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

/// What to do with a `SeedImage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It cannot be made as it is written.
    Refuse(&'static str),
    /// Its registration is not there or not ready.
    AwaitRegistration,
    /// Close the open download and set the building condition: a large base takes
    /// minutes.
    Begin,
    /// Make it, or make sure that it is still what it should be.
    Build,
    /// Its time is over: close the download.
    Expire,
}

/// Which base ISO an image is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The one that is there, when there is one.
    Kept,
    /// What the server has now.
    Fresh,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It cannot be made as it is written.
    Refused(&'static str),
    /// Its registration is not there or not ready.
    NoRegistration(String),
    /// The base ISO is being fetched.
    Started,
    /// It is made; these other replicas cannot serve it yet.
    AwaitReplicas(BaseRecord, Vec<String>),
    /// The base ISO is not there or not usable.
    Failed(Reason, String),
    /// It can be downloaded.
    Completed(Download),
    /// Its time is over.
    Expired,
}

/// Where it can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// `https://host:port`.
    pub server_url: String,
    /// The secret part of the URL.
    pub token: String,
    /// Name of the file.
    pub file: String,
    /// What it is made from.
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
    let asked = is_asked(image);
    if !asked && is_over(image, now) {
        return Decision::Expire;
    }
    let ready =
        |status: &coordinator_api::registration::MachineRegistrationStatus| status.registration_url.is_some();
    let granted = registration.filter(|registration| is_granted(image, registration));
    if !granted.and_then(|registration| registration.status.as_ref()).is_some_and(ready) {
        return Decision::AwaitRegistration;
    }
    let begun = match recorded_state(image) {
        None | Some(SeedImageState::NotStarted) => false,
        // A correction of what failed is shown as started at once.
        Some(SeedImageState::Failed) => is_current(image),
        Some(SeedImageState::Initialized | SeedImageState::Started | SeedImageState::Completed) => {
            !asked || is_current(image)
        }
    };
    if begun { Decision::Build } else { Decision::Begin }
}

impl Decision {
    /// What the status says of it; `None` while the outcome of the build decides.
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

/// The download of what was built: its token is the one that is open, or a new one, because to
/// begin closes it.
pub fn open_download(
    image: &SeedImage,
    server_url: &str,
    (file, base): (String, BaseRecord),
    new_token: impl FnOnce() -> String,
) -> Download {
    let open = image.status.as_ref().and_then(|status| status.download_token.clone());
    Download { server_url: server_url.to_owned(), token: open.unwrap_or_else(new_token), file, base }
}

/// Whether the image may carry the token of the registration.
fn is_granted(image: &SeedImage, registration: &MachineRegistration) -> bool {
    let (own, other) = (&image.metadata.namespace, &registration.metadata.namespace);
    let listed = registration.annotations().get(annotation::SEED_IMAGE_NAMESPACES);
    let mut listed = listed.map(String::as_str).unwrap_or_default().split(',').map(str::trim);
    own == other || own.as_deref().is_some_and(|own| listed.any(|namespace| namespace == own))
}

fn recorded_state(image: &SeedImage) -> Option<SeedImageState> {
    image.status.as_ref().and_then(|status| status.state)
}

/// Whether the status was decided on this spec. Asking for a rebuild
/// changes the spec, so that a request that was served differs from a new one.
fn is_current(image: &SeedImage) -> bool {
    let observed = image.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == image.metadata.generation
}

/// Whether `spec.retriggerBuild` is still to be done. It is done once for each
/// change of the spec, also when it cannot be taken back: a token that is
/// recreated for ever could never be used.
pub fn is_asked(image: &SeedImage) -> bool {
    let done =
        is_current(image) && (recorded_state(image) == Some(SeedImageState::Completed) || has_expired(image));
    image.spec.retrigger_build && !done
}

/// Whether `spec.retriggerBuild` is done and still there. It is taken back only
/// after the new token is in the status: a crash before does all of it again.
pub fn is_answered(image: &SeedImage) -> bool {
    image.spec.retrigger_build && !is_asked(image)
}

/// Which base ISO to make it from. A fresh one is fetched once: while other replicas fetch it,
/// the status names it.
pub fn base_image(image: &SeedImage) -> Base {
    let is_fetched = recorded_base(image).is_some();
    if is_asked(image) && !is_fetched { Base::Fresh } else { Base::Kept }
}

/// The base ISO that the status names, as long as it was decided on this spec.
pub fn recorded_base(image: &SeedImage) -> Option<BaseRecord> {
    image.status.as_ref().filter(|_| is_current(image)).and_then(BaseRecord::of)
}

/// Whether it may be downloaded as `file` now. Beside the status, which may
/// lag, this checks what invalidates a link.
pub fn may_download(
    image: &SeedImage,
    registration: Option<&MachineRegistration>,
    file: &str,
    now: Timestamp,
) -> bool {
    let url = image.status.as_ref().and_then(|status| status.download_url.as_deref());
    let named = url.and_then(|url| url.rsplit('/').next()).is_some_and(|last| last == file);
    named
        && recorded_state(image) == Some(SeedImageState::Completed)
        && decide_build(image, registration, now) == Decision::Build
}

/// How long the download stays open; `None` is for ever, or not yet open.
pub fn remaining_lifetime(image: &SeedImage, now: Timestamp) -> Option<Duration> {
    let minutes = u64::try_from(image.spec.cleanup_after_minutes).ok().filter(|minutes| *minutes > 0)?;
    let opened = image.status.as_ref()?.opened.as_ref()?.0;
    let open = Duration::try_from(now.duration_since(opened)).unwrap_or_default();
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
