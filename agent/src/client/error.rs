//! The failure of a call: why the coordinator refused or missed it, and who answered.

use std::fmt;
use std::io::{self, ErrorKind};

use proto::refusal::{METADATA_KEY, NEXT_ACTION_KEY, Refusal};
use tonic::{Code, Status};

use crate::ground::failure::{Failure, describe_cause};
use crate::host::proxy::Proxy;

const RETRIED: &str = "none at first, the host retries; if it persists, read the coordinator's log";

/// Why a call on the coordinator did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    pub failure: Failure,
    pub answer: Answer,
}

/// Who answered an attempt to reach the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Nothing,
    /// Another server or a closed port at the coordinator's address answered, or the attempt failed
    /// on this host.
    Other,
    /// The coordinator refuses the call.
    Refusal(Refusal),
    /// The coordinator does not accept the certificate of this host.
    Unauthenticated,
    Coordinator,
}

impl CallError {
    /// There is no connection to the coordinator at `address`.
    pub fn away(address: &str, error: &io::Error) -> Self {
        Self::unanswered(
            &format!("the coordinator at {address} does not answer"),
            error,
            "start it, or correct the network or firewall between",
        )
    }

    /// There is no connection to the proxy, or no answer over it.
    pub(super) fn proxy_away(proxy: &Proxy, error: &io::Error) -> Self {
        let next_action =
            format!("start the proxy, correct the network or firewall between, or correct {}", proxy.source);
        Self::unanswered(&format!("the {proxy} does not answer"), error, &next_action)
    }

    /// There is a connection, and no TLS over it: where nothing answers, packets of full size are
    /// lost on the way.
    pub(super) fn handshake(address: &str, error: &io::Error) -> Self {
        Self::unanswered(
            &format!("no TLS connection to {address}"),
            error,
            "check which server listens there: a coordinator behind a proxy that terminates TLS cannot be reached",
        )
    }

    fn unanswered(message: &str, error: &io::Error, next_action: &str) -> Self {
        let answer = match error.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe => Answer::Other,
            _ => Answer::Nothing,
        };
        Self { failure: Failure::input_output(describe_cause(message, error), next_action), answer }
    }

    /// The coordinator answered, and not with the result of the call.
    pub fn answered(message: impl Into<String>, next_action: impl Into<String>) -> Self {
        Self { failure: Failure::refused(message, next_action), answer: Answer::Coordinator }
    }

    /// The refusal, when it is one.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self.answer {
            Answer::Refusal(refusal) => Some(refusal),
            Answer::Nothing | Answer::Other | Answer::Unauthenticated | Answer::Coordinator => None,
        }
    }

    pub fn context(self, message: impl fmt::Display) -> Self {
        Self { failure: self.failure.context(message), ..self }
    }
}

/// A single line, for console and log.
impl fmt::Display for CallError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(formatter)
    }
}

impl std::error::Error for CallError {}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        error.failure
    }
}

/// The attempt failed on this host.
impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self { failure, answer: Answer::Other }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let code = status.metadata().get(METADATA_KEY).and_then(|value| value.to_str().ok());
        let (message, default, answer) = match code.and_then(Refusal::from_code) {
            Some(refusal) => (
                format!("refused ({}): {}", refusal.code(), status.message()),
                refusal.next_action(),
                Answer::Refusal(refusal),
            ),
            None => (
                format!(
                    "the coordinator did not answer the call: {} ({:?})",
                    status.message(),
                    status.code()
                ),
                RETRIED,
                if status.code() == Code::Unauthenticated {
                    Answer::Unauthenticated
                } else {
                    Answer::Coordinator
                },
            ),
        };
        // The coordinator may be newer than this agent: its action wins.
        let next_action = carried_action(&status).unwrap_or_else(|| default.to_owned());
        Self { failure: Failure::refused(message, next_action), answer }
    }
}

/// The next action that a status carries in its metadata.
fn carried_action(status: &Status) -> Option<String> {
    let bytes = status.metadata().get_bin(NEXT_ACTION_KEY)?.to_bytes().ok()?;
    String::from_utf8(bytes.to_vec()).ok().filter(|action| !action.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_code(code: &str, message: &str) -> Status {
        let mut status = Status::permission_denied(message);
        status.metadata_mut().insert(METADATA_KEY, code.parse().unwrap());
        status
    }

    fn with_action(mut status: Status, action: &str) -> Status {
        let value = tonic::metadata::MetadataValue::from_bytes(action.as_bytes());
        status.metadata_mut().insert_bin(NEXT_ACTION_KEY, value);
        status
    }

    #[test]
    fn statuses_become_errors_with_a_next_action() {
        let ours = Refusal::InventoryGone.next_action();
        let gone = || with_code("InventoryGone", "it is gone");
        for (name, status, refusal, message, action) in [
            (
                "its action",
                with_action(gone(), "créer"),
                Some(Refusal::InventoryGone),
                "refused (InventoryGone): it is gone",
                "créer",
            ),
            ("no action", gone(), Some(Refusal::InventoryGone), "refused (InventoryGone): it is gone", ours),
            (
                "empty action",
                with_action(gone(), ""),
                Some(Refusal::InventoryGone),
                "refused (InventoryGone): it is gone",
                ours,
            ),
            (
                "unknown code",
                with_action(with_code("OfTomorrow", "odd"), "upgrade the agent"),
                None,
                "the coordinator did not answer the call: odd (PermissionDenied)",
                "upgrade the agent",
            ),
            (
                "broken call",
                Status::unavailable("reset"),
                None,
                "the coordinator did not answer the call: reset (Unavailable)",
                RETRIED,
            ),
        ] {
            let error = CallError::from(status);
            assert_eq!(error.refusal(), refusal, "{name}");
            let Failure { message: shown, next_action, .. } = error.failure;
            assert_eq!((shown.as_str(), next_action.as_str()), (message, action), "{name}");
        }
    }

    #[test]
    fn an_answer_is_told_from_silence() {
        let away = |kind: ErrorKind| CallError::away("c.example:8443", &kind.into());
        let shaken = |kind: ErrorKind| CallError::handshake("c.example:8443", &kind.into());
        for (name, error, want) in [
            ("no route", away(ErrorKind::NetworkUnreachable), Answer::Nothing),
            ("no answer", away(ErrorKind::TimedOut), Answer::Nothing),
            ("a closed port", away(ErrorKind::ConnectionRefused), Answer::Other),
            ("large packets are lost", shaken(ErrorKind::TimedOut), Answer::Nothing),
            ("a load balancer without a server", shaken(ErrorKind::UnexpectedEof), Answer::Other),
            ("this host", Failure::input_output("the executor has stopped", "").into(), Answer::Other),
            ("no certificate", Status::unauthenticated("who?").into(), Answer::Unauthenticated),
            ("restarting", Status::unavailable("reset").into(), Answer::Coordinator),
        ] {
            assert_eq!(error.answer, want, "{name}");
        }
    }
}
