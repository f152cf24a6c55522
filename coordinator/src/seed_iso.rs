//! Seed ISOs: no pod, no copy. A seed is its base image with the bytes of one
//! reserved file replaced while it is sent; only the checksum is computed
//! ahead, and of that only what comes after the reserved file.

mod builds;
pub mod config;
pub mod download;
pub mod layout;
pub mod overlay;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use coordinator_api::conditions::Reason;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::base_image::{BaseImage, BaseImageError, BaseImages, Lease, Wanted};
use crate::ca::Authority;
use crate::rpc::registration_tokens::DownloadTokens;
use crate::telemetry::chain;
use builds::Builds;
use config::ConfigError;
use layout::{DESCRIPTOR, Extent, LayoutError, SECTOR};
use overlay::{Overlay, Piece};

/// The file that upstream's live system reads.
pub const RESERVED: &str = "livecd-cloud-config.yaml";
/// Largest reserved file, bytes: it is held in memory for every seed.
const RESERVED_BYTES: u64 = 1024 * 1024;
const BLOCK: usize = 128 * 1024;

/// Why there is no seed ISO.
#[derive(Debug, thiserror::Error)]
pub enum SeedIsoError {
    /// See [`BaseImageError`].
    #[error(transparent)]
    Base(#[from] BaseImageError),
    /// See [`ConfigError`].
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The base image has no place for the configuration.
    #[error("{0}: use a base ISO built by this project's iso/, which reserves /{RESERVED}")]
    Layout(#[from] LayoutError),
    /// The reserved file holds something.
    #[error(
        "/{RESERVED} of the base image is not {RESERVED_BYTES} bytes of newlines or less: use a base ISO built by this project's iso/, unchanged"
    )]
    NotReserved,
    /// The base image cannot be read back.
    #[error("cannot read the base image {path}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl SeedIsoError {
    /// Whether a retry is useless until the configuration changes.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Layout(_)
            | Self::NotReserved
            | Self::Config(ConfigError::Yaml(_) | ConfigError::TooLarge { .. }) => true,
            Self::Base(error) => error.is_terminal(),
            Self::Config(ConfigError::NotReady) | Self::Read { .. } => false,
        }
    }

    /// What the status of the `SeedImage` says.
    #[must_use]
    pub fn status_text(&self) -> String {
        let neutral = if let Self::Base(error) = self { error.neutral_text() } else { None };
        neutral.map_or_else(|| chain(self), str::to_owned)
    }

    /// The cause, for a condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Base(error) => error.reason(),
            Self::Layout(_) | Self::NotReserved => Reason::BaseImageInvalid,
            Self::Config(_) | Self::Read { .. } => Reason::SeedImageBuildFailure,
        }
    }

    /// Whether a retry would fetch the base in vain.
    #[must_use]
    pub fn is_fetched_in_vain(&self) -> bool {
        matches!(self, Self::Base(error) if error.is_fetched_in_vain())
    }
}

/// A seed ISO that can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Name of the file, last part of the download URL.
    pub file: String,
}

/// What is needed to send a seed ISO.
#[derive(Debug)]
struct Iso {
    base: PathBuf,
    overlay: Overlay,
    patch: Bytes,
    sha256: String,
}

impl Iso {
    /// The same bytes have the same name, other bytes another.
    fn file_name(&self, registration: &MachineRegistration) -> String {
        format!("{}-{}.iso", registration.name_any(), &self.sha256[..12])
    }
}

/// What is known of a base image: where the reserved file is, and the state of
/// the hash right before it.
#[derive(Clone)]
struct Known {
    reserved: Extent,
    before: Sha256,
}

/// All seed ISOs of this replica.
pub struct SeedIsos {
    bases: BaseImages,
    seeds: Store<SeedImage>,
    downloads: Arc<DownloadTokens>,
    registrations: Store<MachineRegistration>,
    authority: Arc<Authority>,
    isos: Mutex<HashMap<ObjectRef<SeedImage>, Arc<Iso>>>,
    builds: Builds,
    /// Of the bases that are stored.
    known: Mutex<HashMap<String, Arc<OnceCell<Known>>>>,
}

impl SeedIsos {
    /// Reads seed images and registrations from the given stores and trusts
    /// `authority`, whose certificate goes into every seed.
    #[must_use]
    pub fn new(
        bases: BaseImages,
        (seeds, downloads): (Store<SeedImage>, Arc<DownloadTokens>),
        registrations: Store<MachineRegistration>,
        authority: Arc<Authority>,
    ) -> Self {
        Self {
            bases,
            seeds,
            downloads,
            registrations,
            authority,
            isos: Mutex::default(),
            builds: Builds::default(),
            known: Mutex::default(),
        }
    }

    /// Makes the seed ISO of `seed` ready. Cheap when nothing has changed: call
    /// it with every reconcile. While `spec.retriggerBuild` is to be done the
    /// base image is asked for again.
    ///
    /// # Errors
    /// [`SeedIsoError`].
    pub async fn prepare_iso(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
    ) -> Result<Prepared, SeedIsoError> {
        let (iso, _) = self.find_ready(seed, registration).await?;
        Ok(Prepared {
            file: iso.file_name(registration),
            size: iso.overlay.size(),
            sha256: iso.sha256.clone(),
        })
    }

    async fn find_ready(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
    ) -> Result<(Arc<Iso>, Lease), SeedIsoError> {
        let text = config::render_config(seed, registration, self.authority.certificate())?;
        let digest = seed.spec.base_image_digest.as_deref();
        let base = self.bases.fetch_image(Wanted::of(seed), seed_image::base_image(seed), digest).await?;
        let held = self.held_iso(seed).filter(|iso| iso.base == base.path);
        if let Some(iso) = held
            && config::fill_archive(&text, iso.patch.len() as u64)? == iso.patch
        {
            return Ok((iso, base.lease));
        }
        let known = self.known_image(&base).await?;
        let patch = config::fill_archive(&text, known.reserved.len)?;
        let iso = Self::make_iso(&base, known, patch).await?;
        self.keep_iso(ObjectRef::from_obj(seed), iso.clone());
        Ok((iso, base.lease))
    }

    fn held_iso(&self, seed: &SeedImage) -> Option<Arc<Iso>> {
        let isos = self.isos.lock().unwrap_or_else(PoisonError::into_inner);
        isos.get(&ObjectRef::from_obj(seed)).cloned()
    }

    /// One base is read once at a time, and no other base waits for it.
    async fn known_image(&self, base: &BaseImage) -> Result<Known, SeedIsoError> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|sha256, _| self.bases.contains_content(sha256));
            known.entry(base.sha256.clone()).or_default().clone()
        };
        let (path, size) = (base.path.clone(), base.size);
        let read = async || run_blocking(base, move || read_known(&path, size)).await;
        cell.get_or_try_init(read).await.cloned()
    }

    async fn make_iso(base: &BaseImage, known: Known, patch: Bytes) -> Result<Arc<Iso>, SeedIsoError> {
        let overlay = Overlay::new(base.size, known.reserved.at, patch.clone())
            .ok_or(SeedIsoError::Layout(LayoutError::Garbled))?;
        let (file, whole) = (base.path.clone(), overlay.clone());
        let sha256 = run_blocking(base, move || checksum_iso(&file, &whole, known.before)).await?;
        Ok(Arc::new(Iso { base: base.path.clone(), overlay, patch, sha256 }))
    }

    /// Those of deleted seeds are removed as another is added: each holds its
    /// reserved file in memory.
    fn keep_iso(&self, key: ObjectRef<SeedImage>, iso: Arc<Iso>) {
        let mut isos = self.isos.lock().unwrap_or_else(PoisonError::into_inner);
        isos.retain(|seed, _| self.seeds.get(seed).is_some());
        isos.insert(key, iso);
    }

    /// The seed ISO behind a download token, when `file` is what the status
    /// names and what this replica would make now: the name holds the checksum,
    /// so that a changed registration, authority or base is never sent under
    /// the old one. A replica that has not made it ready yet does so now.
    async fn open_iso(&self, token: &str, file: &str) -> Option<(Arc<Iso>, Lease)> {
        let seed = self.seeds.get(&self.downloads.find_object(token)?)?;
        let reference = &seed.spec.registration_ref;
        let namespace = reference.namespace.clone().or_else(|| seed.namespace())?;
        let name = ObjectRef::new(reference.name.as_deref()?).within(&namespace);
        let registration = self.registrations.get(&name)?;
        if !seed_image::may_download(&seed, Some(&registration), file, Timestamp::now()) {
            return None;
        }
        match self.find_ready(&seed, &registration).await {
            Ok((iso, lease)) if iso.file_name(&registration) == file => Some((iso, lease)),
            Ok((iso, _)) => {
                say_changed(&seed, file, &iso.file_name(&registration));
                None
            }
            Err(error) => {
                say_failed(&seed, &error);
                None
            }
        }
    }
}

fn say_changed(seed: &SeedImage, asked: &str, now: &str) {
    tracing::info!(seed_image = seed.name_any(), asked, now, "a seed image is not what its status names");
}

fn say_failed(seed: &SeedImage, error: &SeedIsoError) {
    tracing::warn!(seed_image = seed.name_any(), error = %chain(error), "cannot serve a seed image");
}

async fn run_blocking<T: Send + 'static>(
    base: &BaseImage,
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, SeedIsoError> {
    let read = |source| SeedIsoError::Read { path: base.path.clone(), source };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(ReadError::Io(source))) => Err(read(source)),
        Ok(Err(ReadError::Layout(error))) => Err(error.into()),
        Ok(Err(ReadError::NotReserved)) => Err(SeedIsoError::NotReserved),
        Err(stopped) => Err(read(io::Error::other(stopped))),
    }
}

enum ReadError {
    Io(io::Error),
    Layout(LayoutError),
    NotReserved,
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<LayoutError> for ReadError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

/// Reads bytes that must be there; `len` is bounded by the caller.
fn read_at(file: &mut File, extent: Extent) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(extent.at))?;
    let got = file.take(extent.len).read_to_end(&mut bytes)?;
    if got as u64 != extent.len {
        return Err(LayoutError::Garbled.into());
    }
    Ok(bytes)
}

fn read_known(path: &Path, size: u64) -> Result<Known, ReadError> {
    let mut file = File::open(path)?;
    if size < (DESCRIPTOR + 1) * SECTOR {
        return Err(LayoutError::NotIso.into());
    }
    let descriptor = read_at(&mut file, Extent { at: DESCRIPTOR * SECTOR, len: SECTOR })?;
    let root = read_at(&mut file, layout::parse_root(&descriptor)?)?;
    let reserved = layout::parse_file(&root, RESERVED)?;
    if reserved.len == 0 || reserved.len > RESERVED_BYTES {
        return Err(ReadError::NotReserved);
    }
    if read_at(&mut file, reserved)?.iter().any(|byte| *byte != b'\n') {
        return Err(ReadError::NotReserved);
    }
    let mut before = Sha256::new();
    hash_file(&mut file, Extent { at: 0, len: reserved.at }, &mut before)?;
    Ok(Known { reserved, before })
}

fn hash_file(file: &mut File, extent: Extent, hash: &mut Sha256) -> Result<(), ReadError> {
    let mut block = vec![0; BLOCK];
    file.seek(SeekFrom::Start(extent.at))?;
    let mut rest = file.take(extent.len);
    loop {
        match rest.read(&mut block)? {
            0 => return Ok(()),
            read => hash.update(&block[..read]),
        }
    }
}

/// The checksum of the whole; `hash` has seen everything before the patch.
fn checksum_iso(path: &Path, overlay: &Overlay, mut hash: Sha256) -> Result<String, ReadError> {
    let mut file = File::open(path)?;
    let from = overlay.at();
    for piece in overlay.pieces(Extent { at: from, len: overlay.size() - from }) {
        match piece {
            Piece::Patch(bytes) => hash.update(&bytes),
            Piece::Base(extent) => hash_file(&mut file, extent, &mut hash)?,
        }
    }
    Ok(hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests;
