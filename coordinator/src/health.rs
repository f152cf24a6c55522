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
