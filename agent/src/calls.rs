//! Calls on the coordinator: one kept connection, deadlines, and refusals as
//! the values that both sides know.

use std::time::{Duration, SystemTime};

use proto::limits;
use proto::refusal::{METADATA_KEY, NEXT, Refusal};
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::registration_client::RegistrationClient;
use proto::v1alpha1::{InstallReport, ReportInstallResponse};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::config::Config;
use crate::identity::Identity;
use crate::names::Names;
use crate::tls::{self, CALL_DEADLINE, ConnectError};

/// Why a call was not answered with what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The coordinator says no, and why.
    #[error("refused ({code}): {message}; next: {next}", code = .refusal.code())]
    Refused {
        /// Which no.
        refusal: Refusal,
        /// The coordinator's words.
        message: String,
        /// What a person does.
        next: String,
    },
    /// The call failed: the connection broke, or the coordinator is in trouble.
    #[error("the coordinator did not answer the call: {message}; next: {next}")]
    Failed {
        /// gRPC's words.
        message: String,
        /// What a person does.
        next: String,
    },
}

impl CallError {
    /// The refusal, when it is one.
    #[must_use]
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
        let (message, told) = status
            .message()
            .split_once(NEXT)
            .map_or((status.message(), None), |(what, todo)| (what, Some(todo)));
        // The coordinator may be newer than we are and know better.
        let or = |ours: &str| told.unwrap_or(ours).to_owned();
        match code.and_then(Refusal::from_code) {
            Some(refusal) => {
                Self::Refused { refusal, message: message.to_owned(), next: or(refusal.next_action()) }
            }
            None => {
                Self::Failed { message: format!("{message} ({:?})", status.code()), next: or(WHEN_IT_STAYS) }
            }
        }
    }
}

/// A call that fails once is tried again by the host itself.
const WHEN_IT_STAYS: &str =
    "none at first, the host tries again by itself; if it stays, read the coordinator's log";

/// A request with the deadline of a call that answers once.
pub fn asked<T>(message: T) -> Request<T> {
    with_deadline(message, CALL_DEADLINE)
}

fn with_deadline<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// The registration service with its limits.
#[must_use]
pub fn registration(channel: Channel) -> RegistrationClient<Channel> {
    RegistrationClient::new(channel)
        .max_decoding_message_size(limits::REGISTRATION_BYTES)
        .max_encoding_message_size(limits::REGISTRATION_BYTES)
}

/// The host service with its limits.
#[must_use]
pub fn host(channel: Channel) -> HostClient<Channel> {
    HostClient::new(channel)
        .max_decoding_message_size(limits::PLAN_BYTES)
        .max_encoding_message_size(limits::REPORT_BYTES)
}

/// Who we are and where the coordinator is.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Where the coordinator is.
    pub config: &'a Config,
    /// How its name becomes an address.
    pub names: &'a Names,
    /// Who calls.
    pub identity: &'a Identity,
}

impl Caller<'_> {
    /// Connects with the strongest certificate that holds now.
    ///
    /// # Errors
    /// [`CallError::Connect`].
    pub async fn connect(&self) -> Result<HostClient<Channel>, CallError> {
        let certificate = self.identity.certificate(SystemTime::now());
        let credentials = certificate.as_ref().map(|certificate| (self.identity, certificate.chain.as_str()));
        let session = tls::connect(self.config, self.names, credentials).await?;
        Ok(host(session.channel))
    }
}

/// The live system's calls: rare, so the connection is made anew after each
/// failure and kept in between.
#[derive(Debug)]
pub struct Line<'a> {
    caller: Caller<'a>,
    client: Option<HostClient<Channel>>,
}

impl<'a> Line<'a> {
    /// Connects at the first call.
    #[must_use]
    pub const fn new(caller: Caller<'a>) -> Self {
        Self { caller, client: None }
    }

    /// Tells how the install stands.
    ///
    /// # Errors
    /// [`CallError`]; the caller tries again.
    pub async fn report_install(&mut self, outcome: Outcome) -> Result<ReportInstallResponse, CallError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.caller.connect().await?,
        };
        let report = InstallReport { outcome: Some(outcome) };
        let response = client.report_install(asked(report)).await?.into_inner();
        self.client = Some(client);
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn a_refusal_is_known_by_its_code_and_tells_the_next_action() {
        let mut status = Status::new(Code::PermissionDenied, "inventory default/a has another key");
        status.metadata_mut().insert(METADATA_KEY, "NameTaken".parse().unwrap());
        let error = CallError::from(status);
        assert_eq!(error.refusal(), Some(Refusal::NameTaken));
        let text = error.to_string();
        assert!(text.contains("default/a") && text.contains("delete its MachineInventory"), "{text}");
        let broken = CallError::from(Status::unavailable("connection reset"));
        assert_eq!(broken.refusal(), None);
    }

    #[test]
    fn what_a_status_says_is_told_once_and_always_with_a_next_action() {
        let known = |text: &str| {
            let mut status = Status::not_found(text);
            status.metadata_mut().insert(METADATA_KEY, "InventoryGone".parse().unwrap());
            status
        };
        let newer = {
            let mut status = known("odd; next: ask its maker");
            status.metadata_mut().insert(METADATA_KEY, "OfTomorrow".parse().unwrap());
            status
        };
        let ours = Refusal::InventoryGone.next_action();
        for (name, status, want) in [
            (
                "its action",
                known("it is gone; next: mourn"),
                "refused (InventoryGone): it is gone; next: mourn".to_owned(),
            ),
            ("our action", known("it is gone"), format!("refused (InventoryGone): it is gone; next: {ours}")),
            (
                "a refusal of a newer coordinator",
                newer,
                "the coordinator did not answer the call: odd (NotFound); next: ask its maker".to_owned(),
            ),
            (
                "a broken call",
                Status::unavailable("reset"),
                format!(
                    "the coordinator did not answer the call: reset (Unavailable); next: {WHEN_IT_STAYS}"
                ),
            ),
        ] {
            assert_eq!(crate::console::chain(&CallError::from(status)), want, "{name}");
        }
    }
}
