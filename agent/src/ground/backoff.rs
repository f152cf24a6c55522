//! Waiting between attempts with full jitter, so that a rack that lost its coordinator does not
//! return all at once.

use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};

/// Upper bound of the first wait.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// A connection of this length forgets the failures before it.
pub const STABLE_CONNECTION: Duration = Duration::from_secs(30);

/// Counts failures in a row.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    failures: u32,
    first: Duration,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(FIRST, LONGEST)
    }
}

impl Backoff {
    /// Waits whose upper bound doubles from `first` to `longest`.
    pub const fn between(first: Duration, longest: Duration) -> Self {
        Self { failures: 0, first, longest }
    }

    /// Forgets the failures: the last attempt went well.
    pub const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A connection of this length broke. A connection that breaks at once counts as a failure.
    pub fn record_broken(&mut self, length: Duration) {
        if length >= STABLE_CONNECTION {
            self.succeeded();
        }
    }

    /// Waits before the next attempt.
    pub async fn wait(&mut self) {
        let mut random = [0; 4];
        // If no randomness is available, the middle of the range is used.
        let random =
            SystemRandom::new().fill(&mut random).map_or(u32::MAX / 2, |()| u32::from_ne_bytes(random));
        let pause = self.compute_delay(random);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(pause).await;
    }

    /// A time between zero and a bound that doubles with each failure.
    fn compute_delay(&self, random: u32) -> Duration {
        let bound = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(self.longest);
        bound.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stable_connection_forgets_failures() {
        let mut backoff = Backoff { failures: 3, ..Backoff::default() };
        backoff.record_broken(STABLE_CONNECTION.saturating_sub(Duration::from_millis(1)));
        assert_eq!(backoff.failures, 3);
        backoff.record_broken(STABLE_CONNECTION);
        assert_eq!(backoff.failures, 0);
    }

    #[test]
    fn the_backoff_doubles_up_to_thirty_seconds() {
        for (name, failures, random, want) in [
            ("first, unlucky", 0, u32::MAX, 500),
            ("second, unlucky", 1, u32::MAX, 1000),
            ("third, lucky", 2, 0, 0),
            ("after hours", 4000, u32::MAX, 30_000),
        ] {
            let backoff = Backoff { failures, ..Backoff::default() };
            assert_eq!(backoff.compute_delay(random), Duration::from_millis(want), "{name}");
        }
    }
}
