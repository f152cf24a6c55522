//! The proof of a boot. Before the installed system of a host with a TPM receives plans, it proves
//! that the host was booted since the live system registered. A boot id is no proof because the
//! host chooses it; a reset of the TPM is a proof.

use ::proto::tpm::PCRS;
use ::proto::v1alpha1::BootProof;
use coordinator_api::inventory::LiveTpm;

use super::proof::verify_quote;
use super::{AttestationError, AttestationKey, Quoted};

/// Why a boot is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootFault {
    /// The host sent no quote.
    #[error("the host sent no quote of its TPM")]
    Missing,
    /// The registration proved another key.
    #[error("the quote is by another key than that of the registration")]
    OtherKey,
    /// The host was not booted since the registration.
    #[error("the TPM was not reset since the live system registered")]
    NoReset,
}

impl BootFault {
    pub const fn next_action(self) -> &'static str {
        match self {
            Self::Missing => {
                "make the TPM usable in the installed system (/dev/tpmrm0), or, where the seed ISO is of an earlier release, build it again and boot the host from it"
            }
            Self::OtherKey => {
                "boot the host from the seed ISO: it registers again with the keys that its TPM has now"
            }
            Self::NoReset => {
                "switch the host off and on; if its TPM was cleared meanwhile, boot it from the seed ISO"
            }
        }
    }
}

/// The record of a live system's registration, which [`verify_boot`] compares later.
pub fn describe_live_tpm(key: &AttestationKey, quoted: Quoted, proves_renewals: bool) -> LiveTpm {
    LiveTpm { attestation_key: hex::encode(&key.name), reset_count: quoted.resets, proves_renewals }
}

/// Verifies that the host was booted since `live`. `binding` is `proto::proof::boot_binding` of
/// this connection.
pub fn verify_boot(
    live: &LiveTpm,
    shown: Option<&BootProof>,
    binding: &[u8; 32],
) -> Result<(), AttestationError> {
    let shown = shown.ok_or(AttestationError::Boot(BootFault::Missing))?;
    let quote = shown.quote.as_ref().ok_or(AttestationError::Boot(BootFault::Missing))?;
    let key = AttestationKey::parse(&shown.attestation_key)?;
    if hex::encode(&key.name) != live.attestation_key {
        return Err(AttestationError::Boot(BootFault::OtherKey));
    }
    let quoted = verify_quote(&key, &PCRS, binding, &quote.attest, &quote.signature)?;
    // The count has to rise: root on the host can clear the TPM, which restarts the count.
    if quoted.resets <= live.reset_count {
        return Err(AttestationError::Boot(BootFault::NoReset));
    }
    Ok(())
}
