//! Everything after registration: one stream for plans, and reports.

mod attach;
mod report;

use coordinator_core::host;
use futures::stream::BoxStream;
use jiff::Timestamp;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use tonic::{Request, Response, Status, Streaming};

use super::identity::{self, Call};
use super::{Context, RpcError};
use crate::ca::{RequestedKey, Role, Subject};

pub use attach::{GRACE, sweep};

/// The service.
pub struct HostService {
    context: Context,
}

impl HostService {
    /// Serves with that context.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self { context }
    }

    async fn renew(
        &self,
        request: Request<wire::RenewCertificateRequest>,
    ) -> Result<wire::RenewCertificateResponse, RpcError> {
        let peer = identity::peer(&request, Call::RenewCertificate)?;
        let key = RequestedKey::parse(&request.get_ref().certificate_request)?;
        if key.hash() != peer.public_key_hash {
            let detail = "the request is for another key than the certificate shown";
            return Err(RpcError::refused(Refusal::BadRequest, detail));
        }
        let inventory = self.context.inventory(&peer).await?;
        let role = match peer.role {
            Role::Live if !host::is_installed(&inventory) => Role::Live,
            Role::Live | Role::Installed => Role::Installed,
        };
        let subject = Subject { namespace: &peer.namespace, name: &peer.name, uid: &peer.uid, role };
        let certificate_chain = self.context.authority.host(&key, &subject, Timestamp::now())?;
        tracing::info!(inventory = peer.name, role = role.as_str(), "signed a certificate");
        Ok(wire::RenewCertificateResponse { certificate_chain })
    }
}

#[tonic::async_trait]
impl wire::host_server::Host for HostService {
    type AttachStream = BoxStream<'static, Result<wire::CoordinatorMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<wire::HostMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = self.context.answer(identity::peer(&request, Call::Attach))?;
        Ok(Response::new(attach::stream(self.context.clone(), peer, request.into_inner())))
    }

    async fn report_step(
        &self,
        request: Request<wire::StepReport>,
    ) -> Result<Response<wire::ReportStepResponse>, Status> {
        let reported = async {
            let peer = identity::peer(&request, Call::ReportStep)?;
            report::step(&self.context, &peer, request.get_ref()).await
        };
        self.context.answer(reported.await)?;
        Ok(Response::new(wire::ReportStepResponse {}))
    }

    async fn report_install(
        &self,
        request: Request<wire::InstallReport>,
    ) -> Result<Response<wire::ReportInstallResponse>, Status> {
        let reported = async {
            let peer = identity::peer(&request, Call::ReportInstall)?;
            report::install(&self.context, &peer, request.get_ref()).await
        };
        let install_device = self.context.answer(reported.await)?;
        Ok(Response::new(wire::ReportInstallResponse { install_device }))
    }

    async fn report_observed(
        &self,
        request: Request<wire::ObservedReport>,
    ) -> Result<Response<wire::ReportObservedResponse>, Status> {
        let reported = async {
            let peer = identity::peer(&request, Call::ReportObserved)?;
            report::observed(&self.context, &peer, request.into_inner()).await
        };
        self.context.answer(reported.await)?;
        Ok(Response::new(wire::ReportObservedResponse {}))
    }

    async fn renew_certificate(
        &self,
        request: Request<wire::RenewCertificateRequest>,
    ) -> Result<Response<wire::RenewCertificateResponse>, Status> {
        let renewed = self.renew(request).await;
        self.context.answer(renewed).map(Response::new)
    }
}
