//! Finds the seed ISO of a download URL.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image;
use kube::ResourceExt as _;
use tokio::time::{Instant, timeout_at};

use super::preparations::{Occasion, log_unserved};
use super::{Iso, SeedIsos};
use crate::base_image::Lease;
use crate::key::object_ref;

/// Longest wait of a download for an ISO that its replica is preparing.
const WAIT: Duration = Duration::from_secs(10);

/// The answer to a download URL.
pub(super) enum Opened {
    Ready(Arc<Iso>, Lease),
    /// This replica does not have the base yet.
    Preparing,
    Unknown,
}

impl SeedIsos {
    /// The seed ISO of a download token. `file` must be the name in the status and the name of the ISO
    /// that this replica would make now. The name contains the checksum, so that a changed
    /// registration, authority or base is never sent under the old name; changed networks of single
    /// hosts are, until the status has the new name. A replica that has not prepared the ISO does so
    /// now, and the download waits for a while.
    pub(super) async fn open_iso(self: &Arc<Self>, token: &str, file: &str) -> Opened {
        let Some((seed, registration)) = self.find_download(token, file) else { return Opened::Unknown };
        let deadline = Instant::now() + WAIT;
        let mut ended = self.preparations.follow_ends();
        loop {
            ended.mark_unchanged();
            if let Some(opened) = self.find_prepared(&seed, &registration, file).await {
                return opened;
            }
            if !self.start_preparation(&seed, &registration, Occasion::Download)
                || !matches!(timeout_at(deadline, ended.changed()).await, Ok(Ok(())))
            {
                return Opened::Preparing;
            }
        }
    }

    fn find_download(&self, token: &str, file: &str) -> Option<(Arc<SeedImage>, Arc<MachineRegistration>)> {
        let seed = self.seeds.get(&self.downloads.find_object(token)?)?;
        let registration = self.registration_of(&seed)?;
        let is_open = seed_image::may_download(&seed, Some(&registration), file, self.clock.now());
        is_open.then_some((seed, registration))
    }

    pub(super) fn registration_of(&self, seed: &SeedImage) -> Option<Arc<MachineRegistration>> {
        self.registrations.get(&object_ref(&seed.registration_key(), ()))
    }

    /// `None` while the ISO is not prepared.
    async fn find_prepared(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
        file: &str,
    ) -> Option<Opened> {
        let files = match self.render_files(seed, registration) {
            Ok(files) => files,
            Err(error) => {
                log_unserved(seed, &error);
                return Some(Opened::Unknown);
            }
        };
        let digest = seed.status.as_ref()?.base_digest.as_deref()?;
        let (base, lease) = self.bases.find_held(digest).await?;
        let sources = self.sources_of(base);
        let is_fit =
            |iso: &Iso| iso.files == files || iso.file_name(registration) == file && iso.has_shared(&files);
        let iso = self.held_iso(seed).filter(|iso| iso.sources == sources && is_fit(iso))?;
        let name = iso.file_name(registration);
        if name != file {
            let seed_image = seed.name_any();
            tracing::info!(
                seed_image,
                asked = file,
                now = name,
                "seed image differs from the one in its status"
            );
            return Some(Opened::Unknown);
        }
        Some(Opened::Ready(iso, lease))
    }
}
