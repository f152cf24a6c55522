//! The proof of a TPM 2.0: the endorsement key belongs to a TPM, the attestation key is in the
//! same TPM, and both answer now, on this connection, for this certificate request.
//!
//! [`keys`] checks the public areas, [`proof`] the credential and the quote, [`chain`] the vendor's
//! certificate, and [`boot`] the later boot of the installed system. Every input is bounded before
//! it is parsed.

pub mod boot;
pub mod chain;
pub mod keys;
pub mod proof;

use ::proto::limits::{ENDORSEMENT_CERTIFICATE_BYTES, TPM_STRUCTURE_BYTES};
use ::proto::refusal::Refusal;
use ::proto::tpm::{CREDENTIAL_BYTES, PCRS};
use ::proto::v1alpha1::{TpmKeys, TpmQuote};
use jiff::Timestamp;
use tpm2_protocol::TpmUnmarshal;

pub use boot::BootFault;
pub use chain::ChainFault;
use chain::verify_chain;
pub use keys::{AttestationKey, EndorsementKey, KeyFault, KeyRole};
pub use proof::{Expected, QuoteFault, Quoted, verify_proof};

/// A TPM that has opened a registration, with the inputs of the check of its answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    pub endorsement: EndorsementKey,
    /// The key that signs quotes.
    pub key: AttestationKey,
    /// DER from the host; empty if the TPM has no certificate.
    certificate: Vec<u8>,
    /// Content of the credential.
    credential: [u8; CREDENTIAL_BYTES],
}

impl Opened {
    /// Checks the keys of a TPM whose host claims the identity `public_key`. `credential` is fresh
    /// randomness.
    pub fn parse(
        keys: &TpmKeys,
        public_key: &[u8],
        credential: [u8; CREDENTIAL_BYTES],
    ) -> Result<Self, AttestationError> {
        let certificate = &keys.endorsement_certificate;
        check_size("the certificate of the endorsement key", certificate, ENDORSEMENT_CERTIFICATE_BYTES)?;
        let endorsement = EndorsementKey::parse(&keys.endorsement_key)?;
        endorsement.check_claim(public_key)?;
        let key = AttestationKey::parse(&keys.attestation_key)?;
        Ok(Self { endorsement, key, certificate: certificate.clone(), credential })
    }

    /// Verifies the answer. `binding` is `proto::proof::tpm_binding` of this connection.
    pub fn verify_answer(
        &self,
        binding: &[u8; 32],
        proof: &[u8],
        quote: Option<&TpmQuote>,
    ) -> Result<Quoted, AttestationError> {
        let quote = quote.ok_or(AttestationError::Malformed { what: "the quote" })?;
        let expected = Expected { credential: &self.credential, key: &self.key, pcrs: &PCRS, binding };
        verify_proof(expected, proof, &quote.attest, &quote.signature)
    }

    /// Verifies the vendor's certificate against the PEM of the operator's CAs.
    pub fn verify_certificate(&self, authorities: &[u8], now: Timestamp) -> Result<(), AttestationError> {
        verify_chain(&self.endorsement, &self.certificate, authorities, now).map_err(AttestationError::Chain)
    }
}

/// Why a TPM is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttestationError {
    /// Longer than the output of any TPM.
    #[error("{what} has {bytes} bytes, {max} are allowed")]
    TooLarge { what: &'static str, bytes: usize, max: usize },
    /// Not the expected structure, or followed by other bytes.
    #[error("{what} cannot be parsed")]
    Malformed { what: &'static str },
    /// A key that proves nothing.
    #[error("the {role} {fault}")]
    Key { role: KeyRole, fault: KeyFault },
    /// The host claims an identity that its TPM does not have.
    #[error("the identity that the host claims is not that of its endorsement key")]
    ForeignIdentity,
    /// No TPM holds both keys, or the message belongs to another connection.
    #[error("the credential was not activated for this connection by the TPM that holds both keys")]
    Credential,
    #[error("the quote of the TPM {0}")]
    Quote(QuoteFault),
    /// The installed system does not prove its boot.
    #[error("the boot of the installed system is not proven: {0}")]
    Boot(BootFault),
    /// The certificate of the endorsement key.
    #[error("the certificate of the TPM's endorsement key {0}")]
    Chain(ChainFault),
}

impl AttestationError {
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::TooLarge { .. } | Self::Malformed { .. } => Refusal::BadRequest,
            Self::Key { .. } | Self::ForeignIdentity => Refusal::TpmKeyRejected,
            Self::Credential | Self::Quote(_) | Self::Boot(_) => Refusal::BadProof,
            Self::Chain(_) => Refusal::TpmUntrusted,
        }
    }

    pub const fn next_action(&self) -> &'static str {
        match self {
            Self::Quote(QuoteFault::Registers) => {
                "switch the SHA-256 PCR bank of the TPM on in the host's firmware setup, and boot the seed ISO again"
            }
            Self::Boot(fault) => fault.next_action(),
            Self::Chain(ChainFault::NotYetValid | ChainFault::Expired) => {
                "correct the coordinator's clock; if it is right, replace the TPM, or delete the Secret tpm-ca to accept TPMs without a check"
            }
            other => other.refusal().next_action(),
        }
    }
}

fn check_size(what: &'static str, bytes: &[u8], max: usize) -> Result<(), AttestationError> {
    if bytes.len() > max {
        return Err(AttestationError::TooLarge { what, bytes: bytes.len(), max });
    }
    Ok(())
}

/// Parses a structure that fills `bytes`.
fn parse_structure<T: TpmUnmarshal>(what: &'static str, bytes: &[u8]) -> Result<T, AttestationError> {
    check_size(what, bytes, TPM_STRUCTURE_BYTES)?;
    match T::unmarshal(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(AttestationError::Malformed { what }),
    }
}

#[cfg(test)]
mod tests;
