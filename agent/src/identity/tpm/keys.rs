//! The templates of both keys, and the selection of registers.

use proto::tpm::{ENDORSEMENT_ATTRIBUTES, ENDORSEMENT_POLICY, RSA_BITS, RSA_BYTES};
use tpm2_protocol::data::{
    Tpm2bDigest, Tpm2bPublicKeyRsa, TpmAlgId, TpmaObject, TpmlPcrSelection, TpmsPcrSelect, TpmsPcrSelection,
    TpmsRsaParms, TpmsSchemeHash, TpmtPublic, TpmtRsaScheme, TpmtSymDefObject, TpmuAsymScheme, TpmuPublicId,
    TpmuPublicParms, TpmuSymKeyBits, TpmuSymMode,
};

use super::error::{invalid_challenge, misfit};
use crate::ground::failure::Failure;

const MAKING: &str = "a template";
/// The PC client profile has 24 registers, one bit each.
const SELECT_BYTES: usize = 3;

/// The TCG's default endorsement key for RSA 2048, template L-1.
pub fn endorsement_template() -> Result<TpmtPublic, Failure> {
    let symmetric = TpmtSymDefObject {
        algorithm: TpmAlgId::Aes,
        key_bits: TpmuSymKeyBits::Aes(128.into()),
        mode: TpmuSymMode::Aes(TpmAlgId::Cfb),
    };
    let attributes = TpmaObject::from_bits_truncate(ENDORSEMENT_ATTRIBUTES);
    // The template has zeros here, and a TPM would derive another key without them.
    let unique = Tpm2bPublicKeyRsa::try_from(&[0; RSA_BYTES][..]).map_err(misfit(MAKING))?;
    rsa_template(attributes, &ENDORSEMENT_POLICY, symmetric, TpmtRsaScheme::default(), &unique)
}

/// A restricted signing key that never leaves its TPM: RSASSA with SHA-256.
pub fn attestation_template() -> Result<TpmtPublic, Failure> {
    let attributes = [
        TpmaObject::FIXED_TPM,
        TpmaObject::FIXED_PARENT,
        TpmaObject::SENSITIVE_DATA_ORIGIN,
        TpmaObject::USER_WITH_AUTH,
        TpmaObject::NO_DA,
        TpmaObject::RESTRICTED,
        TpmaObject::SIGN_ENCRYPT,
    ];
    let bits = attributes.iter().fold(0, |bits, attribute| bits | attribute.bits());
    let scheme = TpmtRsaScheme {
        scheme: TpmAlgId::Rsassa,
        details: TpmuAsymScheme::Hash(TpmsSchemeHash { hash_alg: TpmAlgId::Sha256 }),
    };
    let unique = Tpm2bPublicKeyRsa::default();
    rsa_template(TpmaObject::from_bits_truncate(bits), &[], no_cipher(), scheme, &unique)
}

/// A parameter that names no algorithm.
pub(super) const fn no_cipher() -> TpmtSymDefObject {
    TpmtSymDefObject { algorithm: TpmAlgId::Null, key_bits: TpmuSymKeyBits::Null, mode: TpmuSymMode::Null }
}

fn rsa_template(
    attributes: TpmaObject,
    policy: &[u8],
    symmetric: TpmtSymDefObject,
    scheme: TpmtRsaScheme,
    unique: &Tpm2bPublicKeyRsa,
) -> Result<TpmtPublic, Failure> {
    Ok(TpmtPublic {
        object_type: TpmAlgId::Rsa,
        name_alg: TpmAlgId::Sha256,
        object_attributes: attributes,
        auth_policy: Tpm2bDigest::try_from(policy).map_err(misfit(MAKING))?,
        parameters: TpmuPublicParms::Rsa(TpmsRsaParms {
            symmetric,
            scheme,
            key_bits: RSA_BITS.into(),
            exponent: 0.into(),
        }),
        unique: TpmuPublicId::Rsa(*unique),
    })
}

/// True if the key was made by this template.
pub(super) fn is_of_template(public: &TpmtPublic, template: &TpmtPublic) -> bool {
    TpmtPublic { unique: template.unique.clone(), ..public.clone() } == *template
}

/// Selects registers of the SHA-256 bank.
pub(super) fn select_registers(pcrs: &[u32]) -> Result<TpmlPcrSelection, Failure> {
    let mut bits = [0; SELECT_BYTES];
    for pcr in pcrs {
        let index = usize::try_from(pcr / 8).unwrap_or(usize::MAX);
        *bits.get_mut(index).ok_or_else(invalid_challenge)? |= 1_u8 << (pcr % 8);
    }
    let pcr_select = TpmsPcrSelect::try_from(&bits[..]).map_err(misfit(MAKING))?;
    let mut selection = TpmlPcrSelection::new();
    selection.try_push(TpmsPcrSelection { hash: TpmAlgId::Sha256, pcr_select }).map_err(misfit(MAKING))?;
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_become_bits() {
        let bits = |pcrs: &[u32]| {
            let selection = select_registers(pcrs).ok()?;
            Some(selection[0].pcr_select.to_vec())
        };
        assert_eq!(bits(&[]), Some(vec![0, 0, 0]));
        assert_eq!(bits(&[0, 7, 8, 23]), Some(vec![0x81, 0x01, 0x80]));
        assert_eq!(bits(&[24]), None);
        assert_eq!(bits(&[u32::MAX]), None);
    }

    #[test]
    fn a_key_of_another_template_is_not_taken() {
        let template = endorsement_template().unwrap();
        let mut key = template.clone();
        key.unique = TpmuPublicId::Rsa([0xc1; RSA_BYTES].as_slice().try_into().unwrap());
        assert!(is_of_template(&key, &template));
        key.object_attributes = TpmaObject::NO_DA;
        assert!(!is_of_template(&key, &template));
    }
}
