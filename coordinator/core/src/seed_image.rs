//! How far a seed image is, and how long it may be downloaded.

use std::time::Duration;

use coordinator_api::conditions::{self, Finding, Reason, Type};
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::{SeedImage, SeedImageState, SeedImageStatus, SeedImageType};
use jiff::Timestamp;

/// What to do with a `SeedImage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It cannot be made as it is written.
    Refuse(&'static str),
    /// Its registration is not there or not ready.
    AwaitRegistration,
    /// Make it, or make sure that it is still what it should be.
    Build,
    /// Its time is over: close the download.
    Expire,
}

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It cannot be made as it is written.
    Refused(&'static str),
    /// Its registration is not there or not ready.
    NoRegistration(String),
    /// The base ISO is being fetched.
    Started,
    /// The base ISO is not there or not usable.
    Failed(String),
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
}

/// Decides.
#[must_use]
pub fn decide(image: &SeedImage, registration: Option<&MachineRegistration>, now: Timestamp) -> Decision {
    if image.spec.kind == SeedImageType::Raw {
        return Decision::Refuse("disk images are not made here: use type iso");
    }
    if image.spec.base_image.as_deref().is_none_or(str::is_empty) {
        return Decision::Refuse("spec.baseImage is empty: give the http(s) URL of a base ISO");
    }
    if !image.spec.retrigger_build && is_over(image, now) {
        return Decision::Expire;
    }
    let ready = |status: &coordinator_api::registration::MachineRegistrationStatus| {
        status.registration_url.is_some() && conditions::is_true(&status.conditions, Type::Ready)
    };
    if registration.and_then(|registration| registration.status.as_ref()).is_some_and(ready) {
        Decision::Build
    } else {
        Decision::AwaitRegistration
    }
}

/// How long the download stays open; `None` is for ever, or not yet open.
#[must_use]
pub fn remaining(image: &SeedImage, now: Timestamp) -> Option<Duration> {
    let minutes = u64::try_from(image.spec.cleanup_after_minutes).ok().filter(|minutes| *minutes > 0)?;
    let ready = conditions::find(&image.status.as_ref()?.conditions, Type::SeedImageReady)?;
    if ready.status != "True" {
        return None;
    }
    let open = Duration::try_from(now.duration_since(ready.last_transition_time.0)).unwrap_or_default();
    Some(Duration::from_secs(minutes * 60).saturating_sub(open))
}

fn is_over(image: &SeedImage, now: Timestamp) -> bool {
    let expired = image
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, Type::SeedImageReady))
        .is_some_and(|ready| ready.reason == Reason::SeedImageBuildDeadline.as_str());
    expired || remaining(image, now) == Some(Duration::ZERO)
}

/// The status that follows.
#[must_use]
pub fn status(image: &SeedImage, progress: &Progress, now: Timestamp) -> SeedImageStatus {
    let mut status = image.status.clone().unwrap_or_default();
    let (state, reason, message) = match progress {
        Progress::Refused(why) => (SeedImageState::Failed, Reason::SeedImageBuildFailure, (*why).to_owned()),
        Progress::NoRegistration(name) => (
            SeedImageState::NotStarted,
            Reason::RegistrationNotFound,
            format!(
                "MachineRegistration {name} is not there or not ready: create it, or correct spec.registrationRef"
            ),
        ),
        Progress::Started => (
            SeedImageState::Started,
            Reason::SeedImageBuildOngoing,
            "the base ISO is being fetched".to_owned(),
        ),
        Progress::Failed(why) => (SeedImageState::Failed, Reason::SeedImageBuildFailure, why.clone()),
        Progress::Completed(_) => (SeedImageState::Completed, Reason::SeedImageBuildSuccess, String::new()),
        Progress::Expired => (
            SeedImageState::NotStarted,
            Reason::SeedImageBuildDeadline,
            "cleanupAfterMinutes is over: set spec.retriggerBuild to open the download again".to_owned(),
        ),
    };
    status.state = Some(state);
    let download = match progress {
        Progress::Completed(download) => Some(download),
        Progress::Refused(_)
        | Progress::NoRegistration(_)
        | Progress::Started
        | Progress::Failed(_)
        | Progress::Expired => None,
    };
    let url = download.map(|d| format!("{}/elemental/seedimage/{}/{}", d.server_url, d.token, d.file));
    status.checksum_url = url.as_ref().map(|url| format!("{url}.sha256"));
    status.download_url = url;
    status.download_token = download.map(|download| download.token.clone());
    conditions::apply(
        &mut status.conditions,
        &findings(progress, reason, &message),
        image.metadata.generation,
        now,
    );
    status
}

fn findings(progress: &Progress, reason: Reason, message: &str) -> [Finding; 2] {
    match progress {
        Progress::Completed(_) => [
            Finding::holds(Type::Ready, Reason::ResourcesSuccessfullyCreated, ""),
            Finding::holds(Type::SeedImageReady, reason, ""),
        ],
        Progress::Started => [
            Finding::holds(Type::Ready, Reason::ResourcesSuccessfullyCreated, ""),
            Finding::fails(Type::SeedImageReady, reason, message),
        ],
        Progress::Refused(_) | Progress::NoRegistration(_) | Progress::Failed(_) | Progress::Expired => [
            Finding::fails(Type::Ready, reason, message),
            Finding::fails(Type::SeedImageReady, reason, message),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::registration::{MachineRegistrationSpec, MachineRegistrationStatus};
    use coordinator_api::seed_image::SeedImageSpec;

    fn image() -> SeedImage {
        let spec = SeedImageSpec {
            base_image: Some("http://127.0.0.1/base.iso".into()),
            cleanup_after_minutes: 60,
            ..Default::default()
        };
        SeedImage::new("seed", spec)
    }

    fn registration() -> MachineRegistration {
        let mut registration = MachineRegistration::new("r", MachineRegistrationSpec::default());
        let mut status =
            MachineRegistrationStatus { registration_url: Some("u".into()), ..Default::default() };
        let ready = Finding::holds(Type::Ready, Reason::SuccessfullyCreated, "");
        conditions::apply(&mut status.conditions, &[ready], None, Timestamp::UNIX_EPOCH);
        registration.status = Some(status);
        registration
    }

    fn minute(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn completed(at: i64) -> SeedImage {
        let mut image = image();
        let download = Download { server_url: "https://c:1".into(), token: "t".into(), file: "r.iso".into() };
        image.status = Some(status(&image, &Progress::Completed(download), minute(at)));
        image
    }

    #[test]
    fn what_cannot_be_made_is_refused_with_the_next_action() {
        let mut raw = image();
        raw.spec.kind = SeedImageType::Raw;
        let mut empty = image();
        empty.spec.base_image = None;
        for image in [raw, empty] {
            let Decision::Refuse(why) = decide(&image, Some(&registration()), minute(0)) else { panic!() };
            let status = status(&image, &Progress::Refused(why), minute(0));
            assert_eq!(status.state, Some(SeedImageState::Failed));
            assert!(status.conditions[0].message.contains(": "), "{why}");
        }
    }

    #[test]
    fn a_registration_is_waited_for() {
        assert_eq!(decide(&image(), None, minute(0)), Decision::AwaitRegistration);
        assert_eq!(decide(&image(), Some(&registration()), minute(0)), Decision::Build);
    }

    #[test]
    fn a_completed_image_says_where_it_is() {
        let status = completed(0).status.unwrap();
        assert_eq!(status.state, Some(SeedImageState::Completed));
        assert_eq!(status.download_url.as_deref(), Some("https://c:1/elemental/seedimage/t/r.iso"));
        assert_eq!(status.checksum_url.as_deref(), Some("https://c:1/elemental/seedimage/t/r.iso.sha256"));
    }

    #[test]
    fn a_download_closes_when_its_time_is_over_and_stays_closed() {
        let mut image = completed(0);
        let r = registration();
        assert_eq!(decide(&image, Some(&r), minute(59)), Decision::Build);
        assert_eq!(remaining(&image, minute(59)), Some(Duration::from_mins(1)));
        assert_eq!(decide(&image, Some(&r), minute(60)), Decision::Expire);
        image.status = Some(status(&image, &Progress::Expired, minute(60)));
        assert_eq!(image.status.as_ref().unwrap().download_url, None);
        assert_eq!(decide(&image, Some(&r), minute(61)), Decision::Expire);
        image.spec.retrigger_build = true;
        assert_eq!(decide(&image, Some(&r), minute(61)), Decision::Build);
    }

    #[test]
    fn zero_minutes_keep_a_download_open() {
        let mut image = completed(0);
        image.spec.cleanup_after_minutes = 0;
        assert_eq!(decide(&image, Some(&registration()), minute(100_000)), Decision::Build);
    }
}
