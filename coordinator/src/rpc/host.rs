//! The calls of a registered host: a stream for plans, and reports.

mod agent_update;
mod attach;
mod progress;
mod reports;
mod settings;
mod statement;
mod stream;

use coordinator_core::host::HostRecord;
use futures::stream::BoxStream;
use kube::ResourceExt as _;
use proto::v1alpha1 as wire;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument as _, Span};

use super::attestation::verify_boot_proof;
use super::identity::{Call, authenticate_peer, check_boot_id, tls_session};
use super::{Context, RpcError};
use crate::ca::{Peer, RequestedKey, Role, Subject};
use crate::tls::Session;

pub(super) use agent_update::ServedAgent;
pub use attach::end_lost_sessions;
pub(super) use reports::parse_network;

pub struct HostService {
    context: Context,
}

fn call_span(call: Call, peer: &Peer) -> Span {
    let (namespace, name) = (peer.key.namespace.as_str(), &peer.name_hint);
    tracing::info_span!("host_call", ?call, namespace, name, trace_id = tracing::field::Empty)
}

impl HostService {
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    /// Runs a unary call if the role of the host allows the call.
    async fn run_call<T, R>(
        &self,
        call: Call,
        request: Request<T>,
        handle: impl AsyncFnOnce(&Context, &Peer, T) -> Result<R, RpcError>,
    ) -> Result<Response<R>, Status> {
        let context = &self.context;
        let peer = context.to_status(authenticate_peer(&request, call, context.now()))?;
        let span = call_span(call, &peer);
        let result = match context.take_token(&peer.key, call) {
            Ok(()) => handle(context, &peer, request.into_inner()).instrument(span.clone()).await,
            Err(limited) => Err(limited),
        };
        span.in_scope(|| context.to_status(result)).map(Response::new)
    }
}

/// The agent of the host proves its boot at each renewal.
fn proves_renewals(record: &HostRecord) -> bool {
    record.live_tpm.as_ref().is_some_and(|live| live.proves_renewals)
}

async fn renew_certificate(
    context: &Context,
    session: &Session,
    peer: &Peer,
    request: wire::RenewCertificateRequest,
) -> Result<wire::RenewCertificateResponse, RpcError> {
    let key = RequestedKey::parse(&request.certificate_request)?;
    check_boot_id(&request.boot_id)?;
    let inventory = context.find_inventory(peer).await?;
    let record = HostRecord::parse(&inventory);
    let (role, needs_proof) = match (peer.role, &record) {
        (Role::Installed, record) => (Role::Installed, record.as_ref().is_some_and(proves_renewals)),
        (Role::Live, Some(record)) if record.is_installed_boot(&request.boot_id) => (Role::Installed, true),
        (Role::Live, _) => (Role::Live, false),
    };
    if let Some(record) = record.as_ref().filter(|_| needs_proof) {
        let verified = verify_boot_proof(record, session, peer, &request);
        verified.inspect_err(|error| context.show_host_refusal(&inventory, error))?;
    }
    let now = context.now();
    // Where the host replaces its key, the former one is refused once this one was used.
    let key_time = match &record {
        Some(record) => record.requested_time(peer.shown_key(), &key.hash(), now),
        None => peer.key_time,
    };
    let name = inventory.name_any();
    let subject = Subject { key: &peer.key, name: &name, role, key_time };
    let certificate_chain = context.authority.sign_host(&key, &subject, now)?;
    tracing::info!(role = role.as_str(), "certificate renewed");
    Ok(wire::RenewCertificateResponse { certificate_chain })
}

#[tonic::async_trait]
impl wire::host_server::Host for HostService {
    type AttachStream = BoxStream<'static, Result<wire::CoordinatorMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<wire::HostMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let context = &self.context;
        let peer = context.to_status(authenticate_peer(&request, Call::Attach, context.now()))?;
        let span = call_span(Call::Attach, &peer);
        span.in_scope(|| context.to_status(context.take_token(&peer.key, Call::Attach)))?;
        Ok(Response::new(stream::open_stream(context.clone(), peer, request.into_inner())))
    }

    async fn report_step(
        &self,
        request: Request<wire::StepReport>,
    ) -> Result<Response<wire::ReportStepResponse>, Status> {
        self.run_call(Call::ReportStep, request, async |context, peer, report| {
            reports::record_step_report(context, peer, &report).await?;
            Ok(wire::ReportStepResponse {})
        })
        .await
    }

    async fn report_install(
        &self,
        request: Request<wire::InstallReport>,
    ) -> Result<Response<wire::ReportInstallResponse>, Status> {
        self.run_call(Call::ReportInstall, request, async |context, peer, report| {
            let install_device = reports::record_install_report(context, peer, &report).await?;
            Ok(wire::ReportInstallResponse { install_device })
        })
        .await
    }

    async fn report_observed(
        &self,
        request: Request<wire::ObservedReport>,
    ) -> Result<Response<wire::ReportObservedResponse>, Status> {
        self.run_call(Call::ReportObserved, request, async |context, peer, report| {
            reports::record_observed_report(context, peer, report).await?;
            Ok(wire::ReportObservedResponse {})
        })
        .await
    }

    async fn renew_certificate(
        &self,
        request: Request<wire::RenewCertificateRequest>,
    ) -> Result<Response<wire::RenewCertificateResponse>, Status> {
        let session = self.context.to_status(tls_session(&request))?;
        let renew = async |context: &Context, peer: &Peer, request| {
            renew_certificate(context, &session, peer, request).await
        };
        self.run_call(Call::RenewCertificate, request, renew).await
    }

    async fn read_agent(
        &self,
        request: Request<wire::ReadAgentRequest>,
    ) -> Result<Response<wire::ReadAgentResponse>, Status> {
        self.run_call(Call::ReadAgent, request, agent_update::read_part).await
    }
}
