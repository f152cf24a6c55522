//! What comes next: a pure function of the plan, the journal and the boot.

use proto::plan::{Generation, Plan, Step};

use crate::ground::error::NextAction;
use crate::plan::step_spec::StepSpec;
use crate::state::journal::{Entry, Journal, State};

/// What to do about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// The plan must not run on this host.
    Refuse(Outdated),
    /// The plan is new: journal it, from its first step.
    Begin,
    /// Run this step; a part of it, or all, may have happened already.
    Run {
        /// Counted from zero.
        index: usize,
        step: &'a Step,
    },
    /// The reboot that this step asked for has happened.
    Rebooted {
        /// Counted from zero.
        index: usize,
    },
    /// The step was started, it is unknown whether it took effect, and it must
    /// not take effect twice: give it up.
    Interrupted {
        /// Counted from zero.
        index: usize,
    },
    /// Every step is done, or one was given up.
    Finished,
}

/// Why a plan is not the one to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outdated {
    /// A newer plan was accepted before.
    #[error("generation {offered} is older than generation {accepted}, which this host has accepted")]
    Generation { offered: Generation, accepted: Generation },
    /// Another plan was accepted under the same number.
    #[error("generation {generation} is taken by plan {accepted} with another name or content")]
    OtherPlan {
        generation: Generation,
        /// The plan in the journal.
        accepted: String,
    },
}

impl NextAction for Outdated {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::Generation { .. } => "none: the host waits for a newer plan",
            Self::OtherPlan { .. } => "give the host a plan with a higher generation",
        })
    }
}

/// What comes next for `plan` in the boot `boot`.
pub fn next<'a>(plan: &'a Plan, journal: Option<&Journal>, boot: &str) -> Next<'a> {
    let Some(journal) = journal else {
        return Next::Begin;
    };
    let accepted = journal.generation();
    if plan.generation > accepted {
        return Next::Begin;
    }
    if plan.generation < accepted {
        return Next::Refuse(Outdated::Generation { offered: plan.generation, accepted });
    }
    if !journal.is_of(plan) {
        return Next::Refuse(Outdated::OtherPlan {
            generation: accepted,
            accepted: journal.plan_id().to_owned(),
        });
    }
    let mut steps = plan.steps.iter().zip(journal.steps()).enumerate();
    steps.find_map(|(index, (step, entry))| next_of_step(index, step, entry, boot)).unwrap_or(Next::Finished)
}

/// `None` when the step is done and the next one counts.
fn next_of_step<'a>(index: usize, step: &'a Step, entry: &Entry, boot: &str) -> Option<Next<'a>> {
    match &entry.state {
        State::Done { .. } => None,
        State::Failed => Some(Next::Finished),
        State::Pending => Some(Next::Run { index, step }),
        State::Started { boot_id, .. } if matches!(step, Step::Reboot) && boot_id != boot => {
            Some(Next::Rebooted { index })
        }
        State::Started { .. } if StepSpec::spec_of(step).repeatable => Some(Next::Run { index, step }),
        State::Started { .. } => Some(Next::Interrupted { index }),
    }
}

#[cfg(test)]
mod tests;
