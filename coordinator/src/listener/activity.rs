//! Activity of a connection, so that an unused one is closed: requests, and answers that are read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::failure::Failure;
use crate::config::ConnectionLimits;

#[derive(Debug)]
struct State {
    was_used: bool,
    /// Requests without an answer yet.
    running: usize,
    last: Instant,
}

/// The activity of a connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Mutex<State>>);

/// A request that is being handled.
pub(super) struct Running(Activity);

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { was_used: false, running: 0, last: Instant::now() })))
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_request(&self) -> Running {
        let mut state = self.lock_state();
        state.was_used = true;
        state.running += 1;
        drop(state);
        Running(self.clone())
    }

    /// Records that the client read a part of an answer.
    pub(super) fn note_progress(&self) {
        self.lock_state().last = Instant::now();
    }

    /// Returns when the connection has to be closed. `left` is the remaining validity of its
    /// certificate, if the client has one.
    pub(super) async fn wait_unused(&self, limits: &ConnectionLimits, left: Option<Duration>) -> Failure {
        tokio::time::sleep(limits.first_request_timeout.min(left.unwrap_or(Duration::MAX))).await;
        if !self.lock_state().was_used {
            return Failure::NoRequest;
        }
        if let Some(left) = left {
            tokio::time::sleep(left.saturating_sub(limits.first_request_timeout)).await;
            return Failure::Expired;
        }
        loop {
            let (now, idle_at) = (Instant::now(), self.idle_at(limits.idle_timeout));
            if idle_at <= now {
                return Failure::Idle;
            }
            tokio::time::sleep_until(idle_at).await;
        }
    }

    fn idle_at(&self, timeout: Duration) -> Instant {
        let state = self.lock_state();
        let since = if state.running > 0 { Instant::now() } else { state.last };
        since + timeout
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.lock_state();
        state.running -= 1;
        state.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ConnectionLimits {
        ConnectionLimits {
            first_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            ..ConnectionLimits::default()
        }
    }

    async fn closed_after(activity: &Activity, left: Option<Duration>) -> (Failure, u64) {
        let start = Instant::now();
        let failure = activity.wait_unused(&limits(), left).await;
        (failure, start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn first_request_has_a_deadline() {
        for left in [None, Some(Duration::from_hours(1))] {
            assert_eq!(closed_after(&Activity::new(), left).await, (Failure::NoRequest, 10));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_anonymous_connections_are_closed_when_idle() {
        let activity = Activity::new();
        drop(activity.start_request());
        assert_eq!(closed_after(&activity, None).await, (Failure::Idle, 60));
        assert_eq!(
            closed_after(&activity, Some(Duration::from_hours(24))).await,
            (Failure::Expired, 24 * 3600)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_and_progress_keep_a_connection() {
        let activity = Activity::new();
        let running = activity.start_request();
        let used = activity.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(5)).await;
            drop(running);
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                used.note_progress();
            }
        });
        assert_eq!(closed_after(&activity, None).await, (Failure::Idle, 860));
    }
}
