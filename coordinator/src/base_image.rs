//! Base ISOs: fetched once for each URL, kept by their content.
//!
//! A file under its own SHA-256 never changes, so that a download that runs
//! goes on while another version of the same URL arrives.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sha2::{Digest as _, Sha256};
use tokio::fs;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;

use crate::telemetry::chain;

/// Largest base image, bytes.
pub const MAX_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// A server that sends nothing for so long is given up.
const SILENCE: Duration = Duration::from_mins(1);
const REDIRECTS: usize = 5;

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
    /// Larger than [`MAX_BYTES`].
    #[error("{url} is larger than {MAX_BYTES} bytes")]
    TooLarge {
        /// From where.
        url: String,
    },
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
    /// Whether a retry is useless until the configuration changes.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Url { .. } | Self::TooLarge { .. } => true,
            Self::Status { status, .. } => status.is_client_error(),
            Self::Fetch { .. } | Self::Cache { .. } | Self::Tls(_) => false,
        }
    }
}

/// A base ISO on the local disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseImage {
    /// Where; the content never changes.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// The base ISOs of a cache directory.
#[derive(Debug)]
pub struct BaseImages {
    directory: PathBuf,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    // One fetch at a time: of two SeedImages with one base the second finds it.
    fetching: Mutex<()>,
}

impl BaseImages {
    /// Uses `directory`, which is made when it is not there.
    ///
    /// # Errors
    /// [`BaseImageError::Tls`].
    pub fn new(directory: PathBuf) -> Result<Self, BaseImageError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(SILENCE));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(BaseImageError::Tls)?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { directory, client, fetching: Mutex::new(()) })
    }

    /// The base image of a URL, fetched when it is not there yet.
    ///
    /// # Errors
    /// [`BaseImageError`].
    pub async fn fetch_image(&self, url: &str) -> Result<BaseImage, BaseImageError> {
        let uri = parse_url(url)?;
        // Downloads ask too: they must not wait for the fetch of another.
        if let Some(image) = self.find_stored(url).await {
            return Ok(image);
        }
        let _turn = self.fetching.lock().await;
        if let Some(image) = self.find_stored(url).await {
            return Ok(image);
        }
        let response = self.follow_redirects(url, uri).await?;
        let announced = response.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|size| size > MAX_BYTES) {
            return Err(BaseImageError::TooLarge { url: url.to_owned() });
        }
        self.store_body(url, response.into_body()).await
    }

    /// Forgets what a URL led to: the next fetch asks the server again.
    ///
    /// # Errors
    /// [`BaseImageError::Cache`].
    pub async fn forget_image(&self, url: &str) -> Result<(), BaseImageError> {
        let _turn = self.fetching.lock().await;
        match fs::remove_file(self.pointer_path(url)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.store_error(error)),
            _ => Ok(()),
        }
    }

    fn store_error(&self, source: io::Error) -> BaseImageError {
        BaseImageError::Cache { path: self.directory.clone(), source }
    }

    fn pointer_path(&self, url: &str) -> PathBuf {
        self.directory.join(format!("{}.url", hex::encode(Sha256::digest(url))))
    }

    fn content_path(&self, sha256: &str) -> PathBuf {
        self.directory.join(format!("{sha256}.iso"))
    }

    async fn find_stored(&self, url: &str) -> Option<BaseImage> {
        let pointer = fs::read_to_string(self.pointer_path(url)).await.ok()?;
        let (sha256, size) = parse_pointer(&pointer)?;
        let path = self.content_path(sha256);
        let there = fs::metadata(&path).await.ok()?.len() == size;
        there.then(|| BaseImage { path, size, sha256: sha256.to_owned() })
    }

    async fn follow_redirects(&self, url: &str, mut uri: Uri) -> Result<Response<Incoming>, BaseImageError> {
        let failed = |reason: String| BaseImageError::Fetch { url: url.to_owned(), reason };
        for _ in 0..=REDIRECTS {
            let request =
                Request::get(uri.clone()).body(Empty::new()).map_err(|error| failed(error.to_string()))?;
            let response = tokio::time::timeout(SILENCE, self.client.request(request))
                .await
                .map_err(|_| failed("no answer in time".to_owned()))?
                .map_err(|error| failed(chain(&error)))?;
            if response.status().is_success() {
                return Ok(response);
            }
            let location = response.headers().get(header::LOCATION);
            let next = location.and_then(|value| redirect_target(&uri, value.to_str().ok()?));
            uri = match next {
                Some(next) if response.status().is_redirection() => next,
                _ => {
                    return Err(BaseImageError::Status { url: url.to_owned(), status: response.status() });
                }
            };
        }
        Err(failed(format!("more than {REDIRECTS} redirections")))
    }

    async fn store_body(&self, url: &str, body: Incoming) -> Result<BaseImage, BaseImageError> {
        let failed = |source| self.store_error(source);
        fs::create_dir_all(&self.directory).await.map_err(failed)?;
        // The lock holds off this process; the process id, another replica
        // that shares the directory.
        let temporary = self.directory.join(format!(".fetch-{}", std::process::id()));
        let fetched = self.write_body(url, &temporary, body).await;
        let (sha256, size) = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                let _ = fs::remove_file(&temporary).await;
                return Err(error);
            }
        };
        let path = self.content_path(&sha256);
        fs::rename(&temporary, &path).await.map_err(failed)?;
        fs::write(&temporary, format!("{sha256} {size}\n")).await.map_err(failed)?;
        fs::rename(&temporary, self.pointer_path(url)).await.map_err(failed)?;
        tracing::info!(url, size, sha256, "fetched a base image");
        Ok(BaseImage { path, size, sha256 })
    }

    async fn write_body(
        &self,
        url: &str,
        path: &Path,
        mut body: Incoming,
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
            if size > MAX_BYTES {
                return Err(BaseImageError::TooLarge { url: url.to_owned() });
            }
            hash.update(data);
            file.write_all(data).await.map_err(failed)?;
        }
        file.sync_all().await.map_err(failed)?;
        Ok((hex::encode(hash.finalize()), size))
    }
}

fn parse_url(url: &str) -> Result<Uri, BaseImageError> {
    let parsed = url.parse::<Uri>().ok();
    parsed
        .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
        .ok_or_else(|| BaseImageError::Url { url: url.to_owned() })
}

fn parse_pointer(text: &str) -> Option<(&str, u64)> {
    let (sha256, size) = text.trim().split_once(' ')?;
    let hex = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some(())?;
    Some((sha256, size.parse().ok()?))
}

/// Where a redirection leads: absolute, or a path on the same server. Never
/// from https down to http.
fn redirect_target(from: &Uri, location: &str) -> Option<Uri> {
    let next: Uri = location.parse().ok()?;
    if next.scheme().is_none() {
        return Uri::builder()
            .scheme(from.scheme()?.clone())
            .authority(from.authority()?.clone())
            .path_and_query(next.path_and_query()?.clone())
            .build()
            .ok();
    }
    let allowed = match from.scheme_str() {
        Some("https") => next.scheme_str() == Some("https"),
        _ => matches!(next.scheme_str(), Some("http" | "https")),
    };
    allowed.then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_fetched() {
        for (url, want) in [
            ("http://127.0.0.1:1/base.iso", true),
            ("https://images.example/base.iso", true),
            ("file:///etc/passwd", false),
            ("registry.example/base:v1", false),
            ("", false),
        ] {
            assert_eq!(parse_url(url).is_ok(), want, "{url}");
        }
    }

    #[test]
    fn a_redirection_stays_as_safe_as_it_was() {
        for (from, location, want) in [
            ("http://a/x", "http://b/y", Some("http://b/y")),
            ("http://a/x", "https://b/y", Some("https://b/y")),
            ("https://a/x", "https://b/y", Some("https://b/y")),
            ("https://a/x", "http://b/y", None),
            ("https://a:1/x", "/y?z", Some("https://a:1/y?z")),
            ("http://a/x", "file:///etc/passwd", None),
        ] {
            let got = redirect_target(&from.parse().unwrap(), location).map(|uri| uri.to_string());
            assert_eq!(got.as_deref(), want, "{from} {location}");
        }
    }

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
