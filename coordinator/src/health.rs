//! `/healthz` and `/readyz` without TLS and authentication, because the kubelet has no token for them
//! and they show no secret.

use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

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

pub fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(show_readiness).with_state(readiness))
}

async fn show_readiness(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.reason() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt as _;

    async fn get_path(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 64 * 1024).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_follows_its_reason() {
        let readiness = Readiness::default();
        let router = router(readiness.clone());
        assert_eq!(get_path(&router, "/healthz").await, (StatusCode::OK, "ok\n".to_owned()));
        assert_eq!(get_path(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        readiness.set_ready();
        assert_eq!(get_path(&router, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
        readiness.set_unready("the version changed");
        let unready = (StatusCode::SERVICE_UNAVAILABLE, "the version changed\n".to_owned());
        assert_eq!(get_path(&router, "/readyz").await, unready);
        assert_eq!(get_path(&router, "/metrics").await.0, StatusCode::NOT_FOUND, "they need a token");
    }
}
