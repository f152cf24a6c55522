//! `/metrics` on a port of its own, as Cluster API's providers serve it: over TLS, and for callers that
//! the API server knows by their token and allows `get` on the path.

mod reviews;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::http::header::WWW_AUTHENTICATE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use kube::Client;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::server::NoServerSessionStorage;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use self::reviews::{Reviews, Verdict, read_token};
use crate::metrics::Metrics;
use crate::port::{PROBES, serve_port};

const PATH: &str = "/metrics";

#[derive(Debug, thiserror::Error)]
pub enum DiagnosticsError {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// Serves the metrics; the future never ends. Tokens are reviewed by the API server of `reviewer`; without
/// one everybody is answered, and without TLS.
pub fn serve_diagnostics(
    port: TcpListener,
    metrics: Metrics,
    reviewer: Option<Client>,
) -> Result<impl Future<Output = ()> + Send + 'static, DiagnosticsError> {
    let tls = reviewer.is_some().then(make_acceptor).transpose()?;
    Ok(serve_port(port, tls, build_router(metrics, reviewer.map(Reviews::new)), PROBES))
}

/// TLS with a certificate that no authority signed, as controller-runtime makes one. It is not one of the
/// authority of hosts, because the metrics are served before that authority is read or created.
fn make_acceptor() -> Result<TlsAcceptor, DiagnosticsError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(["localhost".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, "baremetal coordinator diagnostics");
    let chain = vec![params.self_signed(&key)?.der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key.into())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn build_router(metrics: Metrics, reviews: Option<Reviews>) -> Router {
    let routes = Router::new().route(PATH, get(encode_metrics).with_state(metrics));
    match reviews {
        Some(reviews) => routes.layer(middleware::from_fn_with_state(Arc::new(reviews), authorize)),
        None => routes,
    }
}

async fn encode_metrics(State(metrics): State<Metrics>) -> Result<String, StatusCode> {
    metrics.encode_text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn authorize(
    State(reviews): State<Arc<Reviews>>,
    ConnectInfo(remote): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let verdict = match read_token(request.headers()) {
        Some(token) => reviews.judge_token(token, remote.ip()).await,
        None => Verdict::Unknown,
    };
    match verdict {
        Verdict::Allowed => next.run(request).await,
        Verdict::Unknown => (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response(),
        Verdict::Forbidden => StatusCode::FORBIDDEN.into_response(),
        Verdict::TooMany => StatusCode::TOO_MANY_REQUESTS.into_response(),
        Verdict::Failed => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests;
