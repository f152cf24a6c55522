//! The mapping of errors to the gRPC status that a host receives.

use proto::refusal::{METADATA_KEY, NEXT_ACTION_KEY, Refusal};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::ca::CaError;
use crate::store::{Class, StoreError};
use crate::telemetry::chain;

/// The answer to the host if the API server fails, because the text of the failure is for the log alone.
const STORE_UNREACHABLE: &str = "the coordinator cannot reach its store: retry";
/// The answer if a quota, a policy or a missing right refuses a request.
const STORE_REFUSES: &str =
    "the API server refuses a request of the coordinator, whose log has the reason: retry";

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The host is refused, for a reason that both sides share.
    #[error("{}: {detail}", refusal.code())]
    Refused {
        refusal: Refusal,
        /// The part of the message that is wrong; never a secret.
        detail: String,
        next_action: String,
    },
    #[error("another stream of this host replaced this one")]
    Replaced,
    #[error("the inventory lost the session of this host: attach again and state what it carries")]
    SessionLost,
    #[error("this coordinator is shutting down: attach again")]
    ShuttingDown,
    #[error("this coordinator does not reach the API server: attach again")]
    Isolated,
    /// The other replica may be dead, so that a second boot proves no second host.
    #[error("another boot has a session on replica {0}, of which nothing is known now: attach again")]
    ReplicaUnknown(String),
    #[error("MachineRegistration {0} is paused: the host asks again")]
    RegistrationPaused(String),
    #[error("the client certificate has expired: renew it and attach again")]
    CertificateExpired,
    #[error("too many reports: retry later")]
    RateLimited,
    /// The request did not come through our own acceptor.
    #[error("the request has no TLS session")]
    NoTlsSession,
    /// A coordinator of another version announced the agent.
    #[error("this coordinator serves another agent: attach again")]
    AgentReplaced,
    #[error("cannot generate random numbers")]
    Randomness,
    /// The plan Secret is not the announced one, so that the report cannot be judged now.
    #[error("the report cannot be judged: {0}")]
    PlanUnavailable(String),
    #[error(transparent)]
    Store(StoreError),
    #[error("cannot sign a certificate")]
    Sign(#[source] CaError),
}

impl RpcError {
    /// A refusal with the next action of its kind.
    pub fn from_refusal(refusal: Refusal, detail: impl Into<String>) -> Self {
        Self::refused_with(refusal, detail, refusal.next_action())
    }

    /// A refusal with a next action of its own.
    pub fn refused_with(refusal: Refusal, detail: impl Into<String>, next_action: impl Into<String>) -> Self {
        Self::Refused { refusal, detail: detail.into(), next_action: next_action.into() }
    }

    /// No inventory has the identity of the host.
    pub(super) fn is_inventory_gone(&self) -> bool {
        matches!(self, Self::Refused { refusal: Refusal::InventoryGone, .. })
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match &error {
            StoreError::Gone { .. } => Self::from_refusal(Refusal::InventoryGone, detail),
            StoreError::Taken { kind: "Secret", name, .. } => Self::refused_with(
                Refusal::NameTaken,
                detail,
                format!(
                    "delete the Secret {name}, or change spec.machineName of the MachineRegistration, and boot the seed ISO again"
                ),
            ),
            StoreError::Taken { .. } => Self::from_refusal(Refusal::NameTaken, detail),
            StoreError::Request { .. }
            | StoreError::Contended { .. }
            | StoreError::Changed { .. }
            | StoreError::Panicked { .. }
            | StoreError::Unusable { .. } => Self::Store(error),
        }
    }
}

impl From<CaError> for RpcError {
    fn from(error: CaError) -> Self {
        match error {
            CaError::Request => Self::from_refusal(Refusal::BadRequest, error.to_string()),
            CaError::Sign { .. } | CaError::Clock | CaError::Stored { .. } | CaError::Api { .. } => {
                Self::Sign(error)
            }
        }
    }
}

const fn status_code(refusal: Refusal) -> Code {
    match refusal {
        Refusal::UnknownToken | Refusal::InventoryGone => Code::NotFound,
        Refusal::TpmRequired
        | Refusal::TpmUntrusted
        | Refusal::TpmKeyRejected
        | Refusal::BadTemplate
        | Refusal::StalePlan
        | Refusal::ApprovalPending => Code::FailedPrecondition,
        Refusal::BadProof => Code::Unauthenticated,
        Refusal::BadRequest => Code::InvalidArgument,
        Refusal::NameTaken => Code::AlreadyExists,
        Refusal::Quarantined
        | Refusal::KeyReplaced
        | Refusal::Revoked
        | Refusal::TokenExpired
        | Refusal::RoleNotAllowed => Code::PermissionDenied,
        Refusal::QuotaExhausted => Code::ResourceExhausted,
    }
}

impl From<RpcError> for Status {
    fn from(error: RpcError) -> Self {
        match &error {
            RpcError::Refused { refusal, detail, next_action } => {
                let mut status = Self::new(status_code(*refusal), detail.as_str());
                let metadata = status.metadata_mut();
                metadata.insert(METADATA_KEY, MetadataValue::from_static(refusal.code()));
                metadata.insert_bin(NEXT_ACTION_KEY, MetadataValue::from_bytes(next_action.as_bytes()));
                status
            }
            RpcError::Replaced | RpcError::SessionLost => Self::aborted(error.to_string()),
            RpcError::ShuttingDown
            | RpcError::Isolated
            | RpcError::ReplicaUnknown(_)
            | RpcError::RegistrationPaused(_)
            | RpcError::PlanUnavailable(_)
            | RpcError::AgentReplaced => Self::unavailable(error.to_string()),
            RpcError::CertificateExpired => Self::unauthenticated(error.to_string()),
            RpcError::RateLimited => Self::resource_exhausted(error.to_string()),
            RpcError::NoTlsSession | RpcError::Randomness => Self::internal(error.to_string()),
            // The text does not name the cause, because only the coordinator is concerned.
            RpcError::Store(_) | RpcError::Sign(_) => {
                tracing::warn!(error = chain(&error), "call failed, the host retries");
                let is_refused = matches!(&error, RpcError::Store(store) if store.class() == Class::Terminal);
                Self::unavailable(if is_refused { STORE_REFUSES } else { STORE_UNREACHABLE })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_carries_code_and_next_action() {
        for &refusal in Refusal::ALL {
            let status = Status::from(RpcError::from_refusal(refusal, "detail"));
            let code = status.metadata().get(METADATA_KEY).unwrap().to_str().unwrap();
            assert_eq!(Refusal::from_code(code), Some(refusal));
            let action = status.metadata().get_bin(NEXT_ACTION_KEY).unwrap().to_bytes().unwrap();
            assert_eq!((status.message(), &*action), ("detail", refusal.next_action().as_bytes()));
        }
    }

    #[test]
    fn internal_causes_are_not_sent() {
        let quota = kube::core::Status::failure("exceeded quota: tenant-a", "Forbidden").with_code(403);
        for (source, told) in [
            (kube::Error::LinesCodecMaxLineLengthExceeded, STORE_UNREACHABLE),
            (kube::Error::Api(Box::new(quota)), STORE_REFUSES),
        ] {
            let error = StoreError::request("create", "MachineInventory", "n")(source);
            let status = Status::from(RpcError::from(error));
            assert_eq!((status.code(), status.message()), (Code::Unavailable, told));
        }
    }
}
