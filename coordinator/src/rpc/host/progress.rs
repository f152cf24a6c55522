//! The running step of a host. It is recorded only if it takes long, and at a bounded rate.

use proto::v1alpha1 as wire;
use tokio::time::Instant;

use crate::rpc::SessionTiming;

/// The progress of a step, as the host reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningStep {
    pub(super) plan_id: String,
    pub(super) generation: u64,
    pub(super) step: u32,
    pub(super) attempt: u32,
    pub(super) last_failure: String,
}

/// The recorded part of the progress.
#[derive(Debug)]
pub(super) struct StepProgress {
    timing: SessionTiming,
    running: Option<(RunningStep, Instant)>,
    recorded: Option<RunningStep>,
    recorded_at: Option<Instant>,
}

impl StepProgress {
    pub(super) fn new(timing: SessionTiming) -> Self {
        Self { timing, running: None, recorded: None, recorded_at: None }
    }

    /// Applies a report of the host. Another attempt is not a new start of the step.
    pub(super) fn note_progress(&mut self, progress: wire::StepProgress, now: Instant) {
        let wire::StepProgress { plan_id, generation, step, attempt, last_failure } = progress;
        let new = RunningStep { plan_id, generation, step, attempt, last_failure };
        let same = self.running.take().filter(|(old, _)| {
            old.plan_id == new.plan_id && old.generation == new.generation && old.step == new.step
        });
        self.running = Some((new, same.map_or(now, |(_, since)| since)));
    }

    /// Time of the next record.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let (running, since) = self.running.as_ref()?;
        if self.recorded.as_ref() == Some(running) {
            return None;
        }
        let long_enough = *since + self.timing.step_delay;
        let next = self.recorded_at.map(|recorded| recorded + self.timing.step_interval);
        Some(next.map_or(long_enough, |next| next.max(long_enough)))
    }

    /// Takes the step that has to be recorded at `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<RunningStep> {
        self.due_at().filter(|due| *due <= now)?;
        self.recorded = self.running.as_ref().map(|(running, _)| running.clone());
        self.recorded_at = Some(now);
        self.recorded.clone()
    }

    /// Forgets the step after its report.
    pub(super) fn clear_step(&mut self) {
        self.running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn progress(step: u32, attempt: u32) -> wire::StepProgress {
        wire::StepProgress {
            plan_id: "clean-1".into(),
            generation: 1,
            step,
            attempt,
            last_failure: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_long_steps_are_recorded_each_minute() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut steps = StepProgress::new(SessionTiming::default());
        steps.note_progress(progress(0, 1), at(0));
        steps.note_progress(progress(1, 1), at(9));
        assert_eq!(steps.take_due(at(18)), None, "9 s");
        assert_eq!(steps.take_due(at(19)).map(|step| (step.step, step.attempt)), Some((1, 1)));
        assert_eq!(steps.take_due(at(500)), None, "the same");
        steps.note_progress(progress(1, 2), at(30));
        assert_eq!(steps.take_due(at(78)), None, "within a minute");
        assert_eq!(steps.due_at(), Some(at(79)));
        steps.note_progress(progress(1, 3), at(70));
        assert_eq!(steps.take_due(at(79)).map(|step| step.attempt), Some(3));
        steps.note_progress(progress(2, 1), at(200));
        steps.clear_step();
        assert_eq!(steps.take_due(at(900)), None, "reported");
    }
}
