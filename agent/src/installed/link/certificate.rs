//! Chooses, exchanges and renews the certificate of the installed system.

use std::time::SystemTime;

use proto::proof::{self, Exporter};
use proto::refusal::Refusal;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{BootProof, PlanKind, PlanOutcome, RenewCertificateRequest};
use tonic::transport::Channel;

use super::stream::Attached;
use super::{Link, ReconnectReason};
use crate::client::calls::{InstallReporter, host_client, unary_request};
use crate::client::error::CallError;
use crate::client::registration::register_once;
use crate::client::transport::Transport;
use crate::ground::failure::Context as _;
use crate::host::network::NetworkObserver;
use crate::host::observed;
use crate::host::system::System;
use crate::identity::tpm::{self, Attestor};
use crate::identity::{Certificate, NextKey, Role};
use crate::plan::executor::NewestPlan;
use crate::state::install_record::InstallRecord;

const NO_CERTIFICATE: &str = "cannot get a certificate";

impl<S: System, N: Transport + NetworkObserver> Link<'_, S, N> {
    /// A valid certificate: the stored one, else the one of a new registration.
    pub(super) async fn choose_certificate(&mut self) -> Result<Certificate, CallError> {
        let kept = self.identity.certificate(SystemTime::now());
        if let Some(kept) = kept.filter(|_| !self.doubts_kept) {
            return Ok(kept);
        }
        // The doubt is dropped after one registration: if it is refused, the stored certificate may
        // be valid after all.
        self.doubts_kept = false;
        self.console.print_message("no valid certificate: registering again");
        let registered = register_once(self.root, self.caller(), Role::Installed).await;
        Ok(registered.map_err(|error| error.context(NO_CERTIFICATE))?.certificate)
    }

    /// Reports the install again, because the coordinator may have no report of this disk.
    async fn report_installed(&self) -> Result<(), CallError> {
        let record = InstallRecord::read(&self.root.state())?.unwrap_or_default();
        InstallReporter::new(self.caller()).report_outcome(Outcome::Done(record.into())).await?;
        Ok(())
    }

    /// Exchanges the certificate of the live system for one of the installed system.
    pub(super) async fn exchange_certificate(&mut self) -> Result<ReconnectReason, CallError> {
        // The TPM takes seconds to derive the keys, so this happens before the connection is
        // opened.
        let attestor = self.load_attestor().await?;
        let session = self.caller().open_session(&self.rejection).await?;
        // A power cut between the end of the install and its report loses the report, and without
        // it the coordinator signs for the live system.
        self.report_installed().await?;
        let certificate_request = self.identity.create_request()?;
        let boot_proof = self.prove_boot(attestor, &session.exporter, &certificate_request).await?;
        self.send_request(&mut host_client(session.channel), certificate_request, boot_proof).await
    }

    async fn prove_boot(
        &self,
        attestor: Option<Attestor>,
        exporter: &Exporter,
        certificate_request: &[u8],
    ) -> Result<Option<BootProof>, CallError> {
        let Some(attestor) = attestor else { return Ok(None) };
        let binding = proof::boot_binding(exporter, &self.identity.hash(), certificate_request);
        Ok(Some(attestor.prove_boot(binding).await.context(NO_CERTIFICATE)?))
    }

    /// `None` without a TPM, because the coordinator decides whether a host needs one.
    async fn load_attestor(&self) -> Result<Option<Attestor>, CallError> {
        let Some(endorsement_key) = self.identity.endorsement_key() else { return Ok(None) };
        if tpm::find_device(self.root).is_none() {
            return Ok(None);
        }
        Ok(Some(Attestor::load(self.root, endorsement_key).await.context(NO_CERTIFICATE)?))
    }

    /// Gets a new certificate for the same key.
    pub(super) async fn renew_certificate(
        &mut self,
        attached: &mut Attached,
    ) -> Result<ReconnectReason, CallError> {
        let certificate_request = self.identity.create_request()?;
        let attestor = self.load_attestor().await?;
        let boot_proof = self.prove_boot(attestor, &attached.exporter, &certificate_request).await?;
        self.send_request(&mut attached.client, certificate_request, boot_proof).await
    }

    /// The newest plan, if it is a clean that was applied.
    pub(super) fn applied_clean(&self) -> Option<(String, u64)> {
        let progress = self.progress.borrow();
        let NewestPlan::Known(plan) = &progress.newest else { return None };
        let is_applied = plan.kind() == PlanKind::Clean && plan.outcome() == PlanOutcome::Applied;
        is_applied.then(|| (plan.id.clone(), plan.generation))
    }

    /// Replaces the key of this host by a new one with a certificate; `false` if the coordinator is of
    /// a former release, which signs for the present key only.
    pub(super) async fn replace_key(&mut self, attached: &mut Attached) -> Result<bool, CallError> {
        let next = NextKey::generate()?;
        let certificate_request = next.create_request()?;
        let attestor = self.load_attestor().await?;
        let boot_proof = self.prove_boot(attestor, &attached.exporter, &certificate_request).await?;
        let requested = self
            .request_certificate(&mut attached.client, certificate_request, boot_proof, &next.public_key())
            .await;
        let replaced = match requested {
            Ok(certificate) => {
                self.identity.replace_key(next, &certificate)?;
                tracing::info!("the key of this host was replaced after the clean");
                true
            }
            Err(error) if error.refusal() == Some(Refusal::BadRequest) => {
                tracing::warn!(%error, "the key of this host stays, its coordinator is of a former release");
                false
            }
            Err(error) => return Err(error),
        };
        self.key_made_for = self.applied_clean();
        Ok(replaced)
    }

    async fn send_request(
        &mut self,
        client: &mut HostClient<Channel>,
        certificate_request: Vec<u8>,
        boot_proof: Option<BootProof>,
    ) -> Result<ReconnectReason, CallError> {
        let public_key = self.identity.public_key();
        let certificate =
            self.request_certificate(client, certificate_request, boot_proof, &public_key).await?;
        self.identity.keep_certificate(&certificate);
        let valid_for =
            certificate.not_after.duration_since(SystemTime::now()).map_or(0, |left| left.as_secs());
        tracing::info!(role = ?certificate.role, seconds = valid_for, "certificate renewed");
        Ok(ReconnectReason::Certificate)
    }

    async fn request_certificate(
        &self,
        client: &mut HostClient<Channel>,
        certificate_request: Vec<u8>,
        boot_proof: Option<BootProof>,
        public_key: &[u8],
    ) -> Result<Certificate, CallError> {
        let boot_id = observed::boot_id(self.root)?;
        let request = RenewCertificateRequest { certificate_request, boot_id, boot_proof };
        let chain = client.renew_certificate(unary_request(request)).await?.into_inner().certificate_chain;
        let certificate = Certificate::parse(&chain, public_key)?;
        if certificate.role != Role::Installed {
            return Err(CallError::answered(
                "the coordinator signed a certificate of the live system for this installed host",
                "none: the host reports its install again and retries; if it persists, read the coordinator's log",
            ));
        }
        Ok(certificate)
    }
}
