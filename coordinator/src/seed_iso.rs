//! Seed ISOs, served without a pod and without a copy. A seed is its base image with a few files
//! added during the download: some blocks differ, some are new, and the rest is read from the base.
//! Only the checksum is computed ahead.

mod budget;
mod builds;
pub mod changes;
pub mod compose;
pub mod config;
pub mod download;
mod error;
pub mod host_networks;
pub mod layout;
mod open;
pub mod overlay;
pub mod partitions;
pub mod path_table;
mod preparations;
pub mod records;
pub mod tree;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image::{self, BaseRecord};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use sha2::{Digest as _, Sha256};

use crate::base_image::{BaseImage, BaseImageError, BaseImages, Wanted};
use crate::ca::Authority;
use crate::clock::Clock;
use crate::key::Namespace;
use crate::rpc::registration_tokens::DownloadTokens;
use crate::telemetry::chain;
use builds::Builds;
use compose::NewFile;
use host_networks::HostNetworks;
use layout::{Base, Extent, ReadError, Stop};
use overlay::{Overlay, Piece};
use preparations::Preparations;

pub use error::SeedIsoError;

const BLOCK: usize = 128 * 1024;
/// Longest time of composing a seed ISO and of its checksum: 8 GiB at 15 MB/s.
const MAKE_TIMEOUT: Duration = Duration::from_mins(10);

/// A seed ISO that can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    /// Name of the file, last part of the download URL.
    pub file: String,
    /// The base that it is made from.
    pub base: BaseRecord,
}

/// A seed ISO that can be sent.
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
    /// Empty if no seed has the agent.
    agent: PathBuf,
}

impl Iso {
    /// The name contains the checksum, so that other bytes have another name.
    fn file_name(&self, registration: &MachineRegistration) -> String {
        format!("{}-{}.iso", registration.name_any(), &self.sha256[..12])
    }

    /// The ISO has these files; the networks of single hosts may differ.
    fn has_shared(&self, files: &[NewFile]) -> bool {
        list_shared(&self.files).eq(list_shared(files))
    }
}

fn list_shared(files: &[NewFile]) -> impl Iterator<Item = &NewFile> {
    files.iter().filter(|file| file.name != config::NETWORKS)
}

/// The seed ISO of one `SeedImage`.
#[derive(Default)]
struct Slot {
    iso: Mutex<Option<Arc<Iso>>>,
    /// Held while the whole base is read, so that it is read once for all who wait.
    making: tokio::sync::Mutex<()>,
}

impl Slot {
    fn held_iso(&self) -> Option<Arc<Iso>> {
        self.iso.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All seed ISOs of this replica.
pub struct SeedIsos {
    bases: BaseImages,
    seeds: Store<SeedImage>,
    downloads: Arc<DownloadTokens>,
    registrations: Store<MachineRegistration>,
    authority: Arc<Authority>,
    slots: Mutex<HashMap<ObjectRef<SeedImage>, Arc<Slot>>>,
    builds: Builds,
    preparations: Preparations,
    agent: Option<PathBuf>,
    networks: Arc<HostNetworks>,
    clock: Clock,
}

impl SeedIsos {
    /// Every seed contains the certificate of `authority`, and the file of the agent if there is a path.
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
            slots: Mutex::default(),
            builds: Builds::default(),
            preparations: Preparations::default(),
            agent,
            networks: Arc::default(),
            clock: Clock::system(),
        }
    }

    pub fn with_networks(self, networks: Arc<HostNetworks>) -> Self {
        Self { networks, ..self }
    }

    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Makes the seed ISO of `seed` ready. The call is cheap if nothing has changed, so that every
    /// reconcile may make it. The base image is fetched again while `spec.retriggerBuild` asks for a
    /// build.
    pub async fn prepare_iso(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
    ) -> Result<Prepared, SeedIsoError> {
        let files = self.render_files(seed, registration)?;
        let base = self.obtain_base(seed).await?;
        let iso = self.ensure_iso(seed, &base, files).await?;
        Ok(Prepared {
            file: iso.file_name(registration),
            size: iso.overlay.size(),
            sha256: iso.sha256.clone(),
            base: base.record(),
        })
    }

    /// The base that the status names, or the current one if the source does not have that any more.
    async fn obtain_base(&self, seed: &SeedImage) -> Result<BaseImage, BaseImageError> {
        let wanted = Wanted::of(seed);
        if let Some(recorded) = seed_image::recorded_base(seed) {
            match self.bases.fetch_recorded(wanted.clone(), &recorded).await {
                Err(error @ (BaseImageError::Changed { .. } | BaseImageError::NotFound { .. })) => {
                    tracing::warn!(error = %chain(&error), "recorded base ISO is not available, using the current one");
                }
                obtained => return obtained,
            }
        }
        let digest = seed.spec.base_image_digest.as_deref();
        self.bases.fetch_image(wanted, seed_image::base_image(seed), digest).await
    }

    async fn ensure_iso(
        &self,
        seed: &SeedImage,
        base: &BaseImage,
        files: Vec<NewFile>,
    ) -> Result<Arc<Iso>, SeedIsoError> {
        let (slot, sources) = (self.slot_of(seed), self.sources_of(base.path.clone()));
        let _turn = slot.making.lock().await;
        let held = slot.held_iso().filter(|iso| iso.sources == sources && iso.files == files);
        if let Some(iso) = held {
            return Ok(iso);
        }
        let _permit = self.bases.make_permits().acquire(&Namespace::of(seed)).await;
        let iso = Self::make_iso(base, sources, files).await?;
        *slot.iso.lock().unwrap_or_else(PoisonError::into_inner) = Some(iso.clone());
        self.drop_surplus(&ObjectRef::from_obj(seed));
        Ok(iso)
    }

    /// Drops ISOs that take too much memory together; each is made again when it is asked for.
    fn drop_surplus(&self, newest: &ObjectRef<SeedImage>) {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = slots.iter().filter(|(seed, _)| *seed != newest);
        let kept = kept.filter_map(|(seed, slot)| Some((seed, slot.held_iso()?.overlay.stored())));
        let newest_iso = slots.get(newest).and_then(|slot| slot.held_iso());
        let newest = (newest, newest_iso.map_or(0, |iso| iso.overlay.stored()));
        for seed in budget::find_surplus(kept.collect(), newest) {
            if let Some(slot) = slots.get(&seed) {
                *slot.iso.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
    }

    fn held_iso(&self, seed: &SeedImage) -> Option<Arc<Iso>> {
        self.slot_of(seed).held_iso()
    }

    fn sources_of(&self, base: PathBuf) -> Sources {
        Sources { base, agent: self.agent.clone().unwrap_or_default() }
    }

    /// Adding a slot removes the slots of deleted seeds, because each holds its files in memory.
    fn slot_of(&self, seed: &SeedImage) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let key = ObjectRef::from_obj(seed);
        if !slots.contains_key(&key) {
            slots.retain(|seed, _| self.seeds.get(seed).is_some());
        }
        slots.entry(key).or_default().clone()
    }

    fn render_files(
        &self,
        seed: &SeedImage,
        registration: &MachineRegistration,
    ) -> Result<Vec<NewFile>, SeedIsoError> {
        let hosts = self.networks.published(registration);
        let mut files = config::render_files(seed, registration, self.authority.certificates(), &hosts)?;
        if let Some(path) = &self.agent {
            let agent = config::agent_files(path);
            files.extend(agent.map_err(|source| SeedIsoError::Agent { path: path.clone(), source })?);
        }
        Ok(files)
    }

    async fn make_iso(
        base: &BaseImage,
        sources: Sources,
        files: Vec<NewFile>,
    ) -> Result<Arc<Iso>, SeedIsoError> {
        let (stop, waiting) = Stop::at(Instant::now() + MAKE_TIMEOUT);
        let made = run_blocking(base, move || {
            let mut read = Base::new(File::open(&sources.base)?)?.until(stop.clone());
            let overlay = compose::compose(&mut read, &files)?;
            let sha256 = checksum_iso(&sources, &overlay, &stop)?;
            Ok(Iso { sources, overlay, files, sha256 })
        });
        let made = made.await;
        drop(waiting);
        Ok(Arc::new(made?))
    }
}

async fn run_blocking<T: Send + 'static>(
    base: &BaseImage,
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, SeedIsoError> {
    let source = match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(ReadError::Layout(error))) => return Err(error.into()),
        Ok(Err(ReadError::Io(source))) => source,
        Err(stopped) => io::Error::other(stopped),
    };
    Err(SeedIsoError::Read { path: base.path.clone(), source })
}

fn checksum_iso(sources: &Sources, overlay: &Overlay, stop: &Stop) -> Result<String, ReadError> {
    let mut hash = Sha256::new();
    for piece in overlay.pieces(Extent { at: 0, len: overlay.size() }) {
        match piece {
            Piece::Patch(bytes) => hash.update(&bytes),
            Piece::Base(extent) => hash_file(&sources.base, extent, (&mut hash, stop))?,
            Piece::Agent(extent) => hash_file(&sources.agent, extent, (&mut hash, stop))?,
        }
    }
    Ok(hex::encode(hash.finalize()))
}

fn hash_file(path: &Path, extent: Extent, (hash, stop): (&mut Sha256, &Stop)) -> Result<(), ReadError> {
    let (mut file, mut block) = (File::open(path)?, vec![0; BLOCK]);
    file.seek(SeekFrom::Start(extent.at))?;
    let mut rest = file.take(extent.len);
    loop {
        stop.check()?;
        match rest.read(&mut block)? {
            0 => return Ok(()),
            read => hash.update(&block[..read]),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
