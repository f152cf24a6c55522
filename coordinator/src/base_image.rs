//! Base ISOs: fetched once for each base, kept by their content.
//!
//! A file under its own SHA-256 never changes, so that a running download continues while another
//! version of the same base arrives.

mod directory;
mod error;
mod fetch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod image;
mod keep;
mod layer;
mod ledger;
pub mod limits;
mod manifest;
mod pointer;
mod registry;
mod secrets;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use coordinator_api::object::Namespace;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image::base::{BaseSource, parse_base};
use coordinator_core::seed_image::platform::Platform;
use coordinator_core::seed_image::{Base, BaseRecord};
use http::{HeaderMap, Uri, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::Client;
use tokio::fs;

use crate::egress::{self, Target, Targets};
use crate::permits::Permits;
use crate::telemetry::chain;
use fetch::Fetcher;
use keep::{Arrived, KeepError, Writer};
use ledger::Ledger;
use limits::BaseImageLimits;

pub use error::BaseImageError;
pub use ledger::Lease;

/// A fetch ends after this time without a byte from the server.
const SILENCE: Duration = Duration::from_mins(1);

/// A base ISO on the local disk.
#[derive(Clone, Debug)]
pub struct BaseImage {
    /// Path of the file, whose content never changes.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Digest of the manifest, if the base is from an image of a registry.
    pub manifest: Option<String>,
    /// Keeps the file in the cache.
    pub lease: Lease,
}

impl BaseImage {
    /// Digests for the status of a `SeedImage`.
    pub fn record(&self) -> BaseRecord {
        BaseRecord { digest: digest_of(&self.sha256), manifest: self.manifest.clone() }
    }
}

/// A base, as a `SeedImage` asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    text: String,
    namespace: Namespace,
    pull_secret: Option<String>,
    authority_secret: Option<String>,
    /// Digest of the wanted manifest, even if the tag names another one now.
    manifest: Option<String>,
    /// `spec.targetPlatform`.
    platform: Option<Platform>,
}

impl Wanted {
    pub fn of(seed: &SeedImage) -> Self {
        Self {
            text: seed.spec.base_image.clone().unwrap_or_default(),
            namespace: Namespace::of(seed),
            pull_secret: seed.spec.base_image_pull_secret.clone(),
            authority_secret: seed.spec.base_image_ca_secret.clone(),
            manifest: None,
            platform: seed.spec.target_platform.as_deref().and_then(Platform::parse),
        }
    }

    /// Key of the pointer to the base. The key contains the pull Secret, because only the registry
    /// decides who may see an image: an image fetched with credentials is not found without them. It
    /// contains the Secret with the authority, because who brings one may stand between the coordinator
    /// and the server.
    fn pointer_key(&self, source: &BaseSource) -> String {
        let key = match (source, &self.pull_secret) {
            (BaseSource::Image(image), Some(name)) => format!("{image} {}/{name}", self.namespace),
            (BaseSource::Image(image), None) => image.whole(),
            (BaseSource::Url(_) | BaseSource::File(_), _) => self.text.clone(),
        };
        match &self.authority_secret {
            Some(name) => format!("{key} ca {}/{name}", self.namespace),
            None => key,
        }
    }
}

/// A base that needs no credentials.
impl<T: AsRef<str> + ?Sized> From<&T> for Wanted {
    fn from(text: &T) -> Self {
        let text = text.as_ref().to_owned();
        let namespace = Namespace::from("");
        Self { text, namespace, pull_secret: None, authority_secret: None, manifest: None, platform: None }
    }
}

/// The URL without user and query, which may be credentials.
fn shown_url(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or(text);
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
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
    /// A base is fetched once at a time, so that a second `SeedImage` with the same base finds
    /// the file of the first.
    fetching: Mutex<HashMap<String, Weak<KeyLock>>>,
    permits: AllPermits,
}

/// Who may work now. Each work costs memory, and a server of a namespace may be as slow as it likes.
struct AllPermits {
    /// For an answer of a server, which takes a buffer, and up to an hour.
    fetch: Permits<Namespace>,
    /// For layers of an image, whose search takes a thread and the window of a decoder.
    search: Permits<Namespace>,
    /// For an ISO, whose directories are read and whose checksum is made.
    make: Permits<Namespace>,
}

impl Default for AllPermits {
    fn default() -> Self {
        Self { fetch: Permits::new(128, 16), search: Permits::new(8, 2), make: Permits::new(2, 1) }
    }
}

impl BaseImages {
    /// The permits to make ISOs.
    pub fn make_permits(&self) -> &Permits<Namespace> {
        &self.permits.make
    }

    /// Creates `directory` if it is missing. Complete files of an earlier process are used,
    /// incomplete ones are removed.
    pub fn new(directory: PathBuf, limits: BaseImageLimits) -> Result<Self, BaseImageError> {
        let ledger = Ledger::open(&directory, limits.cache_size)
            .map_err(|source| BaseImageError::Cache { path: directory.clone(), source })?;
        let mut refused = egress::list_services(std::env::vars_os());
        let networks = limits.refuse_base.iter().chain(&limits.own_addresses);
        refused.extend(networks.copied().map(Target::Network));
        let targets = Targets::new(limits.allow_base.clone(), refused);
        let (ledger, fetcher) = (Arc::new(ledger), Fetcher::new(targets)?);
        // The image of the coordinator has the agent for the same architecture.
        let hosts = Platform::of_architecture(std::env::consts::ARCH).unwrap_or(Platform::Amd64);
        Ok(Self {
            directory,
            limits,
            fetcher,
            ledger,
            client: None,
            hosts,
            fetching: Mutex::default(),
            permits: AllPermits::default(),
        })
    }

    /// Accepts images for hosts of this platform.
    pub fn for_hosts(self, hosts: Platform) -> Self {
        Self { hosts, ..self }
    }

    /// Reads the Secrets that bases need; without a client no Secret exists.
    pub fn with_secrets(self, client: Client) -> Self {
        Self { client: Some(client), ..self }
    }

    /// The base image. It is fetched if it is not stored or a fresh one is asked for; the stored one
    /// stays until the fresh one has arrived.
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
        // A download asks for the base too, and must not wait for the fetch of another one.
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
        let _permit = self.permits.fetch.acquire(&wanted.namespace).await;
        let fetched = async {
            match &source {
                BaseSource::Image(image) => self.fetch_from_registry(&wanted, image, &key, digest).await,
                BaseSource::Url(uri) => {
                    let arrived = self.fetch_from_server(&wanted, uri.clone()).await?;
                    let image = self.store_file(&shown_url(&wanted.text), arrived, digest)?;
                    self.point_to(&wanted.pointer_keys(&key, &image.sha256), image).await
                }
                BaseSource::File(path) => {
                    let arrived = self.copy_from_directory(path.clone()).await?;
                    let image = self.store_file(&shown_url(&wanted.text), arrived, digest)?;
                    self.point_to(&wanted.pointer_keys(&key, &image.sha256), image).await
                }
            }
        };
        tokio::time::timeout(self.limits.base_image_timeout, fetched)
            .await
            .unwrap_or_else(|_| Err(BaseImageError::Slow { url: shown_url(&wanted.text) }))
    }

    /// The base that a `SeedImage` was made from, and no other one.
    ///
    /// # Errors
    /// [`BaseImageError::Changed`] if the source does not have that base any more.
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

    /// Path of a stored base, by its digest, and the lease that keeps the file.
    pub async fn find_held(&self, digest: &str) -> Option<(PathBuf, Lease)> {
        let sha256 = hexadecimal(digest);
        let lease = self.ledger.lease_file(sha256)?;
        let path = self.ledger.file_path(sha256);
        fs::try_exists(&path).await.is_ok_and(|exists| exists).then_some((path, lease))
    }

    /// Digests of at most `limit` stored bases, the last used first.
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
        let url = &*shown_url(&wanted.text);
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
        let created = Writer::create(&self.ledger, self.limits.base_image_size);
        let mut writer = created.map_err(|error| self.keep_error(url, error))?;
        while let Some(data) = next_data(url, &mut body).await? {
            let written = run_blocking(move || writer.write(&data).map(|()| writer)).await;
            writer = written.map_err(|error| self.keep_error(url, error))?;
        }
        run_blocking(move || writer.finish()).await.map_err(|error| self.keep_error(url, error))
    }

    async fn copy_from_directory(&self, path: String) -> Result<Arrived, BaseImageError> {
        let url = format!("file://{path}");
        let (directory, limit) = (self.limits.base_image_directory.clone(), self.limits.base_image_size);
        let ledger = self.ledger.clone();
        let copying = tokio::task::spawn_blocking(move || {
            let mut file = directory::open_below(directory.as_deref(), &path)?;
            Ok(Writer::create(&ledger, limit).and_then(|writer| writer.copy_from(&mut file)))
        });
        let copied: Result<_, BaseImageError> =
            copying.await.map_err(|stopped| self.store_error(io::Error::other(stopped)))?;
        copied?.map_err(|error| self.keep_error(&url, error))
    }

    /// Renames an arrived file to its checksum.
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
        tracing::info!(url, size, sha256, "base image fetched");
        Ok(BaseImage { path, size, sha256, manifest: None, lease })
    }
}

/// Runs work on the disk on a thread of its own, because hosts wait for this one.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|stopped| Err(KeepError::Write(io::Error::other(stopped))))
}

/// The next bytes of a body; `None` is its end.
async fn next_data(url: &str, body: &mut Incoming) -> Result<Option<bytes::Bytes>, BaseImageError> {
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| BaseImageError::fetch(url, "the server sends nothing any more"))?;
        let frame = frame.transpose().map_err(|error| BaseImageError::fetch(url, chain(&error)))?;
        let Some(frame) = frame else { return Ok(None) };
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

    #[test]
    fn credentials_of_a_url_are_not_shown() {
        for (text, want) in [
            ("https://u:p@h.example:8/a.iso?X-Amz-Signature=s#f", "https://h.example:8/a.iso"),
            ("https://h.example/a@b.iso", "https://h.example/a@b.iso"),
            ("https://h.example?token=t", "https://h.example"),
            ("file:///a.iso", "file:///a.iso"),
            ("registry.example/a@sha256:0", "registry.example/a@sha256:0"),
        ] {
            assert_eq!(shown_url(text), want);
        }
    }

    #[test]
    fn own_authority_makes_a_key_of_its_own() {
        let wanted = |namespace: &str, authority: Option<&str>| Wanted {
            namespace: namespace.into(),
            authority_secret: authority.map(str::to_owned),
            ..Wanted::from("https://h.example/a.iso")
        };
        let key = |wanted: Wanted| wanted.pointer_key(&parse_base(&wanted.text).unwrap());
        let public = key(wanted("a", None));
        assert_eq!(public, key(wanted("b", None)));
        assert_ne!(public, key(wanted("a", Some("ca"))));
        assert_ne!(key(wanted("b", Some("ca"))), key(wanted("a", Some("ca"))));
    }
}
