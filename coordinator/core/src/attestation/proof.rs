//! The answer to a challenge: an activated credential and a quote.

use std::collections::BTreeSet;

use ::proto::tpm::CREDENTIAL_BYTES;
use ring::{hmac, signature};
use tpm2_protocol::constant::TPM_GENERATED_VALUE;
use tpm2_protocol::data::{TpmAlgId, TpmlPcrSelection, TpmsAttest, TpmtSignature, TpmuAttest, TpmuSignature};

use super::{AttestationError, AttestationKey, check_size, parse_structure};
use ::proto::limits::TPM_STRUCTURE_BYTES;

/// The exponent of every key that [`AttestationKey`] accepts.
const EXPONENT: [u8; 3] = [1, 0, 1];
/// Size of the digest of the registers.
const DIGEST_BYTES: usize = 32;

/// Fault of a quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuoteFault {
    #[error("was not made by a TPM")]
    Magic,
    #[error("is an attestation of another kind")]
    Kind,
    #[error("is for another challenge, connection or certificate request")]
    Nonce,
    #[error("covers other registers than were asked for, or another bank than SHA-256")]
    Registers,
    #[error("is signed with another algorithm than RSASSA with SHA-256")]
    Algorithm,
    /// Signed by another key, or altered.
    #[error("is not signed by the attestation key")]
    Signature,
}

/// Expected properties of an answer.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    /// Content of the credential.
    pub credential: &'a [u8; CREDENTIAL_BYTES],
    /// The key that signs quotes.
    pub key: &'a AttestationKey,
    /// Registers of the SHA-256 bank.
    pub pcrs: &'a [u32],
    /// `proto::proof::tpm_binding` of this connection.
    pub binding: &'a [u8; 32],
}

/// Content of a valid quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Digest of the registers.
    pub registers: [u8; DIGEST_BYTES],
    /// Number of resets of the TPM; each boot of the host is one.
    pub resets: u32,
}

/// Verifies the answer of a TPM.
pub fn verify_proof(
    expected: Expected<'_>,
    mac: &[u8],
    attest: &[u8],
    signature: &[u8],
) -> Result<Quoted, AttestationError> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, expected.credential);
    // `hmac::verify` compares in constant time.
    hmac::verify(&key, expected.binding, mac).map_err(|_| AttestationError::Credential)?;
    verify_quote(expected.key, expected.pcrs, expected.binding, attest, signature)
}

/// Verifies that `key` signed a quote of these registers over `binding`.
pub fn verify_quote(
    key: &AttestationKey,
    pcrs: &[u32],
    binding: &[u8; 32],
    attest: &[u8],
    signature: &[u8],
) -> Result<Quoted, AttestationError> {
    let quoted = check_quote(pcrs, binding, attest)?;
    verify_signature(key, attest, signature)?;
    Ok(quoted)
}

fn check_quote(pcrs: &[u32], binding: &[u8; 32], attest: &[u8]) -> Result<Quoted, AttestationError> {
    const WHAT: &str = "the quote";
    check_size(WHAT, attest, TPM_STRUCTURE_BYTES)?;
    if attest.first_chunk() != Some(&TPM_GENERATED_VALUE.to_be_bytes()) {
        return Err(AttestationError::Quote(QuoteFault::Magic));
    }
    let attest: TpmsAttest = parse_structure(WHAT, attest)?;
    let TpmuAttest::Quote(quote) = &attest.attested else {
        return Err(AttestationError::Quote(QuoteFault::Kind));
    };
    if *attest.extra_data != *binding {
        return Err(AttestationError::Quote(QuoteFault::Nonce));
    }
    let digest = <[u8; DIGEST_BYTES]>::try_from(&*quote.pcr_digest).ok();
    let registers = digest
        .filter(|_| covers_exactly(&quote.pcr_select, pcrs))
        .ok_or(AttestationError::Quote(QuoteFault::Registers))?;
    Ok(Quoted { registers, resets: attest.clock_info.reset_count.into() })
}

fn covers_exactly(selection: &TpmlPcrSelection, pcrs: &[u32]) -> bool {
    let [bank] = &**selection else { return false };
    let bits = bank.pcr_select.iter().zip(0_u32..).flat_map(|(byte, index)| {
        (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| index * 8 + bit)
    });
    bank.hash == TpmAlgId::Sha256 && bits.eq(pcrs.iter().copied().collect::<BTreeSet<_>>())
}

fn verify_signature(key: &AttestationKey, attest: &[u8], signature: &[u8]) -> Result<(), AttestationError> {
    let parsed: TpmtSignature = parse_structure("the signature of the quote", signature)?;
    let TpmuSignature::Rsassa(bytes) = parsed.signature else {
        return Err(AttestationError::Quote(QuoteFault::Algorithm));
    };
    if bytes.hash != TpmAlgId::Sha256 {
        return Err(AttestationError::Quote(QuoteFault::Algorithm));
    }
    let public = signature::RsaPublicKeyComponents { n: &key.modulus[..], e: &EXPONENT[..] };
    public
        .verify(&signature::RSA_PKCS1_2048_8192_SHA256, attest, &bytes.sig)
        .map_err(|_| AttestationError::Quote(QuoteFault::Signature))
}
