//! The HTTP client for base images: redirects and silence are bounded.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use super::BaseImageError;
use super::shown_url;
use crate::egress::{Targets, UnknownHost};
use crate::telemetry::chain;

const REDIRECTS: usize = 5;
/// A fetch ends after this time without a byte from the server.
pub(super) const SILENCE: Duration = Duration::from_mins(1);

/// Asks servers for base images.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector<Targets>>, Empty<Bytes>>,
    targets: Targets,
}

impl Fetcher {
    /// Trusts `authorities` and those of the system, because a registry with a private authority may
    /// redirect to a server with a public one.
    pub(super) fn new(
        targets: Targets,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, BaseImageError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(authorities);
        if roots.is_empty() {
            return Err(BaseImageError::Tls(io::Error::other("there are no root certificates")));
        }
        let builder = ClientConfig::builder_with_provider(provider());
        let config = builder.with_safe_default_protocol_versions().map_err(io::Error::other);
        let config = config.map_err(BaseImageError::Tls)?.with_root_certificates(roots);
        Ok(Self::with_config(targets, config.with_no_client_auth()))
    }

    fn with_config(targets: Targets, config: ClientConfig) -> Self {
        let mut http = HttpConnector::new_with_resolver(targets.clone());
        http.enforce_http(false);
        http.set_connect_timeout(Some(SILENCE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Self { client: Client::builder(TokioExecutor::new()).build(connector), targets }
    }

    /// The answer at the end of all redirections, with any status; `shown` names the base in errors.
    /// Credentials are not sent to another server than the first.
    pub(super) async fn follow_redirects(
        &self,
        shown: &str,
        mut uri: Uri,
        mut headers: HeaderMap,
    ) -> Result<Response<Incoming>, BaseImageError> {
        for _ in 0..=REDIRECTS {
            if !self.targets.allows_uri(&uri) {
                let reason =
                    format!("{} leads to an address that is not allowed", shown_url(&uri.to_string()));
                return Err(BaseImageError::fetch(shown, reason));
            }
            let request = Request::get(uri.clone()).body(Empty::new());
            let mut request = request.map_err(|error| BaseImageError::fetch(shown, error.to_string()))?;
            request.headers_mut().clone_from(&headers);
            let response = tokio::time::timeout(SILENCE, self.client.request(request))
                .await
                .map_err(|_| BaseImageError::fetch(shown, "no answer in time"))?
                .map_err(|error| describe_failure(shown, &error))?;
            let location = response.headers().get(header::LOCATION);
            let next = location.and_then(|value| redirect_target(&uri, value.to_str().ok()?));
            let Some(next) = next.filter(|_| response.status().is_redirection()) else {
                return Ok(response);
            };
            if (next.scheme(), next.authority()) != (uri.scheme(), uri.authority()) {
                headers.remove(header::AUTHORIZATION);
            }
            uri = next;
        }
        Err(BaseImageError::fetch(shown, format!("more than {REDIRECTS} redirections")))
    }
}

fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    std::sync::Arc::new(rustls::crypto::ring::default_provider())
}

/// Finds the cause in the chain of errors that an operator can act on.
fn describe_failure(shown: &str, error: &(dyn Error + 'static)) -> BaseImageError {
    let url = shown.to_owned();
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<UnknownHost>() {
            return BaseImageError::HostUnknown { url };
        }
        if let Some(rustls::Error::InvalidCertificate(reason)) = error.downcast_ref() {
            return BaseImageError::Untrusted { url, reason: reason.to_string() };
        }
        // `source` of an io::Error skips the error inside of it.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    BaseImageError::Fetch { url, reason: chain(error) }
}

/// Target of a redirection: an absolute URL, or a path on the same server. A redirection from https
/// to http has no target, because it would drop the protection.
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
}
