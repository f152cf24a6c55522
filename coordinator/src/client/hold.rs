//! Requests wait while the API server asks for it by `Retry-After`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use tokio::time::{Instant, sleep_until};

/// A server may ask for more; a caller is not kept longer without an answer that it can show.
const LONGEST_HOLD: Duration = Duration::from_secs(30);

/// Until when requests wait, by resource: the election goes on while the API server
/// takes no Events.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds(Arc<Mutex<HashMap<String, Instant>>>);

impl Holds {
    /// Takes `Retry-After` out of an answer about `resource`.
    pub(super) fn note(&self, resource: &str, answer: &HeaderMap) {
        let Some(hold) = read_retry_after(answer) else { return };
        tracing::warn!(
            resource,
            seconds = hold.as_secs(),
            "the API server asks to wait; requests are held back"
        );
        let until = Instant::now() + hold;
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = holds.entry(resource.to_owned()).or_insert(until);
        *entry = until.max(*entry);
    }

    /// Waits as long as requests for `resource` are held back.
    pub(super) async fn wait(&self, resource: &str) {
        while let Some(until) = self.held_until(resource) {
            sleep_until(until).await;
        }
    }

    fn held_until(&self, resource: &str) -> Option<Instant> {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = *holds.get(resource)?;
        if until > Instant::now() {
            return Some(until);
        }
        holds.remove(resource);
        None
    }
}

/// In seconds: Kubernetes sends no dates.
fn read_retry_after(answer: &HeaderMap) -> Option<Duration> {
    let seconds = answer.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_HOLD)).filter(|hold| !hold.is_zero())
}
