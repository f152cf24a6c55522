//! Counts of what was refused. Bad tokens, unknown hosts and hosts of another
//! coordinator cause no API write: they leave a number here and a bounded line
//! in the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use proto::refusal::Refusal;

use crate::metrics::Metrics;

/// At most one line of the log in this time, whoever knocks.
const QUIET: Duration = Duration::from_secs(1);

/// Metric label of a host that does not know our authority, or we not its: no
/// [`Refusal`], since the two never come to speak.
const UNKNOWN_AUTHORITY: &str = "UnknownAuthority";

/// Counts refusals, and speaks of them now and then.
#[derive(Debug, Default)]
pub struct Tally {
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
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, spoken: Mutex::default() }
    }

    /// Counts a refusal and, now and then, says so.
    pub fn refuse(&self, refusal: Refusal, detail: &str) {
        self.count(refusal.code(), detail, refusal.next_action());
    }

    /// Counts a host that does not trust us, or is of another coordinator.
    pub fn distrusted(&self, detail: &str) {
        let next =
            "the host's ISO is of another coordinator: download a fresh seed ISO and boot the host from it";
        self.count(UNKNOWN_AUTHORITY, detail, next);
    }

    fn count(&self, reason: &'static str, detail: &str, next: &str) {
        self.metrics.refused(reason);
        if let Some(swallowed) = self.may_speak(Instant::now()) {
            tracing::warn!(refusal = reason, detail, next, swallowed, "a host was turned away");
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
pub(crate) mod log {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    /// What is logged meanwhile on this thread.
    pub(crate) fn caught(work: impl FnOnce()) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_says_who_and_what_a_person_does_next() {
        for refusal in Refusal::ALL {
            let tally = Tally::default();
            let line = log::caught(|| tally.refuse(refusal, "m-a from afar"));
            for part in [refusal.code(), refusal.next_action(), "m-a from afar"] {
                assert!(line.contains(part), "{part}: {line}");
            }
            let counted = format!("refusals_total{{reason=\"{}\"}} 1", refusal.code());
            assert!(tally.metrics.encode().unwrap().contains(&counted), "{refusal:?}");
        }
    }

    #[test]
    fn a_flood_of_refusals_is_counted_and_spoken_of_once_a_second() {
        let (tally, start) = (Tally::default(), Instant::now());
        let lines: Vec<_> =
            (0..25).filter_map(|tick| tally.may_speak(start + Duration::from_millis(tick * 100))).collect();
        assert_eq!(lines, [0, 9, 9]);
    }
}
