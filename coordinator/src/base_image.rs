//! Base ISOs: fetched once for each URL, kept by their content.
//!
//! A file under its own SHA-256 never changes, so that a download that runs
//! goes on while another version of the same URL arrives.

mod fetch;
mod ledger;
mod targets;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use coordinator_core::seed_image::Base;
use http::{StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

use crate::config::BaseImageLimits;
use crate::telemetry::chain;
use fetch::{Fetcher, parse_url};
use ledger::{InFlight, Ledger};
use targets::Targets;

pub use ledger::Lease;
pub use targets::AllowedBase;
pub(crate) use targets::parse_network;

/// A server that sends nothing for so long is given up.
const SILENCE: Duration = Duration::from_mins(1);

/// Why there is no base image.
#[derive(Debug, thiserror::Error)]
pub enum BaseImageError {
    /// Not an http(s) URL.
    #[error("spec.baseImage {url:?} is not an http or https URL of an ISO: correct it")]
    Url {
        /// As given.
        url: String,
    },
    /// The server did not answer, or stopped in the middle.
    #[error("cannot fetch {url}: {reason}; it is tried again")]
    Fetch {
        /// From where.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The server answered something else.
    #[error("{url} answers {status}: correct spec.baseImage or the server")]
    Status {
        /// From where.
        url: String,
        /// The error.
        status: StatusCode,
    },
    /// Larger than `--base-image-size`.
    #[error("{url} is larger than --base-image-size allows: correct spec.baseImage, or raise the flag")]
    TooLarge {
        /// From where.
        url: String,
    },
    /// Not what `spec.baseImageDigest` says.
    #[error("{url} is not what spec.baseImageDigest says: correct the digest or the server's file")]
    Digest {
        /// From where.
        url: String,
    },
    /// Slower than `--base-image-timeout`.
    #[error("{url} did not arrive within --base-image-timeout; it is tried again")]
    Slow {
        /// From where.
        url: String,
    },
    /// All that is kept is being sent.
    #[error("the cache of base images is full of images that are in use: raise --cache-size")]
    Full,
    /// The cache directory does not do its work.
    #[error("cannot store base images in {path}: check its free space and permissions", path = path.display())]
    Cache {
        /// Which directory.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The system has no root certificates.
    #[error("cannot set up https: install the ca-certificates of the system")]
    Tls(#[source] io::Error),
}

impl BaseImageError {
    /// What the status of an object says: what the coordinator's network answered
    /// is for its log alone.
    #[must_use]
    pub fn neutral_text(&self) -> Option<&'static str> {
        match self {
            Self::Fetch { .. } | Self::Status { .. } | Self::Slow { .. } => Some(
                "spec.baseImage cannot be fetched: correct it, or the server; the coordinator's log has the cause. It is tried again",
            ),
            Self::Url { .. }
            | Self::TooLarge { .. }
            | Self::Digest { .. }
            | Self::Full
            | Self::Cache { .. }
            | Self::Tls(_) => None,
        }
    }

    /// Whether a retry is useless until the configuration changes.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Url { .. } | Self::TooLarge { .. } | Self::Digest { .. } => true,
            Self::Status { status, .. } => status.is_client_error(),
            Self::Fetch { .. } | Self::Slow { .. } | Self::Full | Self::Cache { .. } | Self::Tls(_) => false,
        }
    }
}

/// A base ISO on the local disk.
#[derive(Clone, Debug)]
pub struct BaseImage {
    /// Where; the content never changes.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// The file is kept as long as this.
    pub lease: Lease,
}

type UrlLock = tokio::sync::Mutex<()>;

/// The base ISOs of a cache directory.
#[derive(Debug)]
pub struct BaseImages {
    directory: PathBuf,
    limits: BaseImageLimits,
    fetcher: Fetcher,
    ledger: Arc<Ledger>,
    // One fetch of a URL at a time: of two SeedImages with one base the second
    // finds it.
    fetching: Mutex<HashMap<String, Weak<UrlLock>>>,
}

impl BaseImages {
    /// Uses `directory`, which is made when it is not there. What an earlier
    /// process left there is used, or removed.
    ///
    /// # Errors
    /// [`BaseImageError::Tls`], [`BaseImageError::Cache`].
    pub fn new(directory: PathBuf, limits: BaseImageLimits) -> Result<Self, BaseImageError> {
        let ledger = Ledger::open(&directory, limits.cache_size)
            .map_err(|source| BaseImageError::Cache { path: directory.clone(), source })?;
        let targets = Targets::new(limits.allow_base.clone(), limits.refuse_base.clone());
        let (ledger, fetcher) = (Arc::new(ledger), Fetcher::new(targets)?);
        Ok(Self { directory, limits, fetcher, ledger, fetching: Mutex::default() })
    }

    /// The base image of a URL, fetched when it is not there yet, or when a
    /// fresh one is asked for. What there is stays until it has arrived.
    ///
    /// # Errors
    /// [`BaseImageError`].
    pub async fn fetch_image(
        &self,
        url: &str,
        base: Base,
        digest: Option<&str>,
    ) -> Result<BaseImage, BaseImageError> {
        let uri = parse_url(url)?;
        // Downloads ask too: they must not wait for the fetch of another.
        if base == Base::Kept
            && let Some(image) = self.find_stored(url, digest).await
        {
            return Ok(image);
        }
        let lock = self.url_lock(url);
        let _turn = lock.lock().await;
        if base == Base::Kept
            && let Some(image) = self.find_stored(url, digest).await
        {
            return Ok(image);
        }
        let fetched = async {
            let response = self.fetcher.follow_redirects(url, uri).await?;
            let announced = response.headers().get(header::CONTENT_LENGTH);
            let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            if announced.is_some_and(|size| size > self.limits.base_image_size) {
                return Err(BaseImageError::TooLarge { url: url.to_owned() });
            }
            self.store_body(url, response.into_body(), digest).await
        };
        tokio::time::timeout(self.limits.base_image_timeout, fetched)
            .await
            .unwrap_or_else(|_| Err(BaseImageError::Slow { url: url.to_owned() }))
    }

    fn url_lock(&self, url: &str) -> Arc<UrlLock> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = fetching.get(url).and_then(Weak::upgrade) {
            return lock;
        }
        fetching.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::<UrlLock>::default();
        fetching.insert(url.to_owned(), Arc::downgrade(&lock));
        lock
    }

    fn store_error(&self, source: io::Error) -> BaseImageError {
        BaseImageError::Cache { path: self.directory.clone(), source }
    }

    fn pointer_path(&self, url: &str) -> PathBuf {
        self.directory.join(format!("{}.url", hex::encode(Sha256::digest(url))))
    }

    async fn find_stored(&self, url: &str, digest: Option<&str>) -> Option<BaseImage> {
        let pointer = fs::read_to_string(self.pointer_path(url)).await.ok()?;
        let (sha256, size) = parse_pointer(&pointer)?;
        check_digest(url, sha256, digest).ok()?;
        let lease = self.ledger.lease_file(sha256)?;
        let path = self.ledger.file_path(sha256);
        let is_there = fs::metadata(&path).await.ok()?.len() == size;
        is_there.then(|| BaseImage { path, size, sha256: sha256.to_owned(), lease })
    }

    /// A file of its own name, also where replicas share the directory; removed
    /// when the fetch ends without a result.
    async fn create_temporary(&self) -> Result<TempPath, BaseImageError> {
        let directory = self.directory.clone();
        let create = move || tempfile::Builder::new().prefix(ledger::TEMPORARY).tempfile_in(directory);
        let created = tokio::task::spawn_blocking(create).await.map_err(io::Error::other).flatten();
        created.map(tempfile::NamedTempFile::into_temp_path).map_err(|source| self.store_error(source))
    }

    async fn store_body(
        &self,
        url: &str,
        body: Incoming,
        digest: Option<&str>,
    ) -> Result<BaseImage, BaseImageError> {
        let failed = |source| self.store_error(source);
        let persist = |error: tempfile::PathPersistError| self.store_error(error.error);
        let temporary = self.create_temporary().await?;
        let mut in_flight = self.ledger.start_file();
        let (sha256, size) = self.write_body(url, &temporary, body, &mut in_flight).await?;
        check_digest(url, &sha256, digest)?;
        let path = self.ledger.file_path(&sha256);
        temporary.persist(&path).map_err(persist)?;
        let lease = in_flight.finish_file(&sha256);
        let pointer = self.create_temporary().await?;
        fs::write(&pointer, format!("{sha256} {size}\n")).await.map_err(failed)?;
        pointer.persist(self.pointer_path(url)).map_err(persist)?;
        tracing::info!(url, size, sha256, "fetched a base image");
        Ok(BaseImage { path, size, sha256, lease })
    }

    async fn write_body(
        &self,
        url: &str,
        path: &Path,
        mut body: Incoming,
        in_flight: &mut InFlight,
    ) -> Result<(String, u64), BaseImageError> {
        let lost = |reason: String| BaseImageError::Fetch { url: url.to_owned(), reason };
        let failed = |source| self.store_error(source);
        let mut file = fs::File::create(path).await.map_err(failed)?;
        let (mut hash, mut size) = (Sha256::new(), 0_u64);
        loop {
            let frame = tokio::time::timeout(SILENCE, body.frame())
                .await
                .map_err(|_| lost(format!("silent after {size} bytes")))?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| lost(chain(&error)))?;
            let Some(data) = frame.data_ref() else { continue };
            size += data.len() as u64;
            if size > self.limits.base_image_size {
                return Err(BaseImageError::TooLarge { url: url.to_owned() });
            }
            in_flight.grow_file(data.len() as u64)?;
            hash.update(data);
            file.write_all(data).await.map_err(failed)?;
        }
        file.sync_all().await.map_err(failed)?;
        Ok((hex::encode(hash.finalize()), size))
    }
}

/// `digest` is `sha256:` and hexadecimal digits, as in `spec.baseImageDigest`.
fn check_digest(url: &str, sha256: &str, digest: Option<&str>) -> Result<(), BaseImageError> {
    let wanted = digest.map(|digest| digest.strip_prefix("sha256:").unwrap_or(digest));
    if wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(sha256)) {
        return Ok(());
    }
    Err(BaseImageError::Digest { url: url.to_owned() })
}

fn parse_pointer(text: &str) -> Option<(&str, u64)> {
    let (sha256, size) = text.trim().split_once(' ')?;
    let hex = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some(())?;
    Some((sha256, size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_read_whole_or_not_at_all() {
        let hash = "ab".repeat(32);
        for (text, want) in [
            (format!("{hash} 12\n"), Some(12)),
            (hash.clone(), None),
            (format!("{hash} many"), None),
            ("../../etc/passwd 1".to_owned(), None),
        ] {
            assert_eq!(parse_pointer(&text).map(|(_, size)| size), want, "{text}");
        }
    }
}
