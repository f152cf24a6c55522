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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        for (attempt, want) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (u32::MAX, 300)] {
            assert_eq!(backoff(attempt), Duration::from_secs(want), "{attempt}");
        }
    }
}
