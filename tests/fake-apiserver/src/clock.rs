//! The server's clock: virtual when tokio's is.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where `creationTimestamp`, `deletionTimestamp` and managed fields get their time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock of the caller's own.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Starts at `start` and runs with tokio's clock: paused and advanced with it.
    pub fn starting_at(start: Timestamp) -> Self {
        let begun = Instant::now();
        Self::new(move || {
            let elapsed = SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::MAX);
            start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
        })
    }

    /// As the API writes it: whole seconds, UTC.
    pub(crate) fn rfc3339(&self) -> String {
        (self.0)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.rfc3339()).finish()
    }
}
