//! What became of a step, as the journal keeps it and as the wire has it.

use proto::v1alpha1::step_report::Outcome as WireOutcome;
use proto::v1alpha1::{FailureReason, StepDone, StepFailed, StepReport, SystemState};
use serde::{Deserialize, Serialize};

use super::Journal;

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It has taken effect.
    Done {
        /// Head and tail of what it printed.
        output: String,
        /// What ran after a reboot, where the step observed it.
        system: Option<Observed>,
    },
    /// It was given up.
    Failed {
        /// A [`FailureReason`] by number.
        reason: i32,
        /// Cause and next action.
        message: String,
        /// Head and tail of what it printed.
        output: String,
    },
}

/// A [`SystemState`] that can be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    boot_id: String,
    image: String,
    boot_mode: i32,
    hostname: String,
    addresses: Vec<String>,
}

/// What became of the step that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastOutcome {
    /// Counted from zero.
    pub step: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether the coordinator has it.
    pub acknowledged: bool,
}

impl Outcome {
    /// A failure.
    #[must_use]
    pub fn failed(reason: FailureReason, message: String, output: String) -> Self {
        Self::Failed { reason: reason.into(), message, output }
    }
}

impl LastOutcome {
    /// The report of this outcome, in the name of `journal`'s plan.
    #[must_use]
    pub fn report(&self, journal: &Journal) -> StepReport {
        StepReport {
            plan_id: journal.plan_id().to_owned(),
            generation: journal.generation().0,
            step: self.step,
            outcome: Some(self.outcome.clone().into()),
        }
    }
}

impl From<Outcome> for WireOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done { output, system } => {
                Self::Done(StepDone { output, system: system.map(SystemState::from) })
            }
            Outcome::Failed { reason, message, output } => {
                Self::Failed(StepFailed { reason, message, output })
            }
        }
    }
}

impl From<SystemState> for Observed {
    fn from(state: SystemState) -> Self {
        Self {
            boot_id: state.boot_id,
            image: state.image,
            boot_mode: state.boot_mode,
            hostname: state.hostname,
            addresses: state.addresses,
        }
    }
}

impl From<Observed> for SystemState {
    fn from(state: Observed) -> Self {
        Self {
            boot_id: state.boot_id,
            image: state.image,
            boot_mode: state.boot_mode,
            hostname: state.hostname,
            addresses: state.addresses,
        }
    }
}
