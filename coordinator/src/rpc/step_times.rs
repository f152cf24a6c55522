//! Durations of steps. A step lasts from the report of the step before, or from the sending of the
//! plan, to its own report. A step that begins or ends at another replica is not timed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::plan::Checksum;
use tokio::time::Instant;

use crate::ca::HostKey;

#[derive(Debug)]
struct Timing {
    checksum: Checksum,
    /// Time of the last report, or of the sending of the plan.
    since: Instant,
    /// The step whose report comes next.
    next: u32,
}

/// A plan for each host. An entry outlives the stream, because the host reboots.
#[derive(Debug, Default)]
pub(super) struct StepTimes(Mutex<HashMap<HostKey, Timing>>);

impl StepTimes {
    fn lock_timings(&self) -> MutexGuard<'_, HashMap<HostKey, Timing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the sending of a plan, which is repeated after each reboot.
    pub(super) fn note_sent(&self, key: &HostKey, checksum: &Checksum, now: Instant) {
        let mut timings = self.lock_timings();
        if timings.get(key).is_none_or(|known| known.checksum != *checksum) {
            let timing = Timing { checksum: checksum.clone(), since: now, next: 0 };
            timings.insert(key.clone(), timing);
        }
    }

    /// Records the report of a step, and returns its duration; `None` for a repeated report.
    pub(super) fn note_report(
        &self,
        key: &HostKey,
        checksum: &Checksum,
        step: u32,
        now: Instant,
    ) -> Option<Duration> {
        let mut timings = self.lock_timings();
        let known = timings.get_mut(key).filter(|known| known.checksum == *checksum);
        let next = step.saturating_add(1);
        let Some(known) = known else {
            let timing = Timing { checksum: checksum.clone(), since: now, next };
            timings.insert(key.clone(), timing);
            return None;
        };
        if step < known.next {
            return None;
        }
        let took = (step == known.next).then(|| now - known.since);
        (known.since, known.next) = (now, next);
        took
    }

    pub(super) fn forget_plan(&self, key: &HostKey) {
        self.lock_timings().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(text: char) -> Checksum {
        Checksum::parse(&text.to_string().repeat(64)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn steps_last_from_report_to_report() {
        let (times, start) = (StepTimes::default(), Instant::now());
        let key = HostKey { namespace: "fleet".into(), tpm_hash: "0a".into() };
        let at = |second| start + Duration::from_secs(second);
        let report = |checksum: &Checksum, step, second| {
            times.note_report(&key, checksum, step, at(second)).map(|took| took.as_secs())
        };
        let (first, second) = (checksum('a'), checksum('b'));
        times.note_sent(&key, &first, at(0));
        assert_eq!(report(&first, 0, 3), Some(3));
        assert_eq!(report(&first, 0, 5), None, "repeated");
        times.note_sent(&key, &first, at(60));
        assert_eq!(report(&first, 1, 63), Some(60), "sent again after a reboot");
        times.forget_plan(&key);
        times.note_sent(&key, &second, at(70));
        assert_eq!(report(&second, 4, 75), None, "begun at another replica");
        assert_eq!(report(&second, 5, 79), Some(4));
        assert_eq!(report(&first, 7, 81), None, "not sent here");
    }
}
