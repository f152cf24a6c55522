//! Limits the rate of reports about the network and the progress of steps, so that the coordinator
//! of a large fleet can bear them.

use std::time::Duration;

use proto::v1alpha1::{ObservedReport, StepProgress};
use tokio::time::Instant;

/// Plugging in a cable causes a dozen changes.
const SETTLE: Duration = Duration::from_secs(3);
/// Shortest time between two reports.
const APART: Duration = Duration::from_secs(30);

/// The times of the last and the next report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    last: Option<Instant>,
    due: Option<Instant>,
}

impl Pace {
    /// The coordinator needs a report after each attach.
    pub fn attached(&mut self, now: Instant) {
        self.due = Some(self.allowed_at(now));
    }

    pub fn record_changed(&mut self, now: Instant) {
        if self.due.is_none() {
            self.due = Some(self.allowed_at(now + SETTLE));
        }
    }

    pub fn record_reported(&mut self, now: Instant) {
        *self = Self { last: Some(now), due: None };
    }

    /// Time of the next report; `None` if nothing has changed.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    fn allowed_at(&self, wanted: Instant) -> Instant {
        self.last.map_or(wanted, |last| wanted.max(last + APART))
    }
}

#[derive(Debug, Default)]
pub struct LastObserved(Option<ObservedReport>);

impl LastObserved {
    /// True if the coordinator does not have this report. On a busy node the workload changes the
    /// network all the time, without any change of the host's own network.
    pub fn is_news(&self, report: &ObservedReport) -> bool {
        self.0.as_ref() != Some(report)
    }

    /// The cause in that report for which the agent cannot write its state.
    pub fn state_failure(&self) -> &str {
        let system = self.0.as_ref().and_then(|report| report.system.as_ref());
        system.map_or("", |system| &system.state_failure)
    }

    /// Data of former tenants, in that report.
    pub fn left_behind(&self) -> &[String] {
        let system = self.0.as_ref().and_then(|report| report.system.as_ref());
        system.map_or(&[], |system| &system.left_behind)
    }

    /// Records that the coordinator has the report, or refuses it.
    pub fn record_sent(&mut self, report: ObservedReport) {
        self.0 = Some(report);
    }
}

/// Shortest time between two messages about the progress of one step.
const PROGRESS_APART: Duration = Duration::from_secs(10);

/// The progress of the running step, and the time to send it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressPace {
    sent: Option<(StepProgress, Instant)>,
    unsent: Option<StepProgress>,
}

impl ProgressPace {
    /// Sets the running step; `None` between two steps.
    pub fn set_running(&mut self, running: Option<StepProgress>) {
        self.unsent = running;
    }

    /// Time to send; `None` if there is nothing to send.
    pub fn due(&self) -> Option<Instant> {
        let running = self.unsent.as_ref()?;
        match &self.sent {
            Some((sent, at)) if step_of(sent) == step_of(running) => Some(*at + PROGRESS_APART),
            Some(_) | None => Some(Instant::now()),
        }
    }

    /// Takes the progress to send now.
    pub fn take_due(&mut self, now: Instant) -> Option<StepProgress> {
        let progress = self.unsent.take()?;
        self.sent = Some((progress.clone(), now));
        Some(progress)
    }
}

fn step_of(progress: &StepProgress) -> (&str, u64, u32) {
    (&progress.plan_id, progress.generation, progress.step)
}

#[cfg(test)]
mod tests {
    use proto::v1alpha1::SystemState;

    use super::*;

    #[test]
    fn reports_wait_for_quiet_and_for_each_other() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert_eq!(pace.due(), None);
        pace.attached(start);
        assert_eq!(pace.due(), Some(start), "the first at once");
        pace.record_reported(start);
        pace.record_changed(at(5));
        pace.record_changed(at(20));
        assert_eq!(pace.due(), Some(at(30)), "one for all changes, half a minute after the last");
        pace.record_reported(at(30));
        pace.record_changed(at(100));
        assert_eq!(pace.due(), Some(at(103)), "settled");
        pace.record_reported(at(103));
        pace.attached(at(104));
        assert_eq!(pace.due(), Some(at(133)), "a line that flaps is no reason to flood");
    }

    #[test]
    fn an_unchanged_network_is_no_news() {
        let report = |hostname: &str| ObservedReport {
            system: Some(SystemState { hostname: hostname.into(), ..SystemState::default() }),
            network: None,
        };
        let mut last = LastObserved::default();
        assert!(last.is_news(&report("a")), "a new connection");
        last.record_sent(report("a"));
        assert!(!last.is_news(&report("a")));
        assert!(last.is_news(&report("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn step_progress_is_sent_every_ten_seconds() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let progress = |step, attempt| {
            let last_failure = format!("attempt {attempt} failed");
            Some(StepProgress { plan_id: "p".into(), generation: 1, step, attempt, last_failure })
        };
        let mut pace = ProgressPace::default();
        assert_eq!(pace.due(), None);
        pace.set_running(progress(0, 1));
        assert_eq!(pace.due(), Some(start), "a step that starts");
        assert_eq!(pace.take_due(start), progress(0, 1));
        assert_eq!(pace.due(), None, "sent");
        pace.set_running(progress(0, 2));
        assert_eq!(pace.due(), Some(at(10)), "another attempt");
        pace.set_running(progress(1, 1));
        assert_eq!(pace.due(), Some(start), "another step");
        pace.set_running(None);
        assert_eq!((pace.due(), pace.take_due(start)), (None, None), "nothing runs");
    }
}
