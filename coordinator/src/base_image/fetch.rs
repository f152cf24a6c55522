//! The client of base images: bounded redirects, no silence without end.

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::targets::Targets;
use super::{BaseImageError, SILENCE};
use crate::telemetry::chain;

const REDIRECTS: usize = 5;

/// Asks servers for base images.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector<Targets>>, Empty<Bytes>>,
    targets: Targets,
}

impl Fetcher {
    pub(super) fn new(targets: Targets) -> Result<Self, BaseImageError> {
        let mut http = HttpConnector::new_with_resolver(targets.clone());
        http.enforce_http(false);
        http.set_connect_timeout(Some(SILENCE));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(BaseImageError::Tls)?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), targets })
    }

    /// The answer at the end of all redirections.
    pub(super) async fn follow_redirects(
        &self,
        url: &str,
        mut uri: Uri,
    ) -> Result<Response<Incoming>, BaseImageError> {
        let failed = |reason: String| BaseImageError::Fetch { url: url.to_owned(), reason };
        for _ in 0..=REDIRECTS {
            if !self.targets.allows_uri(&uri) {
                return Err(failed(format!("{uri} leads to an address that is not allowed")));
            }
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
}

pub(super) fn parse_url(url: &str) -> Result<Uri, BaseImageError> {
    let parsed = url.parse::<Uri>().ok();
    parsed
        .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
        .ok_or_else(|| BaseImageError::Url { url: url.to_owned() })
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
}
