//! `/healthz`, `/readyz` and `/metrics`, in the clear: nothing secret is here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use crate::metrics::Metrics;

/// Whether hosts can be served: the caches are filled.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<AtomicBool>);

impl Ready {
    /// From now on.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The routes.
pub fn router(ready: Ready, metrics: Metrics) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(ready))
        .route("/metrics", get(text).with_state(metrics))
}

async fn readyz(State(Ready(ready)): State<Ready>) -> (StatusCode, &'static str) {
    if ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n")
    }
}

async fn text(State(metrics): State<Metrics>) -> Result<String, StatusCode> {
    metrics.encode().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use proto::refusal::Refusal;
    use tower::ServiceExt as _;

    async fn look(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 64 * 1024).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn it_lives_at_once_and_is_ready_when_it_is_told_so() {
        let ready = Ready::default();
        let router = router(ready.clone(), Metrics::default());
        assert_eq!(look(&router, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
        assert_eq!(look(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        ready.set();
        assert_eq!(look(&router, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn refusals_are_counted_under_the_name_that_the_manual_promises() {
        let name = "baremetal_coordinator_refusals_total";
        let manual = std::fs::read_to_string("../docs/operations.md").unwrap();
        assert!(manual.contains(&format!("`{name}`")));
        let metrics = Metrics::default();
        let router = router(Ready::default(), metrics.clone());
        metrics.refused(Refusal::UnknownToken.code());
        metrics.refused(Refusal::UnknownToken.code());
        let (status, text) = look(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.lines().any(|line| line == format!("{name}{{reason=\"UnknownToken\"}} 2")), "{text}");
    }
}
