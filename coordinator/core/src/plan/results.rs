//! The results of a plan, from the reports of its host.

use coordinator_api::conditions::Reason;
use proto::plan::Plan;
use proto::v1alpha1::{Failure, FailureReason, StepReport, step_report::Outcome};

use crate::problem::Problem;

/// How a plan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEnd {
    Applied,
    Failed(Problem),
}

/// The meaning of a report for its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A step is done, the plan is not.
    InFlight,
    Ended(PlanEnd),
    /// The report is not about this plan.
    Stale,
}

/// Compares a report with the plan that it names.
pub fn read_progress(plan: &Plan, report: &StepReport) -> Progress {
    let known = usize::try_from(report.step).ok().and_then(|index| Some((index, plan.steps.get(index)?)));
    let Some((index, step)) = known else {
        return Progress::Stale;
    };
    if report.plan_id != plan.id.as_str() || report.generation != plan.generation.0 {
        return Progress::Stale;
    }
    match &report.outcome {
        Some(Outcome::Done(_)) if index + 1 == plan.steps.len() => Progress::Ended(PlanEnd::Applied),
        Some(Outcome::Done(_)) => Progress::InFlight,
        Some(Outcome::Failed(failed)) => {
            let failure = failed.failure.clone().unwrap_or_default();
            Progress::Ended(PlanEnd::Failed(explain_failure(step.name(), &failure)))
        }
        None => Progress::Stale,
    }
}

/// The reasons with which a host can end a plan.
pub fn failure_reasons() -> impl Iterator<Item = Reason> {
    (0..).map_while(|number| FailureReason::try_from(number).ok()).map(reason_of)
}

const fn reason_of(failure: FailureReason) -> Reason {
    match failure {
        FailureReason::Unspecified => Reason::PlanFailed,
        FailureReason::Command => Reason::CommandFailed,
        FailureReason::Timeout => Reason::StepTimedOut,
        FailureReason::NoSpace => Reason::NoSpace,
        FailureReason::BootFallback => Reason::BootFallback,
        FailureReason::CleanupMissing => Reason::CleanupMissing,
        FailureReason::CloudInit => Reason::CloudInitFailed,
        FailureReason::Refused => Reason::PlanRefused,
        FailureReason::NetworkReverted => Reason::NetworkReverted,
        FailureReason::PathsNotKept => Reason::PathsNotKept,
        FailureReason::InputOutput => Reason::InputOutputFailed,
    }
}

fn explain_failure(step: &str, failure: &Failure) -> Problem {
    let message = format!("step {step}: {}", failure.message);
    Problem::new(reason_of(failure.reason()), message, &*failure.next_action)
}
