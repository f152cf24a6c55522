//! How long to wait before the next try.

use std::time::Duration;

/// The first pause.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// No pause is longer: a cause that went away unseen is noticed by then.
pub const LONGEST: Duration = Duration::from_mins(5);

/// Pause after the `attempt`th failure in a row, counted from one: doubles from
/// [`SHORTEST`] to [`LONGEST`].
#[must_use]
pub fn backoff(attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    SHORTEST.saturating_mul(1 << doublings).min(LONGEST)
}

/// The first pause after somebody else wrote first.
pub const GLANCE: Duration = Duration::from_millis(20);
/// The longest such pause: what the watch brings wakes earlier.
pub const LONGEST_GLANCE: Duration = Duration::from_secs(5);

/// Pause after the `attempt`th conflict in a row, counted from one. The first
/// is short; a cache that stays behind must not make a storm of conflicts.
#[must_use]
pub fn conflict(attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    GLANCE.saturating_mul(1 << doublings).min(LONGEST_GLANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_stays_behind_is_looked_at_less_and_less_often() {
        for (attempt, want) in [(0, 20), (1, 20), (2, 40), (8, 2560), (9, 5000), (u32::MAX, 5000)] {
            assert_eq!(conflict(attempt), Duration::from_millis(want), "{attempt}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        for (attempt, want) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (u32::MAX, 300)] {
            assert_eq!(backoff(attempt), Duration::from_secs(want), "{attempt}");
        }
    }
}
