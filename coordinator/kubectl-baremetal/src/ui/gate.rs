//! The check of every request: the page can be read by its link alone, and on this machine alone.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

const TOKEN_BYTES: usize = 32;

/// The page needs nothing but its own files, and nothing may embed it.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; \
         require-trusted-types-for 'script'",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The SHA-256 of the token, because the time of a comparison must not tell anything of the token.
#[derive(Clone, Debug)]
pub(super) struct Gate([u8; 32]);

/// A random value for a path.
pub(super) fn random_token() -> Option<String> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

impl Gate {
    pub(super) fn new(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Status and text for a request that is refused. The paths below `/open/` have a check of their
    /// own.
    fn refuse(&self, method: &Method, host: Option<&str>, uri: &Uri) -> Option<(StatusCode, &'static str)> {
        if method != Method::GET {
            return Some((StatusCode::METHOD_NOT_ALLOWED, "the page only reads"));
        }
        if !host.is_some_and(is_loopback) {
            let text = "the page is read at 127.0.0.1 or localhost only";
            return Some((StatusCode::MISDIRECTED_REQUEST, text));
        }
        let first = uri.path().trim_start_matches('/').split('/').next().unwrap_or("");
        let is_known = first == "open" || <[u8; 32]>::from(Sha256::digest(first)) == self.0;
        (!is_known).then_some((StatusCode::FORBIDDEN, "open the link that `kubectl baremetal ui` printed"))
    }
}

/// `true` if the Host header names this machine, and not a site whose name resolves to loopback. Any
/// port is allowed, because the connection may be forwarded.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<axum::http::uri::Authority>() else { return false };
    !host.contains('@') && ["127.0.0.1", "localhost", "[::1]"].contains(&authority.host())
}

/// Refuses requests that are not from the reader of the page, and adds the headers to every answer.
pub(super) async fn guard(State(gate): State<Gate>, request: Request<Body>, next: Next) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none()).and_then(|host| host.to_str().ok());
    let mut response = match gate.refuse(request.method(), host, request.uri()) {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gate_admits_only_local_requests_with_token() {
        let token = random_token().unwrap();
        let gate = Gate::new(&token);
        let refuse = |method: Method, host: Option<&str>, path: &str| {
            gate.refuse(&method, host, &path.parse().unwrap()).map(|(status, _)| status.as_u16())
        };
        let own = format!("/{token}/live");
        for host in ["127.0.0.1:4000", "localhost:9", "localhost", "[::1]:4000"] {
            assert_eq!(refuse(Method::GET, Some(host), &own), None, "{host}");
        }
        for host in ["evil.example:4000", "127.0.0.1.evil.example", "a@127.0.0.1", "10.0.0.1", ""] {
            assert_eq!(refuse(Method::GET, Some(host), &own), Some(421), "{host}");
        }
        assert_eq!(refuse(Method::GET, None, &own), Some(421));
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::HEAD] {
            assert_eq!(refuse(method, Some("localhost"), &own), Some(405));
        }
        for path in ["/", "/live", "/x/live", &own[..own.len() - 8], &own.to_uppercase()] {
            assert_eq!(refuse(Method::GET, Some("localhost"), path), Some(403), "{path}");
        }
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let tokens: std::collections::BTreeSet<_> = (0..8).filter_map(|_| random_token()).collect();
        assert!(tokens.len() == 8 && tokens.iter().all(|token| token.len() == 43), "{tokens:?}");
    }
}
