//! Plans that are not accepted, and what cannot be done for now.

use proto::v1alpha1::{Failure, FailureReason};

use crate::ground::error::{NextAction, describe_error};
use crate::host::system::SystemError;
use crate::plan::engine::Outdated;
use crate::state::journal::JournalError;

/// Why a plan is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RefusedPlan {
    /// It is not newer than the newest.
    #[error(transparent)]
    Outdated(#[from] Outdated),
    /// It holds files or commands that the coordinator did not write.
    #[error("this host does not run custom instructions")]
    Custom,
    /// Without its journal a new plan cannot be distinguished from an old one.
    #[error("{0}: this host runs no plan, so that none runs twice")]
    JournalLost(String),
    /// The plan cannot be journaled, so it must not begin: offer it again.
    #[error("the plan is not begun")]
    NotJournaled(#[source] JournalError),
    /// The boot id is unreadable.
    #[error("cannot read the boot id")]
    BootId(#[source] SystemError),
}

impl RefusedPlan {
    /// As it is reported.
    pub fn failure(&self) -> Failure {
        let reason = match self {
            Self::Outdated(_) | Self::Custom => FailureReason::Refused,
            Self::JournalLost(_) | Self::NotJournaled(_) | Self::BootId(_) => FailureReason::InputOutput,
        };
        Failure {
            reason: reason.into(),
            message: describe_error(self),
            next_action: self.next_action().unwrap_or_default().to_owned(),
        }
    }
}

impl NextAction for RefusedPlan {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Outdated(error) => error.next_action(),
            Self::Custom => Some("start its agent with --allow-custom-instructions, or write another plan"),
            Self::JournalLost(_) => {
                Some("check its disk, then remove /var/lib/baremetal-agent/journal or install the host again")
            }
            Self::NotJournaled(error) => error.next_action(),
            Self::BootId(_) => Some("reboot the host"),
        }
    }
}

/// Why nothing could be done for now; the next call tries again.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The start or the outcome of a step could not be journaled. The step is
    /// not run, or looked at again.
    #[error("cannot journal step {step}")]
    Journal {
        /// Counted from zero.
        step: usize,
        #[source]
        source: JournalError,
    },
    /// The boot id is unreadable.
    #[error("cannot read the boot id")]
    BootId(#[source] SystemError),
}
