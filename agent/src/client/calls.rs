//! Calls on the coordinator, with their deadlines and limits.

use std::time::{Duration, SystemTime};

use proto::limits;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::registration_client::RegistrationClient;
use proto::v1alpha1::{InstallReport, ReportInstallResponse};
use tonic::Request;
use tonic::transport::Channel;

use crate::client::config::Config;
use crate::client::error::CallError;
use crate::client::rejection::Rejection;
use crate::client::tls::{self, CALL_DEADLINE, Credentials, Session};
use crate::client::transport::Transport;
use crate::identity::Identity;

/// A request with the deadline of unary calls.
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
    pub config: &'a Config,
    /// The way to the coordinator, and the network that a registration reports.
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
    /// Connects with the strongest certificate that is valid now. `rejection` shows at any time
    /// whether the coordinator rejected the certificate.
    pub async fn connect_host(&self, rejection: &Rejection) -> Result<HostClient<Channel>, CallError> {
        Ok(host_client(self.open_session(rejection).await?.channel))
    }

    /// The connection that [`Caller::connect_host`] uses.
    pub async fn open_session(&self, rejection: &Rejection) -> Result<Session, CallError> {
        let certificate = self.identity.certificate(SystemTime::now());
        let credentials = certificate.as_ref().map(|certificate| Credentials {
            identity: self.identity,
            chain: &certificate.chain,
            rejection,
        });
        tls::connect_tls(self.config, self.network, credentials).await
    }
}

/// Reports the progress of the install. The connection is kept between reports and opened again
/// after a failure.
#[derive(Debug)]
pub struct InstallReporter<'a, N> {
    caller: Caller<'a, N>,
    client: Option<HostClient<Channel>>,
}

impl<'a, N: Transport> InstallReporter<'a, N> {
    pub const fn new(caller: Caller<'a, N>) -> Self {
        Self { caller, client: None }
    }

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
