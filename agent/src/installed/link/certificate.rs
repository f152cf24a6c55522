//! With which certificate the installed system calls.

use std::time::SystemTime;

use proto::proof;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::install_report::Outcome;
use proto::v1alpha1::{BootProof, RenewCertificateRequest};
use tonic::transport::Channel;

use super::{Again, Link};
use crate::client::calls::{InstallReporter, host_client, unary_request};
use crate::client::registration::{AttemptError, register_once};
use crate::client::transport::Transport;
use crate::host::network::NetworkObserver;
use crate::host::system::System;
use crate::identity::tpm::{self, Attestor};
use crate::identity::{Certificate, Role};
use crate::installed::error::LinkError;
use crate::state::install_record::InstallRecord;

impl<S: System, N: Transport + NetworkObserver> Link<'_, S, N> {
    /// A valid certificate: the stored one, else one of a registration
    /// with the stored configuration.
    pub(super) async fn choose_certificate(&mut self) -> Result<Certificate, LinkError> {
        let identity = self.identity;
        let kept = identity.certificate(SystemTime::now());
        if let Some(kept) = kept.filter(|_| !self.doubts_kept) {
            return Ok(kept);
        }
        // Once: where a registration is refused, the kept certificate may be good.
        self.doubts_kept = false;
        self.console.print_message("no valid certificate: registering again");
        Ok(register_once(self.root, self.caller(), Role::Installed).await?.certificate)
    }

    /// The coordinator may have no report of this disk.
    async fn report_installed(&self) -> Result<(), LinkError> {
        let record = InstallRecord::read(&self.root.state())?.unwrap_or_default();
        InstallReporter::new(self.caller()).report_outcome(Outcome::Done(record.into())).await?;
        Ok(())
    }

    /// The certificate of the live system for that of the installed one.
    pub(super) async fn exchange_certificate(&mut self) -> Result<Again, LinkError> {
        // The keys of a TPM take seconds to make: not while the coordinator waits.
        let attestor = self.load_attestor().await?;
        let session = self.caller().open_session(&self.rejection).await?;
        // Power may have been lost between the end of the install and its
        // report: without it the coordinator signs for the live system.
        self.report_installed().await?;
        let certificate_request = self.identity.create_request()?;
        let binding = proof::boot_binding(&session.exporter, &self.identity.hash(), &certificate_request);
        let boot_proof = match attestor {
            Some(attestor) => Some(attestor.prove_boot(binding).await.map_err(AttemptError::from)?),
            None => None,
        };
        self.send_request(&mut host_client(session.channel), certificate_request, boot_proof).await
    }

    /// Without the TPM it is for the coordinator to say whether one is needed.
    async fn load_attestor(&self) -> Result<Option<Attestor>, LinkError> {
        let Some(endorsement_key) = self.identity.endorsement_key() else { return Ok(None) };
        if tpm::find_device(self.root).is_none() {
            return Ok(None);
        }
        Ok(Some(Attestor::load(self.root, endorsement_key).await.map_err(AttemptError::from)?))
    }

    /// A new certificate for the same key.
    pub(super) async fn renew_certificate(
        &mut self,
        client: &mut HostClient<Channel>,
    ) -> Result<Again, LinkError> {
        let certificate_request = self.identity.create_request()?;
        self.send_request(client, certificate_request, None).await
    }

    async fn send_request(
        &mut self,
        client: &mut HostClient<Channel>,
        certificate_request: Vec<u8>,
        boot_proof: Option<BootProof>,
    ) -> Result<Again, LinkError> {
        let identity = self.identity;
        let boot_id = self.read_state().await?.boot_id;
        let request = RenewCertificateRequest { certificate_request, boot_id, boot_proof };
        let chain = client.renew_certificate(unary_request(request)).await?.into_inner().certificate_chain;
        let certificate = Certificate::parse(&chain, &identity.public_key())?;
        if certificate.role != Role::Installed {
            return Err(LinkError::NotInstalled);
        }
        identity.keep_certificate(&certificate)?;
        tracing::info!("new certificate");
        Ok(Again::Certificate)
    }
}
