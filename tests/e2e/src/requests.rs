//! Requests of a test that is itself no part of a disturbance: a request that
//! the disturbed API server did not answer is repeated until a deadline.

use std::error::Error;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, sleep};

/// Longer than any pause of an API server that a test makes.
const DEADLINE: Duration = Duration::from_mins(3);
const INTERVAL: Duration = Duration::from_millis(200);

/// Repeats `request` while its error is transient.
///
/// # Errors
/// The last error, when it is not transient or the deadline has passed.
pub async fn retry<T, E>(attempt: &str, request: impl AsyncFn() -> Result<T, E>) -> anyhow::Result<T>
where
    E: Error + Send + Sync + 'static,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        match request().await {
            Err(error) if is_transient(&error) && Instant::now() < deadline => sleep(INTERVAL).await,
            answer => return answer.with_context(|| attempt.to_owned()),
        }
    }
}

/// Whether the API server may answer the same request later: it did not answer
/// at all, or with an error that passes.
pub fn is_transient(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<kube::Error>() {
            return match error {
                kube::Error::Api(status) => status.code >= 500 || status.code == 429,
                kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
                _ => false,
            };
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn api_error(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(kube::core::Status { code, ..Default::default() }))
    }

    fn cut_answer() -> kube::Error {
        kube::Error::Service("unexpected EOF during chunk size line".into())
    }

    #[test]
    fn only_errors_that_pass_are_transient() {
        for (error, want) in [
            (cut_answer(), true),
            (api_error(500), true),
            (api_error(503), true),
            (api_error(429), true),
            (api_error(403), false),
            (api_error(404), false),
            (api_error(409), false),
        ] {
            assert_eq!(is_transient(&error), want, "{error:?}");
        }
    }

    #[test]
    fn transient_cause_is_found_in_error_chain() {
        let error =
            control_plane::apply::Error::Apply { kind: "A".into(), name: "a".into(), source: cut_answer() };
        assert!(is_transient(&error));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_repeated_until_answered() {
        let attempts = Cell::new(0);
        let answer = retry("get", async || {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 3 { Err(cut_answer()) } else { Ok(attempts.get()) }
        });
        assert_eq!(answer.await.unwrap(), 3);
        let refused = retry("get", async || Err::<(), _>(api_error(404))).await;
        assert_eq!(refused.unwrap_err().to_string(), "get");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_end_at_their_deadline() {
        let start = Instant::now();
        assert!(retry("get", async || Err::<(), _>(cut_answer())).await.is_err());
        assert!(start.elapsed() < DEADLINE + 2 * INTERVAL);
    }
}
