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

    /// Waits before the next attempt, up to a bound that doubles with each failure.
    pub async fn wait(&mut self) {
        let pause = self.compute_bound().mul_f64(draw_fraction());
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(pause).await;
    }

    /// The upper bound of the next wait.
    fn compute_bound(&self) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(self.longest)
    }
}

/// A number between 0 and 1. If no randomness is available, it is 1/2.
pub fn draw_fraction() -> f64 {
    let mut random = [0; 4];
    let random = SystemRandom::new().fill(&mut random).map_or(u32::MAX / 2, |()| u32::from_ne_bytes(random));
    f64::from(random) / f64::from(u32::MAX)
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
        for (failures, want) in [(0, 500), (1, 1000), (2, 2000), (4000, 30_000)] {
            let backoff = Backoff { failures, ..Backoff::default() };
            assert_eq!(backoff.compute_bound(), Duration::from_millis(want), "after {failures}");
        }
    }

    #[test]
    fn fractions_differ_between_zero_and_one() {
        let drawn: Vec<_> = (0..8).map(|_| draw_fraction()).collect();
        assert!(drawn.iter().all(|fraction| (0.0..=1.0).contains(fraction)), "{drawn:?}");
        assert!(drawn.iter().any(|fraction| fraction.to_bits() != drawn[0].to_bits()), "{drawn:?}");
    }
}
