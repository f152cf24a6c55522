//! One registration with the coordinator: by the live system, or by an installed one that has no
//! valid certificate.

use proto::proof::{self, Exporter};
use proto::v1alpha1::begin_request::Attestation;
use proto::v1alpha1::complete_response::Next;
use proto::v1alpha1::{
    BeginRequest, BeginResponse, CompleteRequest, CompleteResponse, SoftwareKey, TpmQuote,
};

use crate::client::calls::{self, CallError, Caller, unary_request};
use crate::client::tls::{self, Session};
use crate::client::transport::Transport;
use crate::ground::error::{NextAction, describe_error};
use crate::ground::paths::Root;
use crate::host::network::NetworkObserver;
use crate::host::system::SystemError;
use crate::host::{facts, observed};
use crate::identity::tpm::{Attestor, TpmError};
use crate::identity::{Certificate, Identity, IdentityError, Role};

/// One attempt that may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// No answer, or a refusal.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Our key failed us.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The TPM that holds the identity of this host failed.
    #[error(transparent)]
    Tpm(#[from] TpmError),
    /// The kernel does not name its boot.
    #[error(transparent)]
    Boot(#[from] SystemError),
    /// The response violates the contract.
    #[error("the coordinator's answer is invalid ({what}): agent and coordinator are of different versions")]
    Answer { what: &'static str },
}

impl NextAction for AttemptError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Call(error) => error.next_action(),
            Self::Identity(error) => error.next_action(),
            Self::Tpm(error) => error.next_action(),
            Self::Boot(error) => error.next_action(),
            Self::Answer { .. } => Some("download a fresh seed ISO and boot it"),
        }
    }
}

/// A registration that succeeded.
#[derive(Debug)]
pub struct Registered {
    /// `namespace/name`.
    pub inventory: String,
    /// For the calls that follow; kept already.
    pub certificate: Certificate,
    /// What the live system does next.
    pub next: Next,
}

/// One registration on one connection, by the system of that role; keeps the
/// certificate.
pub async fn register_once<N: Transport + NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
) -> Result<Registered, AttemptError> {
    // The keys of a TPM take seconds to make: not while the coordinator waits.
    let attestor = match caller.identity.endorsement_key() {
        Some(endorsement_key) => Some(Attestor::load(root, endorsement_key).await?),
        None => None,
    };
    // Without a client certificate: the token opens, the key proves.
    let session = tls::connect_tls(caller.config, caller.network, None).await.map_err(CallError::from)?;
    let response = prove_identity(root, caller, system, session, attestor).await?;
    let certificate = Certificate::parse(&response.certificate_chain, &caller.identity.public_key())?;
    caller.identity.keep_certificate(&certificate)?;
    Ok(Registered {
        inventory: format!("{}/{}", response.inventory_namespace, response.inventory_name),
        certificate,
        next: response.next.ok_or(AttemptError::Answer { what: "no next action" })?,
    })
}

async fn prove_identity<N: NetworkObserver>(
    root: &Root,
    caller: Caller<'_, N>,
    system: Role,
    session: Session,
    attestor: Option<Attestor>,
) -> Result<CompleteResponse, AttemptError> {
    let Caller { config, network, identity } = caller;
    let mut client = calls::registration_client(session.channel);
    let (public_key, attestation) = match &attestor {
        Some(attestor) => (attestor.public_key.clone(), Attestation::TpmKeys(attestor.keys.clone())),
        None => (identity.public_key(), Attestation::SoftwareKey(SoftwareKey {})),
    };
    let begin = BeginRequest {
        registration_token: config.token.clone(),
        public_key: public_key.clone(),
        attestation: Some(attestation),
    };
    let opened = client.begin(unary_request(begin)).await.map_err(CallError::from)?.into_inner();
    let certificate_request = identity.create_request()?;
    let claim = Claim { exporter: &session.exporter, public_key: &public_key, request: &certificate_request };
    let Answer { proof, tpm_quote } = answer_challenge(identity, attestor, opened, claim).await?;
    let observed = network
        .observe()
        .inspect_err(|error| {
            tracing::warn!(error = describe_error(error), "registering without the network");
        })
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
    };
    let response = client.complete(unary_request(complete)).await.map_err(CallError::from)?;
    Ok(response.into_inner())
}

/// What a proof is bound to, beside the nonce.
struct Claim<'a> {
    exporter: &'a Exporter,
    public_key: &'a [u8],
    request: &'a [u8],
}

struct Answer {
    proof: Vec<u8>,
    tpm_quote: Option<TpmQuote>,
}

/// By the TPM that holds the identity, else by the software key.
async fn answer_challenge(
    identity: &Identity,
    attestor: Option<Attestor>,
    opened: BeginResponse,
    claim: Claim<'_>,
) -> Result<Answer, AttemptError> {
    let nonce = opened.nonce.try_into().map_err(|_| AttemptError::Answer { what: "the nonce" })?;
    let Some(attestor) = attestor else {
        let binding = proof::binding(&nonce, claim.exporter, claim.public_key);
        return Ok(Answer { proof: identity.prove_possession(&binding)?, tpm_quote: None });
    };
    let challenge = opened.tpm_challenge.ok_or(AttemptError::Answer { what: "no challenge for the TPM" })?;
    let binding = proof::tpm_binding(&nonce, claim.exporter, claim.public_key, claim.request);
    let (proof, quote) = attestor.answer(challenge, binding).await?;
    Ok(Answer { proof, tpm_quote: Some(quote) })
}
