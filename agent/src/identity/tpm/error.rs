//! Failures of a TPM, with their next actions.

use tpm2_protocol::TpmError as ProtocolError;
use tpm2_protocol::data::{TpmRc, TpmRcBase};

use crate::ground::failure::{Failure, describe_cause};

#[derive(Debug)]
pub enum TpmError {
    /// The TPM answered with an error.
    Refused {
        command: &'static str,
        code: TpmRc,
    },
    Failed(Failure),
}

impl From<Failure> for TpmError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<TpmError> for Failure {
    fn from(error: TpmError) -> Self {
        match error {
            TpmError::Refused { command, code } => {
                let message = format!("the TPM refused {command} ({code})");
                let action = if command == CREATE_PRIMARY { key_action(code.base()) } else { None };
                Self::input_output(message, action.unwrap_or_else(|| action_for(code.base())))
            }
            TpmError::Failed(failure) => failure,
        }
    }
}

/// The command that makes a key.
pub(super) const CREATE_PRIMARY: &str = "CreatePrimary";

const SWITCH_OFF: &str = "switch the host off and on again; if it persists, update the TPM's firmware, or switch the TPM off in the firmware setup and set emulate-tpm: true on the MachineRegistration";

pub(super) fn broken(message: String) -> Failure {
    Failure::input_output(message, SWITCH_OFF)
}

/// The command or its response violates the specification.
pub(super) fn misfit(command: &'static str) -> impl Fn(ProtocolError) -> Failure {
    move |error| broken(describe_cause(&format!("{command} and the TPM do not fit together"), &error))
}

pub(super) fn invalid_challenge() -> Failure {
    Failure::refused(
        "the coordinator's challenge is invalid: agent and coordinator are of different versions",
        "download a fresh seed ISO and boot it",
    )
}

/// The agent is about to end.
pub(super) fn interrupted() -> Failure {
    Failure::input_output("the command to the TPM was interrupted", "")
}

impl TpmError {
    /// True if the TPM may give another answer to the same command later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { code, .. } => is_busy(code.base()) || code.base() == TpmRcBase::Lockout,
            Self::Failed(_) => false,
        }
    }
}

pub(super) const fn is_busy(code: TpmRcBase) -> bool {
    matches!(code, TpmRcBase::Retry | TpmRcBase::Yielded | TpmRcBase::Testing)
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

/// A TPM without RSA refuses the type or a parameter of each key that the agent needs.
fn key_action(code: TpmRcBase) -> Option<&'static str> {
    let is_unknown = matches!(
        code,
        TpmRcBase::Asymmetric | TpmRcBase::Type | TpmRcBase::Value | TpmRcBase::KeySize | TpmRcBase::Scheme
    );
    is_unknown.then_some(
        "the TPM has no RSA keys of 2048 bits, which the identity needs: switch the TPM off in the firmware setup and set emulate-tpm: true on the MachineRegistration",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpm_without_rsa_leads_to_a_software_key() {
        let action = |command, code| {
            let code = TpmRc::try_from(code).unwrap();
            Failure::from(TpmError::Refused { command, code }).next_action
        };
        for code in [0x2c1, 0x2ca, 0x2c4, 0x2c7, 0x2d2] {
            assert!(action(CREATE_PRIMARY, code).contains("emulate-tpm: true"), "{code:#x}");
            assert!(action("Quote", code).contains("firmware, or clear"), "{code:#x}");
        }
        assert!(action(CREATE_PRIMARY, 0x9a2).contains("password"));
    }

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
            let failure = Failure::from(TpmError::Refused { command: "Quote", code });
            assert!(failure.next_action.contains(want), "{failure}");
        }
    }

    /// A busy TPM is not taken for one without a certificate.
    #[test]
    fn busy_and_locked_tpms_are_asked_again() {
        for (code, want) in [
            (0x922, true),
            (0x908, true),
            (0x90a, true),
            (0x921, true),
            (0x185, false),
            (0x98e, false),
            (0x101, false),
        ] {
            let code = TpmRc::try_from(code).unwrap();
            let error = TpmError::Refused { command: "NV_Read", code };
            assert_eq!(error.is_temporary(), want, "{error:?}");
        }
        assert!(!TpmError::from(broken("no device".to_owned())).is_temporary());
    }
}
