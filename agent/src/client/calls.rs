//! Calls on the coordinator: one kept connection, deadlines, and refusals as
//! the values that both sides share.

use std::time::{Duration, SystemTime};

use proto::limits;
use proto::refusal::{METADATA_KEY, NEXT_ACTION_KEY, Refusal};
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::registration_client::RegistrationClient;
use proto::v1alpha1::{InstallReport, ReportInstallResponse};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::client::config::Config;
use crate::client::error::ConnectError;
use crate::client::rejection::Rejection;
use crate::client::tls::{self, CALL_DEADLINE, Credentials, Session};
use crate::client::transport::Transport;
use crate::ground::error::NextAction;
use crate::identity::Identity;

/// Why a call was not answered with what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The coordinator rejected the call.
    #[error("refused ({code}): {message}", code = .refusal.code())]
    Refused {
        refusal: Refusal,
        message: String,
        /// What the operator does about it.
        next_action: String,
    },
    /// The call failed: the connection broke, or the coordinator failed.
    #[error("the coordinator did not answer the call: {message}")]
    Failed {
        /// The code of the gRPC status.
        code: Code,
        /// The message of the gRPC status.
        message: String,
        /// What the operator does about it.
        next_action: String,
    },
}

impl NextAction for CallError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Connect(error) => error.next_action(),
            Self::Refused { next_action, .. } | Self::Failed { next_action, .. } => Some(next_action),
        }
    }
}

impl CallError {
    /// The refusal, when it is one.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(*refusal),
            Self::Connect(_) | Self::Failed { .. } => None,
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let code = status.metadata().get(METADATA_KEY).and_then(|value| value.to_str().ok());
        // The coordinator may be newer than this agent: its action wins.
        let next_action = |default: &str| carried_action(&status).unwrap_or_else(|| default.to_owned());
        match code.and_then(Refusal::from_code) {
            Some(refusal) => Self::Refused {
                refusal,
                message: status.message().to_owned(),
                next_action: next_action(refusal.next_action()),
            },
            None => Self::Failed {
                code: status.code(),
                message: format!("{} ({:?})", status.message(), status.code()),
                next_action: next_action(RETRIED),
            },
        }
    }
}

/// The next action that a status carries in its metadata.
fn carried_action(status: &Status) -> Option<String> {
    let bytes = status.metadata().get_bin(NEXT_ACTION_KEY)?.to_bytes().ok()?;
    String::from_utf8(bytes.to_vec()).ok().filter(|action| !action.is_empty())
}

const RETRIED: &str = "none at first, the host retries; if it persists, read the coordinator's log";

/// A request with the deadline of a call that answers once.
pub fn unary_request<T>(message: T) -> Request<T> {
    with_deadline(message, CALL_DEADLINE)
}

fn with_deadline<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// The registration service with its limits.
pub fn registration_client(channel: Channel) -> RegistrationClient<Channel> {
    RegistrationClient::new(channel)
        .max_decoding_message_size(limits::REGISTRATION_BYTES)
        .max_encoding_message_size(limits::REGISTRATION_BYTES)
}

/// The host service with its limits.
pub fn host_client(channel: Channel) -> HostClient<Channel> {
    HostClient::new(channel)
        .max_decoding_message_size(limits::PLAN_BYTES)
        .max_encoding_message_size(limits::REPORT_BYTES)
}

/// A host that calls its coordinator.
#[derive(Debug)]
pub struct Caller<'a, N> {
    /// Where the coordinator is.
    pub config: &'a Config,
    /// How the coordinator is reached, and the network that a registration reports.
    pub network: &'a N,
    /// The key and the certificates of the host.
    pub identity: &'a Identity,
}

impl<N> Clone for Caller<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for Caller<'_, N> {}

impl<N: Transport> Caller<'_, N> {
    /// Connects with the strongest certificate that is valid now; `rejection` tells, at
    /// any time, whether the coordinator rejected it.
    pub async fn connect_host(&self, rejection: &Rejection) -> Result<HostClient<Channel>, CallError> {
        Ok(host_client(self.open_session(rejection).await?.channel))
    }

    /// The connection of [`Caller::connect_host`].
    pub async fn open_session(&self, rejection: &Rejection) -> Result<Session, CallError> {
        let certificate = self.identity.certificate(SystemTime::now());
        let credentials = certificate.as_ref().map(|certificate| Credentials {
            identity: self.identity,
            chain: &certificate.chain,
            rejection,
        });
        Ok(tls::connect_tls(self.config, self.network, credentials).await?)
    }
}

/// Reports of the install: rare, so a connection is opened after each failure
/// and kept in between.
#[derive(Debug)]
pub struct InstallReporter<'a, N> {
    caller: Caller<'a, N>,
    client: Option<HostClient<Channel>>,
}

impl<'a, N: Transport> InstallReporter<'a, N> {
    /// Connects at the first report.
    pub const fn new(caller: Caller<'a, N>) -> Self {
        Self { caller, client: None }
    }

    /// Reports the state of the install.
    pub async fn report_outcome(&mut self, outcome: Outcome) -> Result<ReportInstallResponse, CallError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.caller.connect_host(&Rejection::default()).await?,
        };
        let report = InstallReport { outcome: Some(outcome) };
        let response = client.report_install(unary_request(report)).await?.into_inner();
        self.client = Some(client);
        Ok(response)
    }
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
            assert_eq!((error.to_string().as_str(), error.next_action()), (message, Some(action)), "{name}");
        }
    }
}
