//! Failures of base images, and who has to act.

use std::io;
use std::path::PathBuf;

use coordinator_api::conditions::Reason;
use coordinator_core::seed_image::base::BaseRefusal;
use coordinator_core::seed_image::image_files::Ambiguous;
use coordinator_core::seed_image::platform::Platform;
use coordinator_core::seed_image::pull_secret::PullSecretError;
use http::StatusCode;
use serde::{Deserialize, Serialize};

/// A failure to fetch or store a base image. Failures that only the coordinator meets are not sent
/// between processes.
#[derive(Debug, Deserialize, Serialize, thiserror::Error)]
pub enum BaseImageError {
    /// `spec.baseImage` is no valid base.
    #[serde(skip)]
    #[error(transparent)]
    Refused(#[from] BaseRefusal),
    /// The server did not answer, or stopped in the middle.
    #[error("cannot fetch {url}: {reason}; it is tried again")]
    Fetch { url: String, reason: String },
    /// The server answered something else.
    #[error("{url} answers {status}: correct spec.baseImage or the server")]
    Status {
        url: String,
        #[serde(with = "status_code")]
        status: StatusCode,
    },
    /// DNS has no address.
    #[error(
        "the host of {url}, or one that it redirects to, has no address: correct spec.baseImage or DNS; it is tried again"
    )]
    HostUnknown { url: String },
    /// The certificate of the server is not accepted.
    #[error(
        "the certificate of {url} is not accepted ({reason}): name a Secret with the authority that signed it in spec.baseImageCASecret, or correct the server"
    )]
    Untrusted { url: String, reason: String },
    /// 401 or 403.
    #[error("the registry refuses to show {image} to {user}: {action}, or correct spec.baseImage")]
    Unauthorized { image: String, user: String, action: String },
    /// A Secret cannot be read now.
    #[serde(skip)]
    #[error("cannot read Secret {name}; it is tried again")]
    SecretUnread {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// A Secret does not exist.
    #[serde(skip)]
    #[error("Secret {name} of {field} does not exist in the namespace of the SeedImage: create it")]
    SecretMissing { name: String, field: String },
    /// The pull Secret has no credentials for the image.
    #[serde(skip)]
    #[error("Secret {name} of spec.baseImagePullSecret {source}: correct it")]
    PullSecret { name: String, source: PullSecretError },
    /// The Secret has no certificates.
    #[error("Secret {name} of spec.baseImageCASecret has no certificates in PEM under ca.crt: correct it")]
    AuthoritySecret { name: String },
    /// 404, or no such file.
    #[error("{url} does not exist: correct spec.baseImage, or put it there")]
    NotFound { url: String },
    /// The registry sent something that is no image.
    #[error("{image} is not usable: {reason}: push it again, or correct spec.baseImage")]
    Malformed { image: String, reason: String },
    /// No layer has an ISO.
    #[error("{image} has no ISO 9660 file in its layers: use an image with one in /elemental-iso/")]
    NoIso { image: String },
    /// The layers have several ISOs.
    #[error("{image} has several ISO 9660 files, {files}: use an image with one in /elemental-iso/")]
    SeveralIsos { image: String, files: String },
    #[error("{image} is for {found}: use an image for {hosts}")]
    Platform {
        image: String,
        found: String,
        /// Platform of the agent.
        hosts: Platform,
    },
    /// The `SeedImage` is for hosts of another platform.
    #[error("spec.targetPlatform is {asked}, and the agent is for {hosts}: use {hosts}, or remove it")]
    TargetPlatform {
        asked: Platform,
        /// Platform of the agent.
        hosts: Platform,
    },
    /// Larger than `--base-image-size`.
    #[error("{url} is larger than --base-image-size allows: correct spec.baseImage, or raise the flag")]
    TooLarge { url: String },
    /// The digest differs from `spec.baseImageDigest`.
    #[error("{url} is not what spec.baseImageDigest says: correct the digest or the server's file")]
    Digest { url: String },
    /// The source has another base than the one that the `SeedImage` was made from.
    #[error(
        "{url} does not have the base ISO any more that the SeedImage was made from: set spec.retriggerBuild: true to make it from the current one"
    )]
    Changed { url: String },
    /// The registry sent other bytes than requested.
    #[error(
        "the registry sent something else as {digest} of {image}: correct the registry; it is tried again"
    )]
    Corrupt {
        image: String,
        /// Digest of the manifest or layer.
        digest: String,
    },
    /// Slower than `--base-image-timeout`.
    #[error("{url} did not arrive within --base-image-timeout; it is tried again")]
    Slow { url: String },
    /// No directory is configured, or the path is not below it.
    #[error(
        "{url} is not below --base-image-directory of the coordinator: put the file there, or use an OCI reference or an http(s) URL"
    )]
    Outside { url: String },
    /// A file of the directory cannot be read.
    #[error("cannot read {url}: check the volume of --base-image-directory; it is tried again")]
    Unreadable {
        url: String,
        #[serde(with = "cause")]
        source: io::Error,
    },
    /// Every file of the cache is in use.
    #[error(
        "the volume of base images is full of images that are in use, or half full of unfinished ones of this namespace: raise --cache-size, or --arriving-size of fetch-base-images"
    )]
    Full,
    /// The cache directory cannot be read or written.
    #[error("cannot store base images in {path}: check its free space and permissions", path = path.display())]
    Cache {
        path: PathBuf,
        #[serde(with = "cause")]
        source: io::Error,
    },
    /// The system has no root certificates.
    #[error("cannot set up https: install the ca-certificates of the system")]
    Tls(
        #[source]
        #[serde(with = "cause")]
        io::Error,
    ),
    /// The process of `--base-image-socket` does not answer, or ended in the middle.
    #[error("fetch-base-images does not answer; it is tried again")]
    Away(
        #[source]
        #[serde(with = "cause")]
        io::Error,
    ),
}

impl BaseImageError {
    pub(super) fn fetch(url: &str, reason: impl Into<String>) -> Self {
        Self::Fetch { url: url.to_owned(), reason: reason.into() }
    }

    pub(super) fn away(reason: &str) -> Self {
        Self::Away(io::Error::other(reason))
    }

    /// An image without a file that can only be the base ISO.
    pub(super) fn ambiguous(image: &str, found: &Ambiguous) -> Self {
        let image = image.to_owned();
        if found.names.is_empty() {
            return Self::NoIso { image };
        }
        let mut files = found.names.join(", ");
        if found.more > 0 {
            files = format!("{files} and {} more", found.more);
        }
        Self::SeveralIsos { image, files }
    }

    /// Text for the status of an object if the error itself is only for the log, because it reveals
    /// the coordinator's network to the author of the object.
    pub fn neutral_text(&self) -> Option<&'static str> {
        match self {
            Self::Fetch { .. } | Self::Status { .. } | Self::Slow { .. } => Some(
                "spec.baseImage cannot be fetched: correct it, or the server; the coordinator's log has the cause. It is tried again",
            ),
            Self::SecretUnread { .. } => Some(
                "a Secret of spec.baseImage cannot be read: the coordinator's log has the cause. It is tried again",
            ),
            Self::Unreadable { .. } => Some(
                "spec.baseImage cannot be read from --base-image-directory: the coordinator's log has the cause. It is tried again",
            ),
            Self::Away(_) => Some(
                "the process that fetches base images does not answer: see the container base-images of the coordinator and its log. It is tried again",
            ),
            _ => None,
        }
    }

    pub fn reason(&self) -> Reason {
        match self {
            Self::Refused(_) | Self::Malformed { .. } | Self::Outside { .. } => Reason::BaseImageInvalid,
            Self::Fetch { .. } | Self::Status { .. } | Self::Unreadable { .. } => {
                Reason::BaseImageUnreachable
            }
            Self::HostUnknown { .. } => Reason::BaseImageHostUnknown,
            Self::Untrusted { .. } => Reason::BaseImageUntrusted,
            Self::Unauthorized { .. } => Reason::BaseImageUnauthorized,
            Self::SecretUnread { .. }
            | Self::SecretMissing { .. }
            | Self::PullSecret { .. }
            | Self::AuthoritySecret { .. } => Reason::BaseImageSecretInvalid,
            Self::NotFound { .. } => Reason::BaseImageNotFound,
            Self::NoIso { .. } => Reason::BaseImageWithoutISO,
            Self::SeveralIsos { .. } => Reason::BaseImageWithSeveralISOs,
            Self::Platform { .. } | Self::TargetPlatform { .. } => Reason::BaseImagePlatformMismatch,
            Self::TooLarge { .. } => Reason::BaseImageTooLarge,
            Self::Digest { .. } | Self::Changed { .. } | Self::Corrupt { .. } => {
                Reason::BaseImageDigestMismatch
            }
            Self::Slow { .. } => Reason::BaseImageTimedOut,
            Self::Away(_) => Reason::BaseImageFetcherUnavailable,
            Self::Full | Self::Cache { .. } | Self::Tls(_) => Reason::SeedImageBuildFailure,
        }
    }

    /// A retry is useless until the configuration changes.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Untrusted { .. }
            | Self::Unauthorized { .. }
            | Self::SecretMissing { .. }
            | Self::PullSecret { .. }
            | Self::AuthoritySecret { .. }
            | Self::NotFound { .. }
            | Self::Malformed { .. }
            | Self::NoIso { .. }
            | Self::SeveralIsos { .. }
            | Self::Platform { .. }
            | Self::TargetPlatform { .. }
            | Self::TooLarge { .. }
            | Self::Digest { .. }
            | Self::Changed { .. }
            | Self::Outside { .. } => true,
            Self::Status { status, .. } => {
                status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS
            }
            Self::Fetch { .. }
            | Self::HostUnknown { .. }
            | Self::SecretUnread { .. }
            | Self::Corrupt { .. }
            | Self::Slow { .. }
            | Self::Unreadable { .. }
            | Self::Full
            | Self::Cache { .. }
            | Self::Tls(_)
            | Self::Away(_) => false,
        }
    }

    /// A retry would download the whole base and fail again.
    pub fn is_fetched_in_vain(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. }
                | Self::Digest { .. }
                | Self::Changed { .. }
                | Self::NoIso { .. }
                | Self::SeveralIsos { .. }
        )
    }
}

/// A status code as its number.
mod status_code {
    use http::StatusCode;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(status.as_u16())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<StatusCode, D::Error> {
        StatusCode::from_u16(u16::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A cause as its text.
mod cause {
    use std::io;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(cause: &io::Error, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(cause)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<io::Error, D::Error> {
        String::deserialize(deserializer).map(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::chain;

    #[test]
    fn errors_keep_their_meaning_between_processes() {
        let url = || "https://h.example/a.iso".to_owned();
        let image = || "r.example/os:v1".to_owned();
        let failure = || io::Error::from_raw_os_error(28);
        let status = StatusCode::TOO_MANY_REQUESTS;
        let (user, action) = ("anonymous users".to_owned(), "name a Secret".to_owned());
        for error in [
            BaseImageError::fetch("https://h.example/a.iso", "no answer in time"),
            BaseImageError::Status { url: url(), status },
            BaseImageError::Status { url: url(), status: StatusCode::NOT_FOUND },
            BaseImageError::HostUnknown { url: url() },
            BaseImageError::Untrusted { url: url(), reason: "UnknownIssuer".to_owned() },
            BaseImageError::Unauthorized { image: image(), user, action },
            BaseImageError::NotFound { url: url() },
            BaseImageError::Malformed { image: image(), reason: "it has no layers".to_owned() },
            BaseImageError::NoIso { image: image() },
            BaseImageError::SeveralIsos { image: image(), files: "a, b".to_owned() },
            BaseImageError::Platform {
                image: image(),
                found: "linux/s390x".to_owned(),
                hosts: Platform::Arm64,
            },
            BaseImageError::TooLarge { url: url() },
            BaseImageError::Corrupt { image: image(), digest: "sha256:0".to_owned() },
            BaseImageError::Full,
            BaseImageError::Cache { path: "/var/a".into(), source: failure() },
            BaseImageError::Tls(failure()),
        ] {
            let text = serde_json::to_string(&error).unwrap();
            let read: BaseImageError = serde_json::from_str(&text).unwrap();
            let meaning = |error: &BaseImageError| {
                let ends = (error.is_terminal(), error.is_fetched_in_vain());
                (chain(error), error.neutral_text(), error.reason(), ends)
            };
            assert_eq!(meaning(&read), meaning(&error));
        }
        let own = BaseImageError::SecretMissing { name: "a".to_owned(), field: "b".to_owned() };
        assert!(serde_json::to_string(&own).is_err(), "only the coordinator meets it");
    }
}
