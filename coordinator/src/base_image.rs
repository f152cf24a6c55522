//! Base ISOs: fetched once for each base, kept by their content.
//!
//! A file under its own SHA-256 never changes, so that a download that runs
//! goes on while another version of the same base arrives.

mod directory;
mod error;
mod fetch;
mod image;
mod keep;
mod layer;
mod ledger;
pub mod limits;
mod manifest;
mod pointer;
mod registry;
mod secrets;
mod targets;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image::base::{BaseSource, parse_base};
use coordinator_core::seed_image::platform::Platform;
use coordinator_core::seed_image::{Base, BaseRecord};
use http::{HeaderMap, Uri, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::{Client, ResourceExt as _};
use tokio::fs;

use crate::telemetry::chain;
use fetch::Fetcher;
use keep::{Arrived, KeepError, Writer};
use ledger::Ledger;
use limits::BaseImageLimits;
use targets::{BaseHost, Targets};

pub use error::BaseImageError;
pub use ledger::Lease;

/// A server that sends nothing for so long is given up.
const SILENCE: Duration = Duration::from_mins(1);

/// A base ISO on the local disk.
#[derive(Clone, Debug)]
pub struct BaseImage {
    /// Where; the content never changes.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Digest of the manifest, where it is from an image of a registry.
    pub manifest: Option<String>,
    /// The file is kept as long as this.
    pub lease: Lease,
}

impl BaseImage {
    /// What the status of a `SeedImage` says of it.
    pub fn record(&self) -> BaseRecord {
        BaseRecord { digest: digest_of(&self.sha256), manifest: self.manifest.clone() }
    }
}

/// What a `SeedImage` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    text: String,
    namespace: String,
    pull_secret: Option<String>,
    authority_secret: Option<String>,
    /// Digest of a manifest: this one, whatever the tag names now.
    manifest: Option<String>,
    /// `spec.targetPlatform`.
    platform: Option<Platform>,
}

impl Wanted {
    /// Its base, and what is needed to fetch it.
    pub fn of(seed: &SeedImage) -> Self {
        Self {
            text: seed.spec.base_image.clone().unwrap_or_default(),
            namespace: seed.namespace().unwrap_or_default(),
            pull_secret: seed.spec.base_image_pull_secret.clone(),
            authority_secret: seed.spec.base_image_ca_secret.clone(),
            manifest: None,
            platform: seed.spec.target_platform.as_deref().and_then(Platform::parse),
        }
    }

    /// Who may see an image is for its registry to say: what was fetched with
    /// credentials is not found without them.
    fn pointer_key(&self, source: &BaseSource) -> String {
        match (source, &self.pull_secret) {
            (BaseSource::Image(image), Some(name)) => format!("{image} {}/{name}", self.namespace),
            (BaseSource::Image(image), None) => image.whole(),
            (BaseSource::Url(_) | BaseSource::File(_), _) => self.text.clone(),
        }
    }
}

/// A base that needs no credentials.
impl<T: AsRef<str> + ?Sized> From<&T> for Wanted {
    fn from(text: &T) -> Self {
        let text = text.as_ref().to_owned();
        let namespace = String::new();
        Self { text, namespace, pull_secret: None, authority_secret: None, manifest: None, platform: None }
    }
}

type KeyLock = tokio::sync::Mutex<()>;

/// The base ISOs of a cache directory.
pub struct BaseImages {
    directory: PathBuf,
    limits: BaseImageLimits,
    fetcher: Fetcher,
    ledger: Arc<Ledger>,
    client: Option<Client>,
    hosts: Platform,
    // One fetch of a base at a time: of two SeedImages with one base the second
    // finds it.
    fetching: Mutex<HashMap<String, Weak<KeyLock>>>,
}

impl BaseImages {
    /// Uses `directory`, which is made when it is not there. What an earlier
    /// process left there is used, or removed.
    pub fn new(directory: PathBuf, limits: BaseImageLimits) -> Result<Self, BaseImageError> {
        let ledger = Ledger::open(&directory, limits.cache_size)
            .map_err(|source| BaseImageError::Cache { path: directory.clone(), source })?;
        let mut refused = targets::list_services(std::env::vars_os());
        let networks = limits.refuse_base.iter().chain(&limits.own_addresses);
        refused.extend(networks.copied().map(BaseHost::Network));
        let targets = Targets::new(limits.allow_base.clone(), refused);
        let (ledger, fetcher) = (Arc::new(ledger), Fetcher::new(targets)?);
        // Coordinator and agent of an image are for one architecture.
        let hosts = Platform::of_architecture(std::env::consts::ARCH).unwrap_or(Platform::Amd64);
        Ok(Self { directory, limits, fetcher, ledger, client: None, hosts, fetching: Mutex::default() })
    }

    /// Takes images for hosts of this platform.
    pub fn for_hosts(self, hosts: Platform) -> Self {
        Self { hosts, ..self }
    }

    /// Reads the Secrets that bases need; without a client there are none.
    pub fn with_secrets(self, client: Client) -> Self {
        Self { client: Some(client), ..self }
    }

    /// The base image, fetched when it is not there yet, or when a fresh one is
    /// asked for. What there is stays until it has arrived.
    pub async fn fetch_image(
        &self,
        wanted: impl Into<Wanted>,
        base: Base,
        digest: Option<&str>,
    ) -> Result<BaseImage, BaseImageError> {
        let wanted = wanted.into();
        let source = parse_base(&wanted.text)?;
        let hosts = self.hosts;
        if let Some(asked) = wanted.platform.filter(|asked| *asked != hosts) {
            return Err(BaseImageError::TargetPlatform { asked, hosts });
        }
        let key = wanted.pointer_key(&source);
        // Downloads ask too: they must not wait for the fetch of another.
        if base == Base::Kept
            && let Some(image) = self.find_stored(&key, digest).await
        {
            return Ok(image);
        }
        let lock = self.key_lock(&key);
        let _turn = lock.lock().await;
        if base == Base::Kept
            && let Some(image) = self.find_stored(&key, digest).await
        {
            return Ok(image);
        }
        let fetched = async {
            match &source {
                BaseSource::Image(image) => self.fetch_from_registry(&wanted, image, &key, digest).await,
                BaseSource::Url(uri) => {
                    let arrived = self.fetch_from_server(&wanted, uri.clone()).await?;
                    let image = self.store_file(&wanted.text, arrived, digest)?;
                    self.point_to(&wanted.pointer_keys(&key, &image.sha256), image).await
                }
                BaseSource::File(path) => {
                    let arrived = self.copy_from_directory(path.clone()).await?;
                    let image = self.store_file(&wanted.text, arrived, digest)?;
                    self.point_to(&wanted.pointer_keys(&key, &image.sha256), image).await
                }
            }
        };
        tokio::time::timeout(self.limits.base_image_timeout, fetched)
            .await
            .unwrap_or_else(|_| Err(BaseImageError::Slow { url: wanted.text.clone() }))
    }

    /// The base that a `SeedImage` was made from, and no other one.
    ///
    /// # Errors
    /// [`BaseImageError::Changed`] where its source does not have it any more.
    pub async fn fetch_recorded(
        &self,
        wanted: Wanted,
        record: &BaseRecord,
    ) -> Result<BaseImage, BaseImageError> {
        let wanted = Wanted { manifest: record.manifest.clone(), ..wanted };
        match self.fetch_image(wanted, Base::Kept, Some(&record.digest)).await {
            Err(BaseImageError::Digest { url }) => Err(BaseImageError::Changed { url }),
            fetched => fetched,
        }
    }

    /// Where a base is, by its digest, and what keeps it there; `None` where it is not.
    pub async fn find_held(&self, digest: &str) -> Option<(PathBuf, Lease)> {
        let sha256 = hexadecimal(digest);
        let lease = self.ledger.lease_file(sha256)?;
        let path = self.ledger.file_path(sha256);
        fs::try_exists(&path).await.is_ok_and(|exists| exists).then_some((path, lease))
    }

    /// Digests of the bases that are held, at most `limit`: those that were used last.
    pub fn list_held(&self, limit: usize) -> Vec<String> {
        self.ledger.list_files(limit).iter().map(|sha256| digest_of(sha256)).collect()
    }

    fn key_lock(&self, key: &str) -> Arc<KeyLock> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = fetching.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        fetching.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::<KeyLock>::default();
        fetching.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }

    fn store_error(&self, source: io::Error) -> BaseImageError {
        BaseImageError::Cache { path: self.directory.clone(), source }
    }

    fn keep_error(&self, url: &str, error: KeepError) -> BaseImageError {
        match error {
            KeepError::TooLarge => BaseImageError::TooLarge { url: url.to_owned() },
            KeepError::Read(source) => BaseImageError::Unreadable { url: url.to_owned(), source },
            KeepError::Write(source) => self.store_error(source),
            KeepError::Full => BaseImageError::Full,
        }
    }

    async fn fetcher_for(&self, wanted: &Wanted) -> Result<Option<Fetcher>, BaseImageError> {
        let authorities = secrets::read_authorities(self.client.as_ref(), wanted).await?;
        let is_own = !authorities.is_empty();
        is_own.then(|| self.fetcher.with_authorities(authorities)).transpose()
    }

    async fn fetch_from_server(&self, wanted: &Wanted, uri: Uri) -> Result<Arrived, BaseImageError> {
        let url = wanted.text.as_str();
        let own = self.fetcher_for(wanted).await?;
        let fetcher = own.as_ref().unwrap_or(&self.fetcher);
        let response = fetcher.follow_redirects(url, uri, HeaderMap::new()).await?;
        if !response.status().is_success() {
            return Err(BaseImageError::Status { url: url.to_owned(), status: response.status() });
        }
        let announced = response.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|size| size > self.limits.base_image_size) {
            return Err(BaseImageError::TooLarge { url: url.to_owned() });
        }
        let mut body = response.into_body();
        let keep = |error| self.keep_error(url, error);
        let mut writer = Writer::create(&self.ledger, self.limits.base_image_size).map_err(keep)?;
        while let Some(data) = next_data(url, &mut body).await? {
            let written = run_blocking(move || writer.write(&data).map(|()| writer)).await;
            writer = written.map_err(keep)?;
        }
        run_blocking(move || writer.finish()).await.map_err(keep)
    }

    async fn copy_from_directory(&self, path: String) -> Result<Arrived, BaseImageError> {
        let url = format!("file://{path}");
        let (directory, limit) = (self.limits.base_image_directory.clone(), self.limits.base_image_size);
        let ledger = self.ledger.clone();
        let copy = move || {
            let mut file = directory::open_below(directory.as_deref(), &path)?;
            let copied = Writer::create(&ledger, limit).and_then(|writer| writer.copy_from(&mut file));
            Ok(copied)
        };
        let copied: Result<_, BaseImageError> = match tokio::task::spawn_blocking(copy).await {
            Ok(copied) => copied,
            Err(stopped) => Err(self.store_error(io::Error::other(stopped))),
        };
        copied?.map_err(|error| self.keep_error(&url, error))
    }

    /// Puts a file under its own name.
    fn store_file(
        &self,
        url: &str,
        arrived: Arrived,
        digest: Option<&str>,
    ) -> Result<BaseImage, BaseImageError> {
        let Arrived { path: temporary, sha256, size, in_flight } = arrived;
        check_digest(url, &sha256, digest)?;
        let path = self.ledger.file_path(&sha256);
        temporary.persist(&path).map_err(|error| self.store_error(error.error))?;
        let lease = in_flight.finish_file(&sha256);
        tracing::info!(url, size, sha256, "fetched a base image");
        Ok(BaseImage { path, size, sha256, manifest: None, lease })
    }
}

/// Disks are slow, and other hosts wait for this thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|stopped| Err(KeepError::Write(io::Error::other(stopped))))
}

/// The next bytes of a body; `None` is its end.
async fn next_data(url: &str, body: &mut Incoming) -> Result<Option<bytes::Bytes>, BaseImageError> {
    let lost = |reason: String| BaseImageError::Fetch { url: url.to_owned(), reason };
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| lost("it fell silent".to_owned()))?;
        let Some(frame) = frame.transpose().map_err(|error| lost(chain(&error)))? else { return Ok(None) };
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// `digest` is `sha256:` and hexadecimal digits, as in `spec.baseImageDigest`.
fn check_digest(url: &str, sha256: &str, digest: Option<&str>) -> Result<(), BaseImageError> {
    if digest.is_none_or(|digest| hexadecimal(digest).eq_ignore_ascii_case(sha256)) {
        return Ok(());
    }
    Err(BaseImageError::Digest { url: url.to_owned() })
}

fn hexadecimal(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

fn digest_of(sha256: &str) -> String {
    format!("sha256:{sha256}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_with_pull_secret_have_own_pointers() {
        let wanted = |text: &str, namespace: &str, secret: Option<&str>| {
            let pull_secret = secret.map(str::to_owned);
            let wanted = Wanted { namespace: namespace.into(), pull_secret, ..Wanted::from(text) };
            wanted.pointer_key(&parse_base(text).unwrap())
        };
        let (short, long) = ("r.example/os:v1", "oci://r.example/os:v1");
        assert_eq!(wanted(short, "a", None), wanted(long, "b", None));
        assert_eq!(wanted(short, "a", Some("s")), wanted(long, "a", Some("s")));
        assert_ne!(wanted(short, "a", Some("s")), wanted(short, "a", None));
        assert_ne!(wanted(short, "a", Some("s")), wanted(short, "b", Some("s")));
        assert_eq!(wanted("http://r.example/x", "a", None), "http://r.example/x");
    }
}
