//! Intervals between retries.

use std::time::Duration;

/// The first interval after a failure.
pub const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest interval: a cause that ended unseen is noticed by then.
pub const RETRY_MAX: Duration = Duration::from_mins(5);

/// Interval after the `attempt`th failure in a row, counted from one: doubles from
/// [`RETRY_MIN`] to [`RETRY_MAX`].
pub fn failure_backoff(attempt: u32) -> Duration {
    double_interval(attempt, RETRY_MIN, RETRY_MAX)
}

/// The first interval after an endpoint that did not answer.
const PROBE_RETRY_MIN: Duration = Duration::from_secs(30);

/// Interval after the `attempt`th question in a row that an endpoint did not answer,
/// counted from one.
pub fn probe_backoff(attempt: u32) -> Duration {
    double_interval(attempt, PROBE_RETRY_MIN, RETRY_MAX)
}

/// The first interval after a resourceVersion conflict.
pub const CONFLICT_RETRY_MIN: Duration = Duration::from_millis(20);
/// The longest such interval: the watch brings the newer object earlier.
pub const CONFLICT_RETRY_MAX: Duration = Duration::from_secs(5);

/// Conflicts in a row that a race with another writer or a late cache may have, in about 15 seconds.
/// More have another cause, and are failures.
pub const CONFLICTS_IN_A_RACE: u32 = 10;

/// Interval after the `attempt`th conflict in a row, counted from one. The first
/// is short; a cache that stays behind must not make a storm of conflicts.
pub fn conflict_backoff(attempt: u32) -> Duration {
    let further = attempt.saturating_sub(CONFLICTS_IN_A_RACE);
    let interval = double_interval(attempt, CONFLICT_RETRY_MIN, CONFLICT_RETRY_MAX);
    if further == 0 { interval } else { failure_backoff(further).max(interval) }
}

fn double_interval(attempt: u32, min: Duration, max: Duration) -> Duration {
    min.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_intervals_grow_to_their_maximum() {
        for (attempt, want) in
            [(0, 20), (1, 20), (2, 40), (8, 2560), (10, 5000), (13, 5000), (14, 8000), (u32::MAX, 300_000)]
        {
            assert_eq!(conflict_backoff(attempt), Duration::from_millis(want), "{attempt}");
        }
    }

    #[test]
    fn failure_intervals_double_to_their_maximum() {
        for (attempt, want) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (u32::MAX, 300)] {
            assert_eq!(failure_backoff(attempt), Duration::from_secs(want), "{attempt}");
        }
    }

    #[test]
    fn silent_endpoints_are_asked_less_and_less() {
        for (attempt, want) in [(1, 30), (2, 60), (4, 240), (5, 300), (u32::MAX, 300)] {
            assert_eq!(probe_backoff(attempt), Duration::from_secs(want), "{attempt}");
        }
    }
}
