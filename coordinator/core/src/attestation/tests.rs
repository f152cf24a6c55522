//! What of a TPM can be judged without one; `tests/swtpm` has the rest.

use ::proto::tpm::{ENDORSEMENT_ATTRIBUTES, ENDORSEMENT_POLICY, PCRS, RSA_BITS, RSA_BYTES, pkix_rsa};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SubjectPublicKeyInfo,
};
use time::OffsetDateTime;
use tpm2_protocol::data::{
    TpmAlgId, TpmaObject, TpmsRsaParms, TpmsSchemeHash, TpmtPublic, TpmtRsaScheme, TpmtSymDefObject,
    TpmuAsymScheme, TpmuPublicId, TpmuPublicParms, TpmuSymKeyBits, TpmuSymMode,
};
use tpm2_protocol::{TpmMarshal, TpmWriter};

use super::*;

type Edit = fn(&mut TpmtPublic);

fn marshal(value: &impl TpmMarshal) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let mut writer = TpmWriter::new(&mut buffer);
    value.marshal(&mut writer).unwrap();
    writer.as_bytes().to_vec()
}

fn rsa(attributes: u32, policy: &[u8], symmetric: TpmtSymDefObject, scheme: TpmtRsaScheme) -> TpmtPublic {
    TpmtPublic {
        object_type: TpmAlgId::Rsa,
        name_alg: TpmAlgId::Sha256,
        object_attributes: TpmaObject::from_bits_truncate(attributes),
        auth_policy: policy.try_into().unwrap(),
        parameters: TpmuPublicParms::Rsa(TpmsRsaParms {
            symmetric,
            scheme,
            key_bits: RSA_BITS.into(),
            exponent: 0.into(),
        }),
        unique: TpmuPublicId::Rsa([0xc1; RSA_BYTES].as_slice().try_into().unwrap()),
    }
}

fn endorsement() -> TpmtPublic {
    let symmetric = TpmtSymDefObject {
        algorithm: TpmAlgId::Aes,
        key_bits: TpmuSymKeyBits::Aes(128.into()),
        mode: TpmuSymMode::Aes(TpmAlgId::Cfb),
    };
    rsa(ENDORSEMENT_ATTRIBUTES, &ENDORSEMENT_POLICY, symmetric, TpmtRsaScheme::default())
}

fn attestation() -> TpmtPublic {
    let scheme = TpmtRsaScheme {
        scheme: TpmAlgId::Rsassa,
        details: TpmuAsymScheme::Hash(TpmsSchemeHash { hash_alg: TpmAlgId::Sha256 }),
    };
    let symmetric = TpmtSymDefObject {
        algorithm: TpmAlgId::Null,
        key_bits: TpmuSymKeyBits::Null,
        mode: TpmuSymMode::Null,
    };
    rsa(0x0005_0072, &[], symmetric, scheme)
}

fn parameters(public: &mut TpmtPublic) -> &mut TpmsRsaParms {
    let TpmuPublicParms::Rsa(parameters) = &mut public.parameters else { panic!("an RSA key") };
    parameters
}

fn key(bytes: &[u8]) -> TpmuPublicId {
    TpmuPublicId::Rsa(bytes.try_into().unwrap())
}

fn fault<T: std::fmt::Debug>(parsed: Result<T, AttestationError>) -> KeyFault {
    match parsed {
        Err(AttestationError::Key { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

const COMMON: [(&str, Edit, KeyFault); 6] = [
    ("exponent", |key| parameters(key).exponent = 3.into(), KeyFault::Kind),
    ("length in words", |key| parameters(key).key_bits = 1024.into(), KeyFault::Kind),
    ("length in bytes", |public| public.unique = key(&[0xc1; 128]), KeyFault::Kind),
    ("leading zero", |public| public.unique = key(&[0x41; RSA_BYTES]), KeyFault::Kind),
    ("even modulus", |public| public.unique = key(&[0xc0; RSA_BYTES]), KeyFault::Kind),
    ("hash of the name", |public| public.name_alg = TpmAlgId::Sha1, KeyFault::NameHash),
];

#[test]
fn the_template_of_the_endorsement_key_is_exact() {
    let parsed = EndorsementKey::parse(&marshal(&endorsement())).unwrap();
    assert_eq!(parsed.public_key(), pkix_rsa(&[0xc1; RSA_BYTES]));
    assert_eq!(parsed.check_claim(&parsed.public_key()), Ok(()));
    assert_eq!(parsed.check_claim(&pkix_rsa(&[0xc3; RSA_BYTES])), Err(AttestationError::ForeignIdentity));
    let own: [(&str, Edit, KeyFault); 3] = [
        ("policy", |key| key.auth_policy = [0; 32].as_slice().try_into().unwrap(), KeyFault::Policy),
        ("scheme", |key| parameters(key).scheme = parameters(&mut attestation()).scheme, KeyFault::Scheme),
        (
            "cipher",
            |key| parameters(key).symmetric.key_bits = TpmuSymKeyBits::Aes(256.into()),
            KeyFault::Symmetric,
        ),
    ];
    for (name, edit, want) in COMMON.into_iter().chain(own) {
        let mut key = endorsement();
        edit(&mut key);
        assert_eq!(fault(EndorsementKey::parse(&marshal(&key))), want, "{name}");
    }
}

#[test]
fn every_attribute_counts() {
    // Of the attestation key these say nothing about where it is and what it signs.
    let free = ["stClear", "userWithAuth", "adminWithPolicy", "noDA", "encryptedDuplication"];
    for (bit, name) in [
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
    ] {
        let flipped = |mut key: TpmtPublic| {
            let bits = key.object_attributes.bits() ^ bit.bits();
            key.object_attributes = TpmaObject::from_bits_truncate(bits);
            marshal(&key)
        };
        let endorsement = EndorsementKey::parse(&flipped(endorsement()));
        assert_eq!(fault(endorsement), KeyFault::Attribute(name));
        let attestation = AttestationKey::parse(&flipped(attestation()));
        if free.contains(&name) {
            assert!(attestation.is_ok(), "{name}: {attestation:?}");
        } else {
            assert_eq!(fault(attestation), KeyFault::Attribute(name));
        }
    }
}

#[test]
fn the_attestation_key_signs_as_it_must() {
    let parsed = AttestationKey::parse(&marshal(&attestation())).unwrap();
    assert_eq!((parsed.name.len(), &parsed.name[..2]), (34, &[0, 0x0b][..]));
    let own: [(&str, Edit, KeyFault); 3] = [
        ("no scheme", |key| parameters(key).scheme = TpmtRsaScheme::default(), KeyFault::Scheme),
        (
            "SHA-1",
            |key| {
                let details = TpmsSchemeHash { hash_alg: TpmAlgId::Sha1 };
                parameters(key).scheme.details = TpmuAsymScheme::Hash(details);
            },
            KeyFault::Scheme,
        ),
        (
            "a cipher",
            |key| parameters(key).symmetric = parameters(&mut endorsement()).symmetric,
            KeyFault::Symmetric,
        ),
    ];
    for (name, edit, want) in COMMON.into_iter().chain(own) {
        let mut key = attestation();
        edit(&mut key);
        assert_eq!(fault(AttestationKey::parse(&marshal(&key))), want, "{name}");
    }
}

#[test]
fn structures_are_bounded_and_whole() {
    const WHAT: &str = "the attestation key";
    let key = marshal(&attestation());
    for length in 0..key.len() {
        let parsed = AttestationKey::parse(&key[..length]);
        assert_eq!(parsed, Err(AttestationError::Malformed { what: WHAT }), "{length}");
    }
    let trailing = [key.as_slice(), &[0]].concat();
    assert_eq!(AttestationKey::parse(&trailing), Err(AttestationError::Malformed { what: WHAT }));
    let large = AttestationError::TooLarge { what: WHAT, bytes: 1025, max: 1024 };
    assert_eq!(AttestationKey::parse(&[0; 1025]), Err(large));
}

#[test]
fn wrong_credential_length_or_value_is_refused() {
    let key = AttestationKey::parse(&marshal(&attestation())).unwrap();
    let (credential, binding) = ([1; CREDENTIAL_BYTES], [2; 32]);
    let expected = Expected { credential: &credential, key: &key, pcrs: &PCRS, binding: &binding };
    let right = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &credential), &binding);
    let wrong = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &binding), &binding);
    for (name, mac) in [("empty", &[][..]), ("half", &right.as_ref()[..16]), ("other", wrong.as_ref())] {
        assert_eq!(verify_proof(expected, mac, &[], &[]), Err(AttestationError::Credential), "{name}");
    }
    let quote = verify_proof(expected, right.as_ref(), &[], &[]);
    assert_eq!(quote, Err(AttestationError::Quote(QuoteFault::Magic)), "the credential is right");
}

/// A CA, valid in 2026; `edit` makes it another one.
fn authority(name: &str, edit: impl FnOnce(&mut CertificateParams)) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) = (moment(2026, 1), moment(2027, 1));
    edit(&mut params);
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

fn moment(year: i32, month: u8) -> OffsetDateTime {
    rcgen::date_time_ymd(year, month, 1)
}

fn certificate(
    issuer: &Issuer<'_, KeyPair>,
    modulus: &[u8; RSA_BYTES],
    edit: impl FnOnce(&mut CertificateParams),
) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(vec![2, 23, 133, 8, 1])];
    params.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    (params.not_before, params.not_after) = (moment(2026, 2), moment(2026, 11));
    edit(&mut params);
    let key = SubjectPublicKeyInfo::from_der(&pkix_rsa(modulus)).unwrap();
    params.signed_by(&key, issuer).unwrap().der().to_vec()
}

/// Name, certificate, authorities, and the judgement.
type Judged<'a> = (&'a str, &'a [u8], &'a str, Result<(), ChainFault>);

#[test]
fn only_a_named_authority_vouches_for_a_key() {
    let key = EndorsementKey::parse(&marshal(&endorsement())).unwrap();
    let own = [0xc1; RSA_BYTES];
    let (vendor, pem) = authority("vendor", |_| {});
    let (foreign, foreign_pem) = authority("foreign", |_| {});
    let (imposter, _) = authority("vendor", |_| {});
    let (host, host_pem) = authority("host", |params| params.is_ca = IsCa::NoCa);
    let (old, old_pem) = authority("old", |params| params.not_after = moment(2026, 5));
    let (signer, signer_pem) =
        authority("signer", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let june: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
    let plain = |issuer| certificate(issuer, &own, |_| {});
    let good = plain(&vendor);
    let expired = certificate(&vendor, &own, |params| params.not_after = moment(2026, 5));
    let early = certificate(&vendor, &own, |params| params.not_before = moment(2026, 7));
    let server = certificate(&vendor, &own, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let ca = certificate(&vendor, &own, |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let other = certificate(&vendor, &[0xc3; RSA_BYTES], |_| {});
    let both = format!("{foreign_pem}{pem}");
    let cases: [Judged<'_>; 17] = [
        ("good", &good, &pem, Ok(())),
        ("one of several", &good, &both, Ok(())),
        ("none", &[], &pem, Err(ChainFault::Missing)),
        ("no DER", b"nonsense", &pem, Err(ChainFault::Malformed)),
        ("truncated", &good[..good.len() - 1], &pem, Err(ChainFault::Malformed)),
        ("trailing", &[&good[..], &[0]].concat(), &pem, Err(ChainFault::Malformed)),
        ("another key", &other, &pem, Err(ChainFault::ForeignKey)),
        ("no authority", &good, "", Err(ChainFault::NoAuthority)),
        ("nonsense for an authority", &good, "nonsense", Err(ChainFault::NoAuthority)),
        ("another authority", &plain(&foreign), &pem, Err(ChainFault::UnknownIssuer)),
        ("a name alone", &plain(&imposter), &pem, Err(ChainFault::Forged)),
        ("no CA", &plain(&host), &host_pem, Err(ChainFault::BadAuthority("is not a CA's"))),
        ("no signer", &plain(&signer), &signer_pem, Err(ChainFault::BadAuthority("is not a CA's"))),
        ("old authority", &plain(&old), &old_pem, Err(ChainFault::BadAuthority("has expired"))),
        ("expired", &expired, &pem, Err(ChainFault::Expired)),
        ("clock off", &early, &pem, Err(ChainFault::NotYetValid)),
        ("a CA for a key", &ca, &pem, Err(ChainFault::Unusable("CaUsedAsEndEntity".to_owned()))),
    ];
    for (name, certificate, authorities, want) in cases {
        let judged = verify_chain(&key, certificate, authorities.as_bytes(), june);
        assert_eq!(judged, want, "{name}");
    }
    let judged = verify_chain(&key, &server, pem.as_bytes(), june);
    assert!(matches!(judged, Err(ChainFault::Unusable(_))), "{judged:?}");
}
