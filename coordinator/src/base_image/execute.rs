//! Executes an order for a base image: asks servers, and finds the ISO in what they send.

use std::sync::Arc;

use bytes::Bytes;
use coordinator_api::object::Namespace;
use coordinator_core::seed_image::base::{BaseSource, parse_base};
use coordinator_core::seed_image::platform::Platform;
use coordinator_core::seed_image::pull_secret::Credentials;
use futures::Stream;
use http::{HeaderMap, Uri, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use super::fetch::{Fetcher, SILENCE};
use super::keep::{Arrived, Writer, run_blocking};
use super::ledger::{Ledger, Room};
use super::registry::Registry;
use super::{BaseImageError, manifest, secrets, shown_url};
use crate::egress::{Target, Targets};
use crate::permits::Permits;
use crate::telemetry::chain;

/// A base to fetch, with everything that a fetch needs: who executes the order asks nobody else.
#[derive(Deserialize, Serialize)]
pub(super) struct Order {
    /// An image of a registry, or an http(s) URL.
    pub(super) text: String,
    /// Namespaces share the searches of layers.
    pub(super) namespace: String,
    /// Digest of the wanted manifest, even if the tag names another one now.
    pub(super) manifest: Option<String>,
    pub(super) hosts: Platform,
    /// Largest ISO in bytes.
    pub(super) size: u64,
    /// Name of the Secret with the credentials, for errors.
    pub(super) pull_secret: Option<String>,
    pub(super) credentials: Option<Credentials>,
    /// Authorities beside those of the system, as PEM.
    pub(super) authorities: Option<String>,
    /// Servers that may be asked although they are refused.
    pub(super) allowed: Vec<Target>,
    pub(super) refused: Vec<Target>,
}

impl Order {
    fn open_fetcher(&self) -> Result<Fetcher, BaseImageError> {
        let authorities = self.authorities.as_deref().map(secrets::parse_authorities);
        let targets = Targets::new(self.allowed.clone(), self.refused.clone());
        Fetcher::new(targets, authorities.unwrap_or_default())
    }

    /// Where the ISO is written.
    pub(super) fn room(&self, ledger: &Arc<Ledger>) -> Room {
        Room { ledger: ledger.clone(), namespace: self.namespace.clone(), limit: self.size }
    }
}

/// A step of an order.
pub(super) enum Step {
    /// Digest of the manifest of the image. Its layers are fetched next.
    Resolved(String),
    /// The ISO, with which the order ends.
    Arrived(Arrived),
}

/// Executes orders, each as long as somebody waits for its next step.
pub(super) struct Executor {
    pub(super) ledger: Arc<Ledger>,
    /// For layers of an image, whose search takes a thread, the window of a decoder and the names of the image:
    /// eight of the worst fit into the container of the fetcher.
    searches: Permits<Namespace>,
}

impl Executor {
    /// Files arrive in the directory of `ledger`.
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, searches: Permits::new(8, 2) }
    }

    pub(super) fn execute(&self, order: Order) -> impl Stream<Item = Result<Step, BaseImageError>> + Send {
        async_stream::try_stream! {
            let fetcher = order.open_fetcher()?;
            match parse_base(&order.text)? {
                BaseSource::Image(image) => {
                    let mut registry = Registry::new(&fetcher, &image, &order);
                    let pinned = order.manifest.as_deref().or(image.digest());
                    let reference = pinned.or(image.tag()).unwrap_or("latest");
                    let resolved = manifest::resolve_image(&mut registry, reference, order.hosts).await?;
                    yield Step::Resolved(resolved.digest);
                    let arrived = {
                        let _permit = self.searches.acquire(&Namespace::from(&*order.namespace)).await;
                        self.fetch_layers(&mut registry, &resolved.layers, order.room(&self.ledger)).await?
                    };
                    yield Step::Arrived(arrived);
                }
                BaseSource::Url(uri) => {
                    yield Step::Arrived(self.fetch_file(&fetcher, &order, uri).await?);
                }
                BaseSource::File(_) => Err(BaseImageError::Outside { url: order.text.clone() })?,
            }
        }
    }

    async fn fetch_file(
        &self,
        fetcher: &Fetcher,
        order: &Order,
        uri: Uri,
    ) -> Result<Arrived, BaseImageError> {
        let url = &*shown_url(&order.text);
        let response = fetcher.follow_redirects(url, uri, HeaderMap::new()).await?;
        if !response.status().is_success() {
            return Err(BaseImageError::Status { url: url.to_owned(), status: response.status() });
        }
        let announced = response.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|size| size > order.size) {
            return Err(BaseImageError::TooLarge { url: url.to_owned() });
        }
        let mut body = response.into_body();
        let created = Writer::create(&order.room(&self.ledger));
        let mut writer = created.map_err(|error| error.describe(url, &self.ledger))?;
        while let Some(data) = next_data(url, &mut body).await? {
            let written = run_blocking(move || writer.write(&data).map(|()| writer)).await;
            writer = written.map_err(|error| error.describe(url, &self.ledger))?;
        }
        let finished = run_blocking(move || writer.finish()).await;
        finished.map_err(|error| error.describe(url, &self.ledger))
    }
}

/// The next bytes of a body; `None` is its end.
pub(super) async fn next_data(url: &str, body: &mut Incoming) -> Result<Option<Bytes>, BaseImageError> {
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
