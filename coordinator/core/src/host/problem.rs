//! Problems that keep a host from its plan, and from its calls.

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::Approval;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use proto::refusal::Refusal;

use super::HostRecord;
use crate::problem::Problem;

impl HostRecord {
    pub fn find_problem(&self, now: Timestamp) -> Option<Problem> {
        if self.is_quarantined {
            let action = format!(
                "switch one off, reinstall it, then remove the annotation {}",
                annotation::QUARANTINED
            );
            let message = "two running systems hold the identity of this host";
            return Some(Problem::new(Reason::DuplicateIdentity, message, action));
        }
        if let Some(problem) = self.find_bar() {
            return Some(problem);
        }
        if self.unreachable_since(now).is_some() {
            return Some(unreachable_problem());
        }
        let plan = self.plan.as_ref().filter(|plan| plan.state.is_none())?;
        plan.problem.clone()
    }

    /// The problem that keeps the host from being admitted or used.
    fn find_bar(&self) -> Option<Problem> {
        match self.approval {
            Approval::Pending => Some(self.approval_pending()),
            Approval::Revoked => Some(self.approval_revoked()),
            Approval::Automatic | Approval::Approved => self.has_storage.then(|| {
                let message =
                    "spec.storage is not supported, and no machine gets a host whose disks would be left out";
                Problem::new(Reason::FieldUnsupported, message, "remove it")
            }),
        }
    }

    pub(super) fn approval_pending(&self) -> Problem {
        Problem::new(Reason::ApprovalPending, "the host waits for approval", self.approval_command())
    }

    pub(super) fn approval_revoked(&self) -> Problem {
        let action = format!("to admit it again: {}", self.approval_command());
        Problem::new(Reason::Revoked, "the host was shut out", action)
    }

    /// How an operator admits the host.
    pub fn approval_command(&self) -> String {
        let approved: &str = Approval::Approved.into();
        format!(
            "kubectl annotate --overwrite -n {} machineinventory {} {}={approved}",
            self.namespace,
            self.name,
            annotation::APPROVAL
        )
    }

    /// Why its calls are refused, whatever certificate it shows.
    pub fn refusal(&self) -> Option<Refusal> {
        match self.approval {
            _ if self.is_quarantined => Some(Refusal::Quarantined),
            Approval::Pending => Some(Refusal::ApprovalPending),
            Approval::Revoked => Some(Refusal::Revoked),
            Approval::Automatic | Approval::Approved => None,
        }
    }
}

/// The host has no session.
fn unreachable_problem() -> Problem {
    let message = "the host has no connection to the coordinator";
    Problem::new(Reason::HostUnreachable, message, "check its power, its network and its console")
}
