//! The public areas of the two keys.

use std::fmt;

use ::proto::proof;
use ::proto::tpm::{ENDORSEMENT_ATTRIBUTES, ENDORSEMENT_POLICY, RSA_BITS, RSA_BYTES, pkix_rsa};
use sha2::{Digest as _, Sha256};
use tpm2_protocol::data::{
    TpmAlgId, TpmaObject, TpmsRsaParms, TpmtPublic, TpmtSymDefObject, TpmuAsymScheme, TpmuPublicId,
    TpmuPublicParms, TpmuSymKeyBits, TpmuSymMode,
};

use super::{AttestationError, parse_structure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRole {
    /// The identity of the TPM.
    Endorsement,
    /// The key that signs quotes.
    Attestation,
}

impl fmt::Display for KeyRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Endorsement => "endorsement key",
            Self::Attestation => "attestation key",
        })
    }
}

/// Fault of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("is not RSA with 2048 bits and the exponent 65537")]
    Kind,
    #[error("has a name by another hash than SHA-256")]
    NameHash,
    /// A required attribute is missing, or a forbidden one is set.
    #[error("does not have the attribute {0} as it must")]
    Attribute(&'static str),
    #[error("has another policy than the TCG's template")]
    Policy,
    #[error("has another scheme than it must")]
    Scheme,
    #[error("has another symmetric algorithm than it must")]
    Symmetric,
}

/// Attributes by their names in the TCG's specification.
const ATTRIBUTES: [(TpmaObject, &str); 11] = [
    (TpmaObject::FIXED_TPM, "fixedTPM"),
    (TpmaObject::ST_CLEAR, "stClear"),
    (TpmaObject::FIXED_PARENT, "fixedParent"),
    (TpmaObject::SENSITIVE_DATA_ORIGIN, "sensitiveDataOrigin"),
    (TpmaObject::USER_WITH_AUTH, "userWithAuth"),
    (TpmaObject::ADMIN_WITH_POLICY, "adminWithPolicy"),
    (TpmaObject::NO_DA, "noDA"),
    (TpmaObject::ENCRYPTED_DUPLICATION, "encryptedDuplication"),
    (TpmaObject::RESTRICTED, "restricted"),
    (TpmaObject::DECRYPT, "decrypt"),
    (TpmaObject::SIGN_ENCRYPT, "sign"),
];
/// Required attributes of an attestation key. A key that lacks one of them may have been created
/// outside the TPM, may be copied, or may sign data that no TPM created.
const ATTESTATION_SET: [TpmaObject; 5] = [
    TpmaObject::FIXED_TPM,
    TpmaObject::FIXED_PARENT,
    TpmaObject::SENSITIVE_DATA_ORIGIN,
    TpmaObject::RESTRICTED,
    TpmaObject::SIGN_ENCRYPT,
];
/// Forbidden attribute of an attestation key, because it makes the key a storage key.
const ATTESTATION_CLEAR: [TpmaObject; 1] = [TpmaObject::DECRYPT];

/// An endorsement key of the TCG's default template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndorsementKey {
    modulus: [u8; RSA_BYTES],
}

/// A restricted signing key of a TPM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttestationKey {
    pub(super) modulus: [u8; RSA_BYTES],
    /// Identifier of the hash, and SHA-256 of the public area.
    pub name: Vec<u8>,
}

impl EndorsementKey {
    /// Parses a `TPMT_PUBLIC`, and checks it against the TCG's default template.
    pub fn parse(public: &[u8]) -> Result<Self, AttestationError> {
        let public: TpmtPublic = parse_structure("the endorsement key", public)?;
        check_endorsement(&public).map_err(fault_of(KeyRole::Endorsement))
    }

    pub const fn modulus(&self) -> &[u8; RSA_BYTES] {
        &self.modulus
    }

    /// PKIX DER.
    pub fn public_key(&self) -> Vec<u8> {
        pkix_rsa(&self.modulus)
    }

    /// `spec.tpmHash`.
    pub fn hash(&self) -> String {
        proof::identity(&self.public_key())
    }

    /// Checks that the host claims this key.
    pub fn check_claim(&self, public_key: &[u8]) -> Result<(), AttestationError> {
        if self.public_key() == public_key { Ok(()) } else { Err(AttestationError::ForeignIdentity) }
    }
}

impl AttestationKey {
    /// Parses a `TPMT_PUBLIC`, and checks that its signature over a quote is a proof.
    pub fn parse(public: &[u8]) -> Result<Self, AttestationError> {
        let parsed: TpmtPublic = parse_structure("the attestation key", public)?;
        let modulus = check_attestation(&parsed).map_err(fault_of(KeyRole::Attestation))?;
        let mut name = TpmAlgId::Sha256.value().to_be_bytes().to_vec();
        name.extend(Sha256::digest(public));
        Ok(Self { modulus, name })
    }
}

const fn fault_of(role: KeyRole) -> impl Fn(KeyFault) -> AttestationError {
    move |fault| AttestationError::Key { role, fault }
}

fn check_endorsement(public: &TpmtPublic) -> Result<EndorsementKey, KeyFault> {
    let (modulus, parameters) = check_rsa(public)?;
    let template = TpmaObject::from_bits_truncate(ENDORSEMENT_ATTRIBUTES);
    for (attribute, name) in ATTRIBUTES {
        if public.object_attributes.contains(attribute) != template.contains(attribute) {
            return Err(KeyFault::Attribute(name));
        }
    }
    if *public.auth_policy != ENDORSEMENT_POLICY {
        return Err(KeyFault::Policy);
    }
    if parameters.scheme.scheme != TpmAlgId::Null {
        return Err(KeyFault::Scheme);
    }
    if parameters.symmetric != aes_128_cfb() {
        return Err(KeyFault::Symmetric);
    }
    Ok(EndorsementKey { modulus })
}

fn aes_128_cfb() -> TpmtSymDefObject {
    TpmtSymDefObject {
        algorithm: TpmAlgId::Aes,
        key_bits: TpmuSymKeyBits::Aes(128.into()),
        mode: TpmuSymMode::Aes(TpmAlgId::Cfb),
    }
}

fn check_attestation(public: &TpmtPublic) -> Result<[u8; RSA_BYTES], KeyFault> {
    let (modulus, parameters) = check_rsa(public)?;
    for (attribute, name) in ATTRIBUTES {
        let is_set = public.object_attributes.contains(attribute);
        let is_wrong = (!is_set && ATTESTATION_SET.contains(&attribute))
            || (is_set && ATTESTATION_CLEAR.contains(&attribute));
        if is_wrong {
            return Err(KeyFault::Attribute(name));
        }
    }
    let scheme = parameters.scheme;
    let is_sha256 =
        matches!(scheme.details, TpmuAsymScheme::Hash(details) if details.hash_alg == TpmAlgId::Sha256);
    if scheme.scheme != TpmAlgId::Rsassa || !is_sha256 {
        return Err(KeyFault::Scheme);
    }
    if parameters.symmetric.algorithm != TpmAlgId::Null {
        return Err(KeyFault::Symmetric);
    }
    Ok(modulus)
}

/// The common checks of both keys. An exponent of zero stands for the default one.
fn check_rsa(public: &TpmtPublic) -> Result<([u8; RSA_BYTES], TpmsRsaParms), KeyFault> {
    let (TpmuPublicParms::Rsa(parameters), TpmuPublicId::Rsa(modulus)) = (&public.parameters, &public.unique)
    else {
        return Err(KeyFault::Kind);
    };
    let modulus = <[u8; RSA_BYTES]>::try_from(&**modulus).map_err(|_| KeyFault::Kind)?;
    let is_odd = modulus[RSA_BYTES - 1] & 1 == 1;
    let is_default = parameters.key_bits.value() == RSA_BITS && parameters.exponent.value() == 0;
    if !is_default || modulus[0] < 0x80 || !is_odd {
        return Err(KeyFault::Kind);
    }
    if public.name_alg != TpmAlgId::Sha256 {
        return Err(KeyFault::NameHash);
    }
    Ok((modulus, *parameters))
}
