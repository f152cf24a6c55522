//! The base ISO of a seed image, and the replicas that can serve it.

use std::collections::BTreeSet;

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::{SeedImage, SeedImageState, SeedImageStatus};
use jiff::Timestamp;

use super::{Decision, decide_build, recorded_base, recorded_state};

/// A base ISO, identified by its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseRecord {
    /// `sha256:` and hexadecimal digits.
    pub digest: String,
    /// Digest of the manifest if the ISO is from an image of a registry, because a tag may move.
    pub manifest: Option<String>,
}

impl BaseRecord {
    /// The base ISO that a status names.
    pub fn of(status: &SeedImageStatus) -> Option<Self> {
        let digest = status.base_digest.clone()?;
        Some(Self { digest, manifest: status.base_manifest_digest.clone() })
    }
}

/// Announcement of a live replica of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaBases {
    pub replica: String,
    /// Digests of its base ISOs.
    pub digests: BTreeSet<String>,
}

/// The replicas that need the base before the download opens, in the order of their names. An open
/// download stays open, because a replica that starts later fetches the base.
pub fn find_waiting(image: &SeedImage, base: &BaseRecord, others: &[ReplicaBases]) -> Vec<String> {
    let named = image.status.as_ref().and_then(|status| status.base_digest.as_ref());
    let is_open = recorded_state(image) == Some(SeedImageState::Completed);
    if is_open && named.is_none_or(|named| *named == base.digest) {
        return vec![];
    }
    let waiting = others.iter().filter(|other| !other.digests.contains(&base.digest));
    let mut waiting: Vec<_> = waiting.map(|other| other.replica.clone()).collect();
    waiting.sort_unstable();
    waiting
}

/// The base ISO that every replica holds while the image is being built or can be downloaded.
pub fn base_to_hold(
    image: &SeedImage,
    registration: Option<&MachineRegistration>,
    now: Timestamp,
) -> Option<BaseRecord> {
    let is_made = matches!(recorded_state(image), Some(SeedImageState::Started | SeedImageState::Completed));
    let is_wanted = is_made && decide_build(image, registration, now) == Decision::Build;
    recorded_base(image).filter(|_| is_wanted)
}
