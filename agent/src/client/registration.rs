//! A registration with the coordinator, by the live system or by an installed one without a valid
//! certificate.

use proto::proof::{self, Exporter};
use proto::v1alpha1::begin_request::Attestation;
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::{
    BeginRequest, BeginResponse, CompleteRequest, CompleteResponse, RenewCertificateRequest, SoftwareKey,
    TpmQuote,
};

use crate::client::calls::{self, Caller, unary_request};
use crate::client::error::{Answer, CallError};
use crate::client::rejection::Rejection;
use crate::client::tls::{self, Session};
use crate::client::transport::Transport;
use crate::ground::paths::Root;
use crate::host::network::NetworkObserver;
use crate::host::{facts, observed};
use crate::identity::tpm::Attestor;
use crate::identity::{Certificate, Identity, NextKey, Role};

/// A registration that succeeded.
#[derive(Debug)]
pub struct Registered {
    /// `namespace/name`.
    pub inventory: String,
    /// The certificate for the calls that follow; it is stored already.
    pub certificate: Certificate,
    /// The next task of the live system.
    pub next: Next,
    /// The registration URL for the installed disk; empty from a former coordinator.
    pub installed_url: String,
}

/// The response violates the contract.
fn invalid_answer(what: &str) -> CallError {
    CallError::answered(
        format!(
            "the coordinator's answer is invalid ({what}): agent and coordinator are of different versions"
        ),
        "download a fresh seed ISO and boot it",
    )
}

/// Registers once, from the system of this role, and stores the certificate.
pub async fn register_once<N: Transport + NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
) -> Result<Registered, CallError> {
    register(root, caller, system).await.map_err(|error| match error.answer {
        // A registration shows no certificate, so none is rejected.
        Answer::Unauthenticated => CallError { answer: Answer::Coordinator, ..error },
        _ => error,
    })
}

/// Requests a certificate for the key that replaces the one of a registered live system.
pub async fn request_live_certificate<N: Transport>(
    caller: Caller<'_, N>,
    next: &NextKey,
    boot_id: String,
) -> Result<Certificate, CallError> {
    let mut client = caller.connect_host(&Rejection::default()).await?;
    let certificate_request = next.create_request()?;
    let request = RenewCertificateRequest { certificate_request, boot_id, boot_proof: None };
    let response = client.renew_certificate(unary_request(request)).await?.into_inner();
    Ok(Certificate::parse(&response.certificate_chain, &next.public_key())?)
}

async fn register<N: Transport + NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
) -> Result<Registered, CallError> {
    // The TPM takes seconds to derive the keys, so this happens before the connection is opened.
    let attestor = match caller.identity.endorsement_key() {
        Some(endorsement_key) => Some(Attestor::load(root, endorsement_key).await?),
        None => None,
    };
    // No client certificate is shown, because the token opens the registration and the key proves
    // the identity. An installed host has a token that admits this host alone.
    let session = tls::connect_tls(caller.config, caller.network, None).await?;
    let response = prove_identity(root, caller, system, session, attestor).await?;
    let certificate = Certificate::parse(&response.certificate_chain, &caller.identity.public_key())?;
    caller.identity.keep_certificate(&certificate);
    Ok(Registered {
        inventory: format!("{}/{}", response.inventory_namespace, response.inventory_name),
        certificate,
        next: response.next.ok_or_else(|| invalid_answer("no next action"))?,
        installed_url: response.installed_url,
    })
}

async fn prove_identity<N: NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
    session: Session,
    attestor: Option<Attestor>,
) -> Result<CompleteResponse, CallError> {
    let Caller { config, network, identity } = caller;
    let mut client = calls::registration_client(session.channel);
    let (public_key, attestation) = match &attestor {
        Some(attestor) => (attestor.public_key.clone(), Attestation::TpmKeys(attestor.keys.clone())),
        None => software_key(identity),
    };
    let begin = BeginRequest {
        registration_token: config.token.clone(),
        public_key: public_key.clone(),
        attestation: Some(attestation),
    };
    let opened = client.begin(unary_request(begin)).await?.into_inner();
    let certificate_request = identity.create_request()?;
    let claim = Claim { exporter: &session.exporter, public_key: &public_key, request: &certificate_request };
    let Evidence { proof, tpm_quote } = answer_challenge(identity, attestor, opened, claim).await?;
    let observed = network
        .observe()
        .inspect_err(|error| tracing::warn!(%error, "cannot observe the network, registering without it"))
        .ok();
    let complete = CompleteRequest {
        proof,
        certificate_request,
        tpm_quote,
        facts: Some(facts::collect_facts(root, observed.as_ref())),
        observed_network: observed,
        boot_id: match system {
            Role::Live => observed::boot_id(root)?,
            Role::Installed => String::new(),
        },
        proves_renewals: true,
    };
    let response = client.complete(unary_request(complete)).await?;
    Ok(response.into_inner())
}

/// The identity of a host without TPM, and the key that proves it.
fn software_key(identity: &Identity) -> (Vec<u8>, Attestation) {
    let Some(first_key) = identity.first_key() else {
        return (identity.public_key(), Attestation::SoftwareKey(SoftwareKey::default()));
    };
    let kept = identity.kept_certificates().next();
    let current = SoftwareKey {
        current_key: identity.public_key(),
        certificate_chain: kept.map_or_else(String::new, |kept| kept.chain),
    };
    (first_key.to_owned(), Attestation::SoftwareKey(current))
}

/// The values to which a proof is bound, beside the nonce.
struct Claim<'a> {
    exporter: &'a Exporter,
    public_key: &'a [u8],
    request: &'a [u8],
}

struct Evidence {
    proof: Vec<u8>,
    tpm_quote: Option<TpmQuote>,
}

/// Answers by the TPM that holds the identity, else by the software key.
async fn answer_challenge(
    identity: &Identity,
    attestor: Option<Attestor>,
    opened: BeginResponse,
    claim: Claim<'_>,
) -> Result<Evidence, CallError> {
    let nonce = opened.nonce.try_into().map_err(|_| invalid_answer("the nonce"))?;
    let Some(attestor) = attestor else {
        let binding = proof::binding(&nonce, claim.exporter, claim.public_key);
        return Ok(Evidence { proof: identity.prove_possession(&binding)?, tpm_quote: None });
    };
    let challenge = opened.tpm_challenge.ok_or_else(|| invalid_answer("no challenge for the TPM"))?;
    let binding = proof::tpm_binding(&nonce, claim.exporter, claim.public_key, claim.request);
    let (proof, quote) = attestor.answer(challenge, binding).await?;
    Ok(Evidence { proof, tpm_quote: Some(quote) })
}
