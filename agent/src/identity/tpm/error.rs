//! Why a TPM cannot be used, and what to do about it.

use std::io;
use std::path::PathBuf;

use tpm2_protocol::data::{TpmRc, TpmRcBase};

use crate::ground::error::NextAction;

/// Why a TPM cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TpmError {
    /// There is one, but it does not open.
    #[error("cannot open the TPM {path}", path = path.display())]
    Open {
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A command did not come back.
    #[error("the TPM does not answer {command}")]
    Exchange {
        command: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// A command or its response violates the specification.
    #[error("{command} and the TPM do not fit together")]
    Protocol { command: &'static str, source: tpm2_protocol::TpmError },
    /// The TPM answers with an error.
    #[error("the TPM refused {command} ({code})")]
    Refused { command: &'static str, code: TpmRc },
    /// The endorsement key that it made is none of the template.
    #[error("the TPM made an endorsement key that is not RSA with 2048 bits")]
    OddKey,
    /// The challenge of the coordinator is none.
    #[error("the coordinator's challenge is invalid: agent and coordinator are of different versions")]
    Challenge,
    /// The identity of this host is in a TPM that is not there.
    #[error("this host registered with a TPM 2.0, and there is none now")]
    Gone,
    /// The identity of this host is in another TPM.
    #[error("this host registered with another TPM than it has now")]
    Replaced,
    /// The agent is about to end.
    #[error("the command to the TPM was interrupted")]
    Interrupted,
}

impl TpmError {
    /// Whether the TPM may give another answer to the same command later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { code, .. } => is_busy(code.base()) || code.base() == TpmRcBase::Lockout,
            _ => false,
        }
    }
}

pub(super) const fn is_busy(code: TpmRcBase) -> bool {
    matches!(code, TpmRcBase::Retry | TpmRcBase::Yielded | TpmRcBase::Testing)
}

impl NextAction for TpmError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Open { .. } | Self::Exchange { .. } | Self::Protocol { .. } | Self::OddKey => Some(
                "switch the host off and on again; if it persists, update the TPM's firmware, or switch the TPM off in the firmware setup and set emulate-tpm: true on the MachineRegistration",
            ),
            Self::Refused { code, .. } => Some(action_for(code.base())),
            Self::Challenge => Some("download a fresh seed ISO and boot it"),
            Self::Gone => Some(
                "switch the TPM on in the host's firmware setup; if it was removed for good, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
            ),
            Self::Replaced => Some(
                "put the former TPM back; if it was replaced for good, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
            ),
            Self::Interrupted => None,
        }
    }
}

fn action_for(code: TpmRcBase) -> &'static str {
    match code {
        TpmRcBase::Lockout => {
            "wait until the TPM's lockout has ended, or end it with `tpm2_dictionarylockout --clear-lockout`; the agent itself never adds to it"
        }
        TpmRcBase::AuthFail | TpmRcBase::BadAuth => {
            "the endorsement hierarchy of the TPM has a password: remove it, or clear the TPM in the host's firmware setup"
        }
        TpmRcBase::Hierarchy | TpmRcBase::Disabled => {
            "switch the endorsement hierarchy of the TPM on in the host's firmware setup"
        }
        TpmRcBase::ObjectMemory | TpmRcBase::SessionMemory | TpmRcBase::ObjectHandles => {
            "another program holds the TPM's memory: stop it, or reboot the host"
        }
        TpmRcBase::Retry | TpmRcBase::Yielded | TpmRcBase::Testing => {
            "none: the TPM is busy and the host retries; if it persists, switch the host off and on again"
        }
        _ => "update the TPM's firmware, or clear the TPM in the host's firmware setup",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_to_their_action() {
        for (code, want) in [
            (0x921, "lockout"),
            (0x9a2, "password"),
            (0x98e, "password"),
            (0x185, "hierarchy of the TPM on"),
            (0x902, "another program"),
            (0x922, "busy"),
            (0x101, "firmware"),
        ] {
            let code = TpmRc::try_from(code).unwrap();
            let error = TpmError::Refused { command: "Quote", code };
            assert!(error.next_action().unwrap().contains(want), "{error}");
        }
    }
}
