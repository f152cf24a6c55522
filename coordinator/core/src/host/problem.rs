//! What keeps a host from its plan, and from its calls.

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::Approval;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use proto::refusal::Refusal;

use super::HostRecord;

/// A cause, as conditions show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    /// Cause and next action.
    pub message: String,
}

impl HostRecord {
    /// What keeps the host from its plan.
    pub fn find_problem(&self, now: Timestamp) -> Option<Problem> {
        if self.is_quarantined {
            let message = format!(
                "two running systems hold the identity of this host: switch one off, reinstall it, then remove the annotation {}",
                annotation::QUARANTINED
            );
            return Some(Problem { reason: Reason::DuplicateIdentity, message });
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

    /// What keeps the host from being admitted or used.
    fn find_bar(&self) -> Option<Problem> {
        let problem = |reason, message| Some(Problem { reason, message });
        match self.approval {
            Approval::Pending => {
                let message = format!("the host waits for approval: {}", self.approval_command());
                return problem(Reason::ApprovalPending, message);
            }
            Approval::Revoked => {
                let command = self.approval_command();
                let message = format!("the host was shut out; to admit it again: {command}");
                return problem(Reason::Revoked, message);
            }
            Approval::Automatic | Approval::Approved => {}
        }
        self.has_storage.then(|| Problem {
            reason: Reason::FieldUnsupported,
            message: "spec.storage is not supported, and no machine gets a host whose disks would be left out: remove it".to_owned(),
        })
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
    let message =
        "the host has no connection to the coordinator: check its power, its network and its console";
    Problem { reason: Reason::HostUnreachable, message: message.to_owned() }
}
