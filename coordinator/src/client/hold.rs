//! Requests wait while the API server asks for it by `Retry-After`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use tokio::time::{Instant, sleep_until};

/// The longest wait. A server may ask for more, but a caller needs an answer that it can show.
const LONGEST_HOLD: Duration = Duration::from_secs(30);

/// The times until which requests wait, by resource, so that the election continues while the API
/// server takes no Events.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds(Arc<Mutex<HashMap<String, Instant>>>);

impl Holds {
    /// Reads `Retry-After` from an answer about `resource`.
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

    /// Waits as long as requests for `resource` are held back. If answers to other requests prolong
    /// that beyond the longest wait, this request is sent and gets an answer of its own.
    pub(super) async fn wait(&self, resource: &str) {
        let end = Instant::now() + LONGEST_HOLD;
        while let Some(until) = self.held_until(resource).filter(|_| Instant::now() < end) {
            sleep_until(until.min(end)).await;
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

/// Reads seconds only, because Kubernetes sends no dates.
fn read_retry_after(answer: &HeaderMap) -> Option<Duration> {
    let seconds = answer.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_HOLD)).filter(|hold| !hold.is_zero())
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_the_longest_hold() {
        let holds = Holds::default();
        let answer: HeaderMap = [(header::RETRY_AFTER, "20".parse().unwrap())].into_iter().collect();
        holds.note("events", &answer);
        let others = holds.clone();
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(10)).await;
                others.note("events", &answer);
            }
        });
        let start = Instant::now();
        holds.wait("leases").await;
        assert_eq!(start.elapsed(), Duration::ZERO, "of another resource");
        holds.wait("events").await;
        assert_eq!(start.elapsed(), LONGEST_HOLD);
    }
}
