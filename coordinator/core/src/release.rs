//! How far a claimed host is on its way back to its pool. Machines in deletion, machines that are
//! gone, and claims that were given up read the same answer, so that none of them frees a host which
//! another one would clean.

use coordinator_api::inventory::{PlanState, PlanType};

use crate::host::{AnnouncedPlan, HostRecord};

/// The state of the release of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Release<'a> {
    /// The host states the node of another owner. The claim goes, and the host is not touched.
    Foreign,
    /// The clean of the claim is applied.
    Cleaned(&'a AnnouncedPlan),
    /// The clean of the claim is announced and has not ended.
    Cleaning(&'a AnnouncedPlan),
    /// The clean of the claim has failed.
    CleanFailed(&'a AnnouncedPlan),
    /// The host is attached and states that it carries nothing. The claim goes.
    Unused,
    /// The host has to state what it carries before anything is decided.
    Unstated,
    /// A clean is due.
    CleanDue,
}

impl<'a> Release<'a> {
    /// `is_used`: the owner knows more of the claim's use than the host states, so that a host which
    /// carries nothing is cleaned nevertheless.
    pub(crate) fn of(host: &'a HostRecord, is_used: bool) -> Self {
        if host.foreign_owner().is_some() {
            return Self::Foreign;
        }
        // A host that states the clean that failed carries something.
        if !is_used && host.carries_nothing() {
            return Self::Unused;
        }
        if let Some(clean) = host.claimed_plan().filter(|plan| plan.kind == PlanType::Clean) {
            return match clean.state {
                Some(PlanState::Applied) => Self::Cleaned(clean),
                Some(PlanState::Failed) => Self::CleanFailed(clean),
                None => Self::Cleaning(clean),
            };
        }
        // After a restore the host may carry the node of a machine that got it after this one.
        if host.carried.is_none() || (!is_used && !host.is_known()) {
            return Self::Unstated;
        }
        Self::CleanDue
    }

    /// True if the claim may go without another step.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Foreign | Self::Cleaned(_) | Self::Unused)
    }
}
