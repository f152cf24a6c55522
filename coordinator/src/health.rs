//! `/healthz`, `/readyz` and `/metrics` without TLS, because they show no secret.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use futures::FutureExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use crate::metrics::Metrics;
use crate::permits::Permits;

/// Readiness to serve hosts, with the reason if there is none.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<RwLock<Option<String>>>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Some("starting".to_owned()))))
    }
}

impl Readiness {
    pub fn set_ready(&self) {
        self.set_reason(None);
    }

    /// Shows `reason` until the next change.
    pub fn set_unready(&self, reason: impl Into<String>) {
        self.set_reason(Some(reason.into()));
    }

    fn set_reason(&self, reason: Option<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Connections at a time, and those of one address: kubelet and Prometheus need few, and any pod may
/// open some.
const CONNECTIONS: usize = 256;
const SOURCE_CONNECTIONS: usize = 8;
/// Longest time until the head of a request, and of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(5);
/// The pause after a failure to accept, as when file descriptors are used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers on the port; never returns. A connection above a limit is closed.
pub async fn serve_port(port: TcpListener, routes: Router) {
    let permits = Permits::new(CONNECTIONS, SOURCE_CONNECTIONS);
    loop {
        let Ok((stream, remote)) = port.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let permit = permits.acquire(&remote.ip().to_canonical()).now_or_never().flatten();
        if let Some(permit) = permit {
            let served = serve_connection(stream, routes.clone());
            tokio::spawn(async move {
                // The end of a connection concerns its client alone.
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
                drop(permit);
            });
        }
    }
}

async fn serve_connection(stream: TcpStream, routes: Router) -> Result<(), hyper::Error> {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes)).await
}

pub fn router(readiness: Readiness, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(show_readiness).with_state(readiness))
        .route("/metrics", get(encode_metrics).with_state(metrics))
}

async fn show_readiness(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.reason() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn encode_metrics(State(metrics): State<Metrics>) -> Result<String, StatusCode> {
    metrics.encode_text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use proto::refusal::Refusal;
    use tower::ServiceExt as _;

    async fn get_path(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 64 * 1024).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn connections_of_an_address_are_bounded() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = port.local_addr().unwrap();
        let served = tokio::spawn(serve_port(port, router(Readiness::default(), Metrics::default())));
        let ask = async |mut stream: TcpStream| {
            let mut answer = vec![];
            let asked = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
            let asked = stream.write_all(asked).await;
            let read = stream.read_to_end(&mut answer).await;
            asked.is_ok() && read.is_ok() && answer.starts_with(b"HTTP/1.1 200")
        };
        let mut held = vec![];
        for _ in 0..SOURCE_CONNECTIONS {
            held.push(TcpStream::connect(address).await.unwrap());
        }
        assert!(!ask(TcpStream::connect(address).await.unwrap()).await, "one too many");
        let other = tokio::net::TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        assert!(ask(other.connect(address).await.unwrap()).await, "another address is answered");
        for stream in held {
            assert!(ask(stream).await, "those that are open are answered");
        }
        served.abort();
    }

    #[tokio::test]
    async fn readiness_follows_its_reason() {
        let readiness = Readiness::default();
        let router = router(readiness.clone(), Metrics::default());
        assert_eq!(get_path(&router, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
        assert_eq!(get_path(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        readiness.set_ready();
        assert_eq!(get_path(&router, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
        readiness.set_unready("the version changed");
        let unready = (StatusCode::SERVICE_UNAVAILABLE, "the version changed\n".to_owned());
        assert_eq!(get_path(&router, "/readyz").await, unready);
    }

    #[tokio::test]
    async fn refusals_have_the_name_in_the_manual() {
        let name = "baremetal_coordinator_refusals_total";
        let manual = std::fs::read_to_string("../docs/operations.md").unwrap();
        assert!(manual.contains(&format!("`{name}`")));
        let metrics = Metrics::default();
        let router = router(Readiness::default(), metrics.clone());
        metrics.count_refused(Refusal::UnknownToken.code());
        metrics.count_refused(Refusal::UnknownToken.code());
        let (status, text) = get_path(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.lines().any(|line| line == format!("{name}{{reason=\"UnknownToken\"}} 2")), "{text}");
    }
}
