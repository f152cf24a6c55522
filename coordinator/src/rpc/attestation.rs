//! Attestation of a host whose identity is in a TPM: the challenge that only its TPM can answer, and
//! the check of the vendor's certificate against the operator's CAs.

use coordinator_api::inventory::{KeyClass, LiveTpm};
use coordinator_core::attestation::boot::{describe_live_tpm, verify_boot};
use coordinator_core::attestation::{AttestationError, Opened};
use coordinator_core::host::HostRecord;
use coordinator_core::inventory::classify_tpm;
use getrandom::SysRng;
use proto::proof;
use proto::tpm::{CREDENTIAL_BYTES, PCRS};
use proto::v1alpha1 as wire;
use ring::rand::SecureRandom as _;

use super::{Context, RpcError};
use crate::ca::Peer;
use crate::credential::make_credential;
use crate::store::StoreError;
use crate::store::registration::AUTHORITIES_SECRET;
use crate::tls::{Challenge, Session};

const AUTHORITIES_KEY: &str = "tls.crt";

impl From<AttestationError> for RpcError {
    fn from(error: AttestationError) -> Self {
        Self::refused_with(error.refusal(), error.to_string(), error.next_action())
    }
}

/// Checks the keys of a TPM, and makes the challenge for both of them.
pub(super) fn open_challenge(
    keys: &wire::TpmKeys,
    public_key: &[u8],
) -> Result<(Opened, wire::TpmChallenge), RpcError> {
    let mut credential = [0; CREDENTIAL_BYTES];
    ring::rand::SystemRandom::new().fill(&mut credential).map_err(|_| RpcError::Randomness)?;
    let opened = Opened::parse(keys, public_key, credential)?;
    let made = make_credential(opened.endorsement.modulus(), &opened.key.name, &credential, &mut SysRng)
        .map_err(|_| AttestationError::Malformed { what: "the endorsement key" })?;
    let challenge = wire::TpmChallenge {
        credential: made.id_object,
        encrypted_secret: made.encrypted_secret,
        pcrs: PCRS.to_vec(),
    };
    Ok((opened, challenge))
}

/// Verifies that the TPM of `opened` answered the challenge on this connection, and after that its
/// certificate.
pub(super) async fn verify_tpm(
    context: &Context,
    session: &Session,
    challenge: &Challenge,
    opened: &Opened,
    request: &wire::CompleteRequest,
    is_known: bool,
) -> Result<(KeyClass, LiveTpm), RpcError> {
    let binding = proof::tpm_binding(
        &challenge.nonce,
        session.exporter(),
        &challenge.public_key,
        &request.certificate_request,
    );
    let quoted = opened.verify_answer(&binding, &request.proof, request.tpm_quote.as_ref())?;
    let authorities = read_authorities(context, &challenge.registration.namespace).await?;
    let chain = authorities.map(|authorities| opened.verify_certificate(&authorities, context.now()));
    if let Some(Err(error)) = &chain
        && is_known
    {
        tracing::warn!(%error, "certificate of the TPM is not verified, accepting a known host");
    }
    let class = classify_tpm(chain, is_known)?;
    tracing::info!(class = class.as_str(), registers = hex::encode(quoted.registers), "TPM attested");
    Ok((class, describe_live_tpm(&opened.key, quoted, request.proves_renewals)))
}

/// Verifies that an installed host whose identity is in a TPM was booted since its live system
/// registered. A record without the TPM, for example after a restore, passes, because it has nothing
/// to compare with.
pub(super) fn verify_boot_proof(
    record: &HostRecord,
    session: &Session,
    peer: &Peer,
    request: &wire::RenewCertificateRequest,
) -> Result<(), RpcError> {
    let Some(live) = &record.live_tpm else { return Ok(()) };
    let binding = proof::boot_binding(session.exporter(), &peer.key.tpm_hash, &request.certificate_request);
    Ok(verify_boot(live, request.boot_proof.as_ref(), &binding)?)
}

/// The CAs in PEM; `None` if the operator named none.
async fn read_authorities(context: &Context, namespace: &str) -> Result<Option<Vec<u8>>, RpcError> {
    let read = context.secret_api(namespace).get_opt(AUTHORITIES_SECRET).await;
    let secret = read.map_err(StoreError::request("get", "Secret", AUTHORITIES_SECRET))?;
    Ok(secret.map(|secret| {
        let bytes = secret.data.and_then(|mut data| data.remove(AUTHORITIES_KEY));
        bytes.map_or_else(Vec::new, |bytes| bytes.0)
    }))
}
