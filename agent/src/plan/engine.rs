//! Decides the next action: a pure function of the plan, the journal and the boot.

use proto::plan::{Plan, Step};

use crate::ground::failure::Failure;
use crate::plan::steps::StepSpec;
use crate::state::journal::{Entry, Journal, State};

/// The next action for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// The plan must not run on this host.
    Refuse(Failure),
    /// The plan is new: journal it, and begin with its first step.
    Begin,
    /// Run this step; a part or all of it may have happened already.
    Run { index: usize, step: &'a Step },
    /// The reboot that this step requested has happened.
    Rebooted { index: usize },
    /// The step was started and must not take effect twice, and nobody knows whether it took
    /// effect: give it up.
    Interrupted { index: usize },
    /// Every step is done, or one has failed.
    Finished,
}

/// The next action for `plan` in the boot `boot`.
pub fn next<'a>(plan: &'a Plan, journal: Option<&Journal>, boot: &str) -> Next<'a> {
    let Some(journal) = journal else {
        return Next::Begin;
    };
    let accepted = journal.generation();
    if plan.generation > accepted {
        return Next::Begin;
    }
    if plan.generation < accepted {
        let offered = plan.generation;
        return Next::Refuse(Failure::refused(
            format!("generation {offered} is older than generation {accepted}, which this host has accepted"),
            "none: the host waits for a newer plan",
        ));
    }
    if !journal.is_of(plan) {
        let other = journal.plan_id();
        return Next::Refuse(Failure::refused(
            format!("generation {accepted} is taken by plan {other} with another name or content"),
            "give the host a plan with a higher generation",
        ));
    }
    let mut steps = plan.steps.iter().zip(journal.steps()).enumerate();
    steps.find_map(|(index, (step, entry))| next_of_step(index, step, entry, boot)).unwrap_or(Next::Finished)
}

/// `None` if the step is done, so that the next step decides.
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
