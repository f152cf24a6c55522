//! When the network may be reported: after a burst of changes has settled, and
//! never more often than a large fleet can bear.

use std::time::Duration;

use tokio::time::Instant;

/// A cable that is plugged in makes a dozen changes.
const SETTLE: Duration = Duration::from_secs(3);
/// Shortest time between two reports.
const APART: Duration = Duration::from_secs(30);

/// Remembers the last report and the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    last: Option<Instant>,
    due: Option<Instant>,
}

impl Pace {
    /// A new line: the coordinator wants to know.
    pub fn attached(&mut self, now: Instant) {
        self.due = Some(self.allowed(now));
    }

    /// Something changed.
    pub fn changed(&mut self, now: Instant) {
        if self.due.is_none() {
            self.due = Some(self.allowed(now + SETTLE));
        }
    }

    /// A report went out.
    pub fn reported(&mut self, now: Instant) {
        *self = Self { last: Some(now), due: None };
    }

    /// When to report; nothing while there is nothing new.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    fn allowed(&self, wanted: Instant) -> Instant {
        self.last.map_or(wanted, |last| wanted.max(last + APART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_wait_for_quiet_and_for_each_other() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert_eq!(pace.due(), None);
        pace.attached(start);
        assert_eq!(pace.due(), Some(start), "the first at once");
        pace.reported(start);
        pace.changed(at(5));
        pace.changed(at(20));
        assert_eq!(pace.due(), Some(at(30)), "one for all changes, half a minute after the last");
        pace.reported(at(30));
        pace.changed(at(100));
        assert_eq!(pace.due(), Some(at(103)), "settled");
        pace.reported(at(103));
        pace.attached(at(104));
        assert_eq!(pace.due(), Some(at(133)), "a line that flaps is no reason to flood");
    }
}
