//! Base ISOs: fetched once for each base, kept by their content.
//!
//! A file under its own SHA-256 never changes, so that a running download continues while another
//! version of the same base arrives.
//!
//! `execute` fetches, and has neither the cache nor Secrets, so that a process of its own can do it
//! ([`serve`]). [`BaseImages`] keeps what arrives.

mod directory;
mod error;
mod execute;
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
pub mod serve;
mod socket;

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use coordinator_api::object::Namespace;
use coordinator_api::seed_image::SeedImage;
use coordinator_core::seed_image::base::{BaseSource, parse_base};
use coordinator_core::seed_image::platform::Platform;
use coordinator_core::seed_image::{Base, BaseRecord};
use futures::{Stream, StreamExt as _};
use kube::Client;
use tokio::fs;

use crate::egress::{self, Target};
use crate::permits::Permits;
use execute::{Executor, Order, Step};
use keep::{Arrived, Writer, run_blocking};
use ledger::{Ledger, Room};
use limits::BaseImageLimits;

pub use error::BaseImageError;
pub use ledger::Lease;

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

/// Name of a base in errors and in the log.
fn shown(source: &BaseSource, text: &str) -> String {
    match source {
        BaseSource::Image(image) => image.whole(),
        BaseSource::Url(_) | BaseSource::File(_) => shown_url(text),
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
    limits: BaseImageLimits,
    /// Servers that are not asked.
    refused: Vec<Target>,
    executor: Executor,
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
    /// For an ISO, whose directories are read and whose checksum is made.
    make: Permits<Namespace>,
}

impl Default for AllPermits {
    fn default() -> Self {
        Self { fetch: Permits::new(128, 16), make: Permits::new(2, 1) }
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
            .map_err(|source| BaseImageError::Cache { path: directory, source })?;
        let ledger = Arc::new(ledger);
        let mut refused = egress::list_services(std::env::vars_os());
        let networks = limits.refuse_base.iter().chain(&limits.own_addresses);
        refused.extend(networks.copied().map(Target::Network));
        // The image of the coordinator has the agent for the same architecture.
        let hosts = Platform::of_architecture(std::env::consts::ARCH).unwrap_or(Platform::Amd64);
        Ok(Self {
            limits,
            refused,
            executor: Executor::new(ledger.clone()),
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
        // Before the lock of the base, which other namespaces wait for: who holds it works.
        let _permit = self.permits.fetch.acquire(&wanted.namespace).await;
        let lock = self.key_lock(&key);
        let _turn = lock.lock().await;
        if base == Base::Kept
            && let Some(image) = self.find_stored(&key, digest).await
        {
            return Ok(image);
        }
        let fetched = async {
            match &source {
                BaseSource::Image(_) | BaseSource::Url(_) => {
                    self.fetch_from_server(&wanted, &source, &key, digest).await
                }
                BaseSource::File(path) => {
                    let arrived = self.copy_from_directory(path.clone(), &wanted.namespace).await?;
                    let image = self.store_file(&shown(&source, &wanted.text), arrived, digest)?;
                    self.name_image(&wanted, &key, image, None).await
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

    /// Reads the Secrets of the base, because who executes the order has no access to the API.
    async fn make_order(&self, wanted: &Wanted, source: &BaseSource) -> Result<Order, BaseImageError> {
        let client = self.client.as_ref();
        let credentials = match source {
            BaseSource::Image(image) => secrets::read_credentials(client, wanted, image).await?,
            BaseSource::Url(_) | BaseSource::File(_) => None,
        };
        Ok(Order {
            text: wanted.text.clone(),
            namespace: wanted.namespace.to_string(),
            manifest: wanted.manifest.clone(),
            hosts: self.hosts,
            size: self.limits.base_image_size,
            pull_secret: wanted.pull_secret.clone(),
            credentials,
            authorities: secrets::read_authorities(client, wanted).await?,
            allowed: self.limits.allow_base.clone(),
            refused: self.refused.clone(),
        })
    }

    /// Has the order executed, by another process if there is a socket.
    fn execute(&self, order: Order) -> impl Stream<Item = Result<Step, BaseImageError>> + Send {
        match &self.limits.base_image_socket {
            Some(socket) => socket::send_order(socket, &self.ledger, order).left_stream(),
            None => self.executor.execute(order).right_stream(),
        }
    }

    /// Fetches the layers of an image only if no stored file has the digest of the manifest. The file
    /// may have been fetched under another tag or with other credentials.
    async fn fetch_from_server(
        &self,
        wanted: &Wanted,
        source: &BaseSource,
        key: &str,
        digest: Option<&str>,
    ) -> Result<BaseImage, BaseImageError> {
        let mut steps = pin!(self.execute(self.make_order(wanted, source).await?));
        let mut manifest = None;
        while let Some(step) = steps.next().await {
            match step? {
                Step::Resolved(resolved) => {
                    if let Some(stored) = self.find_stored(&resolved, digest).await {
                        return self.name_image(wanted, key, stored, Some(resolved)).await;
                    }
                    manifest = Some(resolved);
                }
                Step::Arrived(arrived) => {
                    let image = self.store_file(&shown(source, &wanted.text), arrived, digest)?;
                    return self.name_image(wanted, key, image, manifest).await;
                }
            }
        }
        Err(BaseImageError::away("it ended without an answer"))
    }

    /// Lets the names of an image lead to it.
    async fn name_image(
        &self,
        wanted: &Wanted,
        key: &str,
        image: BaseImage,
        manifest: Option<String>,
    ) -> Result<BaseImage, BaseImageError> {
        let mut keys = wanted.pointer_keys(key, &image.sha256);
        keys.extend(manifest.clone());
        self.point_to(&keys, BaseImage { manifest, ..image }).await
    }

    async fn copy_from_directory(
        &self,
        path: String,
        namespace: &Namespace,
    ) -> Result<Arrived, BaseImageError> {
        let url = format!("file://{path}");
        let (directory, limit) = (self.limits.base_image_directory.clone(), self.limits.base_image_size);
        let room = Room { ledger: self.ledger.clone(), namespace: namespace.to_string(), limit };
        let copied = run_blocking(move || {
            let mut file = match directory::open_below(directory.as_deref(), &path) {
                Ok(file) => file,
                Err(error) => return Ok(Err(error)),
            };
            Writer::create(&room).and_then(|writer| writer.copy_from(&mut file)).map(Ok)
        });
        copied.await.map_err(|error| error.describe(&url, &self.ledger))?
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
        temporary.persist(&path).map_err(|error| self.ledger.store_error(error.error))?;
        let lease = in_flight.finish_file(&sha256);
        tracing::info!(url, size, sha256, "base image fetched");
        Ok(BaseImage { path, size, sha256, manifest: None, lease })
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
