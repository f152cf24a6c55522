//! What the installed system of a host with a TPM shows before it may receive plans:
//! that the host was booted since the live system registered. A boot id is the
//! host's own word; a reset of the TPM is not.

use ::proto::tpm::PCRS;
use ::proto::v1alpha1::BootProof;
use coordinator_api::inventory::LiveTpm;

use super::proof::verify_quote;
use super::{AttestationError, AttestationKey, Quoted};

/// Why a boot is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootFault {
    /// There is no quote.
    #[error("the host sent no quote of its TPM")]
    Missing,
    /// By a key that the registration did not prove.
    #[error("the quote is by another key than that of the registration")]
    OtherKey,
    /// No boot in between.
    #[error("the TPM was not reset since the live system registered")]
    NoReset,
}

impl BootFault {
    /// What the operator does about it.
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

/// What a registration of the live system leaves for [`verify_boot`].
pub fn describe_live_tpm(key: &AttestationKey, quoted: Quoted) -> LiveTpm {
    LiveTpm { attestation_key: hex::encode(&key.name), reset_count: quoted.resets }
}

/// Verifies that the host was booted since `live`. `binding` is that of this connection
/// (`proto::proof::boot_binding`).
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
    // A TPM that is cleared counts from the beginning, and root on the host can clear it.
    if quoted.resets <= live.reset_count {
        return Err(AttestationError::Boot(BootFault::NoReset));
    }
    Ok(())
}
