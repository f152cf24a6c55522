//! Counts of what was refused. Bad tokens and unknown hosts cause no API write:
//! they leave a number here and a bounded line in the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use proto::refusal::Refusal;

use crate::metrics::Metrics;

/// At most one line of the log in this time, whoever knocks.
const QUIET: Duration = Duration::from_secs(1);

/// Counts refusals, and speaks of them now and then.
#[derive(Debug, Default)]
pub(super) struct Tally {
    metrics: Metrics,
    spoken: Mutex<Spoken>,
}

#[derive(Debug, Default)]
struct Spoken {
    last: Option<Instant>,
    swallowed: u64,
}

impl Tally {
    /// Counts in `metrics`.
    #[must_use]
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, spoken: Mutex::default() }
    }

    /// Counts a refusal and, now and then, says so.
    pub(super) fn refuse(&self, refusal: Refusal, detail: &str) {
        self.metrics.refused(refusal);
        if let Some(swallowed) = self.may_speak(Instant::now()) {
            tracing::warn!(refusal = refusal.code(), detail, swallowed, "refused a host");
        }
    }

    /// The number of lines left out since the last one, when it is time for
    /// another.
    fn may_speak(&self, now: Instant) -> Option<u64> {
        let mut spoken = self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        if spoken.last.is_some_and(|last| now.duration_since(last) < QUIET) {
            spoken.swallowed += 1;
            return None;
        }
        spoken.last = Some(now);
        Some(std::mem::take(&mut spoken.swallowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_counted_and_spoken_of_once_a_second() {
        let (tally, start) = (Tally::default(), Instant::now());
        let lines: Vec<_> =
            (0..25).filter_map(|tick| tally.may_speak(start + Duration::from_millis(tick * 100))).collect();
        assert_eq!(lines, [0, 9, 9]);
    }
}
