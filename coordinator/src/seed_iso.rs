//! Seed ISOs: no pod, no copy. A seed is its base image with a few files added
//! while it is sent: some blocks differ, some are new, and the rest is read
//! from the base. Only the checksum is computed ahead.

mod builds;
pub mod changes;
pub mod compose;
pub mod config;
pub mod download;
pub mod host_networks;
pub mod layout;
pub mod overlay;
pub mod partitions;
pub mod path_table;
pub mod records;
pub mod tree;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use coordinator_api::conditions::Reason;
use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image;
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use sha2::{Digest as _, Sha256};

use crate::base_image::{BaseImage, BaseImageError, BaseImages, Lease, Wanted};
use crate::ca::Authority;
use crate::clock::Clock;
use crate::rpc::registration_tokens::DownloadTokens;
use crate::telemetry::chain;
use builds::Builds;
use compose::NewFile;
use config::ConfigError;
use host_networks::HostNetworks;
use layout::{Base, Extent, LayoutError, ReadError};
use overlay::{Overlay, Piece};

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
    /// Nothing can be added to the base image.
    #[error("{0}: use an Elemental live ISO")]
    Layout(LayoutError),
    /// The agent's file cannot be read.
    #[error("cannot read the agent of --agent-path {path}", path = path.display())]
    Agent {
        /// Which file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The base image cannot be read back.
    #[error("cannot read the base image {path}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl From<LayoutError> for SeedIsoError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl SeedIsoError {
    /// Whether a retry is useless until the configuration changes.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Layout(_)
            | Self::Config(ConfigError::Yaml(_) | ConfigError::TooLarge | ConfigError::TooManyHosts(_)) => {
                true
            }
            Self::Base(error) => error.is_terminal(),
            Self::Config(ConfigError::NotReady) | Self::Agent { .. } | Self::Read { .. } => false,
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
            Self::Layout(_) => Reason::BaseImageInvalid,
            Self::Config(_) | Self::Agent { .. } | Self::Read { .. } => Reason::SeedImageBuildFailure,
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
    sources: Sources,
    overlay: Overlay,
    files: Vec<NewFile>,
    sha256: String,
}

/// The files that pieces come from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sources {
    base: PathBuf,
    /// Empty where no seed has the agent.
    agent: PathBuf,
}

impl Iso {
    /// The same bytes have the same name, other bytes another.
    fn file_name(&self, registration: &MachineRegistration) -> String {
        format!("{}-{}.iso", registration.name_any(), &self.sha256[..12])
    }

    /// Whether it has these files, but for those of single hosts.
    fn has_shared(&self, files: &[NewFile]) -> bool {
        let shared = |file: &&NewFile| file.name != config::NETWORKS;
        self.files.iter().filter(shared).eq(files.iter().filter(shared))
    }
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
    agent: Option<PathBuf>,
    networks: Arc<HostNetworks>,
    clock: Clock,
}

impl SeedIsos {
    /// Reads seed images and registrations from the given stores and trusts
    /// `authority`, whose certificate goes into every seed. With a path of the
    /// agent, its file goes there too.
    #[must_use]
    pub fn new(
        (bases, agent): (BaseImages, Option<PathBuf>),
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
            agent,
            networks: Arc::default(),
            clock: Clock::system(),
        }
    }

    /// With networks of single hosts.
    #[must_use]
    pub fn with_networks(self, networks: Arc<HostNetworks>) -> Self {
        Self { networks, ..self }
    }

    /// With another clock than that of the operating system.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
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
        let (iso, _) = self.find_ready(seed, registration, None).await?;
        Ok(Prepared {
            file: iso.file_name(registration),
            size: iso.overlay.size(),
            sha256: iso.sha256.clone(),
        })
    }

    /// The one that is `asked` for by name may have former networks of single
    /// hosts: downloads go on while inventories change.
    async fn find_ready(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
        asked: Option<&str>,
    ) -> Result<(Arc<Iso>, Lease), SeedIsoError> {
        let files = self.render_files(seed, registration)?;
        let digest = seed.spec.base_image_digest.as_deref();
        let base = self.bases.fetch_image(Wanted::of(seed), seed_image::base_image(seed), digest).await?;
        let agent = self.agent.clone().unwrap_or_default();
        let sources = Sources { base: base.path.clone(), agent };
        let is_asked = |iso: &Iso| asked.is_some_and(|asked| iso.file_name(registration) == asked);
        let is_fit = |iso: &Iso| iso.files == files || is_asked(iso) && iso.has_shared(&files);
        let held = self.held_iso(seed).filter(|iso| iso.sources == sources && is_fit(iso));
        if let Some(iso) = held {
            return Ok((iso, base.lease));
        }
        let iso = Self::make_iso(&base, sources, files).await?;
        self.keep_iso(ObjectRef::from_obj(seed), iso.clone());
        Ok((iso, base.lease))
    }

    fn render_files(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
    ) -> Result<Vec<NewFile>, SeedIsoError> {
        let hosts = self.networks.published(registration);
        let mut files = config::render_files(seed, registration, self.authority.certificates(), &hosts)?;
        if let Some(path) = &self.agent {
            let metadata = std::fs::metadata(path);
            let metadata = metadata.map_err(|source| SeedIsoError::Agent { path: path.clone(), source })?;
            files.extend(config::agent_files(metadata.len()));
        }
        Ok(files)
    }

    fn held_iso(&self, seed: &SeedImage) -> Option<Arc<Iso>> {
        let isos = self.isos.lock().unwrap_or_else(PoisonError::into_inner);
        isos.get(&ObjectRef::from_obj(seed)).cloned()
    }

    async fn make_iso(
        base: &BaseImage,
        sources: Sources,
        files: Vec<NewFile>,
    ) -> Result<Arc<Iso>, SeedIsoError> {
        let make = move || {
            let overlay = compose::compose(&mut Base::new(File::open(&sources.base)?)?, &files)?;
            let sha256 = checksum_iso(&sources, &overlay)?;
            Ok(Iso { sources, overlay, files, sha256 })
        };
        Ok(Arc::new(run_blocking(base, make).await?))
    }

    /// Those of deleted seeds are removed as another is added: each holds its
    /// files in memory.
    fn keep_iso(&self, key: ObjectRef<SeedImage>, iso: Arc<Iso>) {
        let mut isos = self.isos.lock().unwrap_or_else(PoisonError::into_inner);
        isos.retain(|seed, _| self.seeds.get(seed).is_some());
        isos.insert(key, iso);
    }

    /// The seed ISO behind a download token, when `file` is what the status
    /// names and what this replica would make now: the name holds the checksum,
    /// so that a changed registration, authority or base is never sent under
    /// the old one; changed networks of single hosts are, until the status names
    /// the new one. A replica that has not made it ready yet does so now.
    async fn open_iso(&self, token: &str, file: &str) -> Option<(Arc<Iso>, Lease)> {
        let seed = self.seeds.get(&self.downloads.find_object(token)?)?;
        let reference = &seed.spec.registration_ref;
        let namespace = reference.namespace.clone().or_else(|| seed.namespace())?;
        let name = ObjectRef::new(reference.name.as_deref()?).within(&namespace);
        let registration = self.registrations.get(&name)?;
        if !seed_image::may_download(&seed, Some(&registration), file, self.clock.now()) {
            return None;
        }
        match self.find_ready(&seed, &registration, Some(file)).await {
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
        Err(stopped) => Err(read(io::Error::other(stopped))),
    }
}

/// The checksum of the whole.
fn checksum_iso(sources: &Sources, overlay: &Overlay) -> Result<String, ReadError> {
    let mut hash = Sha256::new();
    for piece in overlay.pieces(Extent { at: 0, len: overlay.size() }) {
        match piece {
            Piece::Patch(bytes) => hash.update(&bytes),
            Piece::Base(extent) => hash_file(&sources.base, extent, &mut hash)?,
            Piece::Agent(extent) => hash_file(&sources.agent, extent, &mut hash)?,
        }
    }
    Ok(hex::encode(hash.finalize()))
}

fn hash_file(path: &Path, extent: Extent, hash: &mut Sha256) -> Result<(), ReadError> {
    let (mut file, mut block) = (File::open(path)?, vec![0; BLOCK]);
    file.seek(SeekFrom::Start(extent.at))?;
    let mut rest = file.take(extent.len);
    loop {
        match rest.read(&mut block)? {
            0 => return Ok(()),
            read => hash.update(&block[..read]),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
