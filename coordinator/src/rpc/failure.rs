//! From what went wrong to what the host is told: one mapping.

use proto::refusal::{METADATA_KEY, NEXT, Refusal};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::ca::CaError;
use crate::store::registration::RegistrationError;
use crate::store::report::{PlanSecretError, ReportError};
use crate::telemetry::chain;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The host is turned away, for a reason that both sides know.
    #[error("{}: {detail}", refusal.code())]
    Refused {
        /// The reason.
        refusal: Refusal,
        /// What of the message it was; never a secret.
        detail: String,
    },
    /// Another stream of the same host took over.
    #[error("another stream of this host took over")]
    Replaced,
    /// This replica ends: the host attaches to the next.
    #[error("this coordinator is going away: attach again")]
    Leaving,
    /// The request came past our own acceptor.
    #[error("the request came over no connection of ours")]
    Connection,
    /// The system has none.
    #[error("cannot draw random numbers")]
    Randomness,
    /// See [`RegistrationError`].
    #[error("cannot store the registration")]
    Registration(#[source] RegistrationError),
    /// See [`ReportError`].
    #[error("cannot store the report")]
    Report(#[source] ReportError),
    /// See [`PlanSecretError`].
    #[error("cannot read the plan")]
    Plan(#[source] PlanSecretError),
    /// See [`CaError`].
    #[error("cannot sign a certificate")]
    Sign(#[source] CaError),
}

impl RpcError {
    /// A refusal.
    pub fn refused(refusal: Refusal, detail: impl Into<String>) -> Self {
        Self::Refused { refusal, detail: detail.into() }
    }
}

impl From<RegistrationError> for RpcError {
    fn from(error: RegistrationError) -> Self {
        let detail = error.to_string();
        match error {
            RegistrationError::NameTaken { .. } => Self::refused(Refusal::NameTaken, detail),
            RegistrationError::Rejected { .. } => Self::refused(Refusal::BadTemplate, detail),
            RegistrationError::Status(error) => error.into(),
            RegistrationError::CreateInventory { .. } | RegistrationError::CreateSecret { .. } => {
                Self::Registration(error)
            }
        }
    }
}

impl From<ReportError> for RpcError {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Gone { .. } => Self::refused(Refusal::InventoryGone, error.to_string()),
            ReportError::Read { .. }
            | ReportError::Write { .. }
            | ReportError::Contended { .. }
            | ReportError::Superseded { .. } => Self::Report(error),
        }
    }
}

impl From<CaError> for RpcError {
    fn from(error: CaError) -> Self {
        match error {
            CaError::Request => Self::refused(Refusal::BadRequest, error.to_string()),
            CaError::Sign { .. } | CaError::Clock | CaError::Stored { .. } | CaError::Api { .. } => {
                Self::Sign(error)
            }
        }
    }
}

const fn code(refusal: Refusal) -> Code {
    match refusal {
        Refusal::UnknownToken | Refusal::InventoryGone => Code::NotFound,
        Refusal::TpmRequired | Refusal::BadTemplate | Refusal::StalePlan => Code::FailedPrecondition,
        Refusal::BadProof => Code::Unauthenticated,
        Refusal::BadRequest => Code::InvalidArgument,
        Refusal::NameTaken => Code::AlreadyExists,
        Refusal::Quarantined | Refusal::RoleNotAllowed => Code::PermissionDenied,
    }
}

impl From<RpcError> for Status {
    fn from(error: RpcError) -> Self {
        match &error {
            RpcError::Refused { refusal, detail } => {
                // The code has its own place: the host would say it twice.
                let text = format!("{detail}{NEXT}{}", refusal.next_action());
                let mut status = Self::new(code(*refusal), text);
                let value = MetadataValue::from_static(refusal.code());
                status.metadata_mut().insert(METADATA_KEY, value);
                status
            }
            RpcError::Replaced => Self::aborted(error.to_string()),
            RpcError::Leaving => Self::unavailable(error.to_string()),
            RpcError::Connection | RpcError::Randomness => Self::internal(error.to_string()),
            // What lies behind is the coordinator's affair: the host comes again.
            RpcError::Registration(_) | RpcError::Report(_) | RpcError::Plan(_) | RpcError::Sign(_) => {
                tracing::warn!(error = chain(&error), "a call failed");
                Self::unavailable("the coordinator cannot reach its store: try again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_travels_with_its_code_and_the_next_action() {
        for refusal in Refusal::ALL {
            let status = Status::from(RpcError::refused(refusal, "detail"));
            let value = status.metadata().get(METADATA_KEY).unwrap().to_str().unwrap();
            assert_eq!(Refusal::from_code(value), Some(refusal));
            assert_eq!(status.message(), format!("detail; next: {}", refusal.next_action()));
        }
    }

    #[test]
    fn what_lies_behind_an_error_of_ours_is_not_told() {
        let source = kube::Error::LinesCodecMaxLineLengthExceeded;
        let error = ReportError::Read { name: "n".into(), source };
        let status = Status::from(RpcError::from(error));
        assert_eq!(status.code(), Code::Unavailable);
        assert!(!status.message().contains("newline"));
    }
}
