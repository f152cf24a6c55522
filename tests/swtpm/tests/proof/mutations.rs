//! One valid transcript, changed in one way each.

mod chains;
mod quotes;

use agent::identity::tpm::{Tpm, keys};
use coordinator_core::attestation::{AttestationError, KeyFault, KeyRole, QuoteFault};
use proto::limits::{ENDORSEMENT_CERTIFICATE_BYTES, TPM_STRUCTURE_BYTES};
use proto::tpm::pkix_rsa;
use proto::v1alpha1::TpmQuote;
use swtpm::{Swtpm, Vendor};
use tpm2_protocol::data::{
    TpmAlgId, TpmaObject, TpmsSchemeHash, TpmtPublic, TpmtRsaScheme, TpmuAsymScheme, TpmuPublicParms,
};
use tpm2_protocol::{TpmMarshal, TpmWriter};

use crate::transcript::Transcript;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) transcript: Transcript,
    pub(crate) want: AttestationError,
}

fn case(name: &'static str, transcript: Transcript, want: AttestationError) -> Case {
    Case { name, transcript, want }
}

fn marshal(value: &impl TpmMarshal) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let mut writer = TpmWriter::new(&mut buffer);
    value.marshal(&mut writer).unwrap();
    writer.as_bytes().to_vec()
}

/// Two hosts of one vendor, and what each of them has sent.
struct Field {
    tpm: Swtpm,
    valid: Transcript,
    other: Transcript,
    vendor: Vendor,
}

pub(crate) async fn all() -> Vec<Case> {
    let (tpm, neighbour, vendor) = (Swtpm::start(), Swtpm::start(), Vendor::new("vendor"));
    let mut taken = vec![];
    for one in [&tpm, &neighbour] {
        let key = agent::identity::tpm::read_identity(&one.host_root()).await.unwrap().unwrap();
        one.write_certificate(&vendor.certify(&key, |_| {}), &[]);
        let transcript = Transcript::take(&one.host_root()).await;
        taken.push(Transcript { authorities: Some(vendor.authority.clone()), ..transcript });
    }
    let [valid, other] = taken.try_into().ok().unwrap();
    assert!(valid.verify().is_ok() && other.verify().is_ok());
    let field = Field { tpm, valid, other, vendor };
    let mut cases = identities(&field);
    cases.extend(endorsement_keys(&field.valid));
    cases.extend(attestation_keys(&field));
    cases.extend(credentials(&field));
    cases.extend(quotes::signed(&field));
    cases.extend(quotes::altered(&field));
    cases.extend(chains::certificates(&field));
    cases.extend(chains::authorities(&field));
    cases.extend(sizes(&field.valid));
    cases
}

/// Keys of one host with those of another, and keys of no TPM.
fn identities(field: &Field) -> Vec<Case> {
    let Field { valid, other, .. } = field;
    let foreign = || AttestationError::ForeignIdentity;
    let swapped_attestation = valid.edited(|copy| copy.keys = valid.with_attestation_key_of(other));
    let swapped_endorsement = other.edited(|copy| copy.keys = other.with_attestation_key_of(valid));
    let not_signed = || AttestationError::Quote(QuoteFault::Signature);
    vec![
        case(
            "the identity of another host",
            valid.edited(|copy| copy.public_key.clone_from(&other.public_key)),
            foreign(),
        ),
        case(
            "an identity of no TPM",
            valid.edited(|copy| copy.public_key = pkix_rsa(&[0xc1; 256])),
            foreign(),
        ),
        case("no identity", valid.edited(|copy| copy.public_key.clear()), foreign()),
        case(
            "another endorsement key",
            valid.edited(|copy| copy.keys.endorsement_key.clone_from(&other.keys.endorsement_key)),
            foreign(),
        ),
        case("a copied attestation key", swapped_attestation, not_signed()),
        case("a copied endorsement key", swapped_endorsement, not_signed()),
        case(
            "the answer of another host",
            valid.edited(|copy| (copy.proof, copy.quote) = (other.proof.clone(), other.quote.clone())),
            AttestationError::Credential,
        ),
        case(
            "the quote of another host",
            valid.quoting(other.quote.clone().unwrap()),
            AttestationError::Quote(QuoteFault::Nonce),
        ),
    ]
}

/// Bytes of a `TPMT_PUBLIC`: type, hash of the name, attributes, policy, then what
/// the kind of key has.
fn endorsement_keys(valid: &Transcript) -> Vec<Case> {
    let fault = |fault| AttestationError::Key { role: KeyRole::Endorsement, fault };
    let malformed = || AttestationError::Malformed { what: "the endorsement key" };
    let edits: [(&'static str, usize, u8, AttestationError); 12] = [
        ("EK: SHA-1 name", 3, 0x0f, fault(KeyFault::NameHash)),
        ("EK: not fixedTPM", 7, 0x02, fault(KeyFault::Attribute("fixedTPM"))),
        ("EK: not fixedParent", 7, 0x10, fault(KeyFault::Attribute("fixedParent"))),
        ("EK: made elsewhere", 7, 0x20, fault(KeyFault::Attribute("sensitiveDataOrigin"))),
        ("EK: by password", 7, 0x40, fault(KeyFault::Attribute("userWithAuth"))),
        ("EK: not restricted", 5, 0x01, fault(KeyFault::Attribute("restricted"))),
        ("EK: no storage key", 5, 0x02, fault(KeyFault::Attribute("decrypt"))),
        ("EK: signs", 5, 0x04, fault(KeyFault::Attribute("sign"))),
        ("EK: another policy", 10, 0xff, fault(KeyFault::Policy)),
        // 128 bits with that bit flipped are 192.
        ("EK: another cipher", 45, 0x40, fault(KeyFault::Symmetric)),
        ("EK: another length", 50, 0x04, fault(KeyFault::Kind)),
        ("EK: another exponent", 55, 0x03, fault(KeyFault::Kind)),
    ];
    let mut cases: Vec<_> = edits
        .into_iter()
        .map(|(name, at, bits, want)| {
            case(name, valid.edited(|copy| copy.keys.endorsement_key[at] ^= bits), want)
        })
        .collect();
    let other_kind = valid.edited(|copy| copy.keys.endorsement_key[1] = 0x23);
    cases.push(case("EK: another kind", other_kind, malformed()));
    cases
}

/// The public area of a real key of this TPM that `edit` makes another one.
fn real_key(tpm: &mut Tpm, edit: impl FnOnce(&mut TpmtPublic)) -> Vec<u8> {
    let mut template = keys::attestation_template().unwrap();
    edit(&mut template);
    let (_, public) = tpm.create_primary(template).unwrap();
    marshal(&public)
}

fn flip(attribute: TpmaObject) -> impl FnOnce(&mut TpmtPublic) {
    move |key| {
        let bits = key.object_attributes.bits() ^ attribute.bits();
        key.object_attributes = TpmaObject::from_bits_truncate(bits);
    }
}

fn sign_with(scheme: TpmAlgId, hash: TpmAlgId) -> impl FnOnce(&mut TpmtPublic) {
    move |key| {
        let TpmuPublicParms::Rsa(parameters) = &mut key.parameters else { panic!("an RSA key") };
        let details = TpmuAsymScheme::Hash(TpmsSchemeHash { hash_alg: hash });
        parameters.scheme = TpmtRsaScheme { scheme, details };
    }
}

fn attestation_keys(field: &Field) -> Vec<Case> {
    let valid = &field.valid;
    let fault = |fault| AttestationError::Key { role: KeyRole::Attestation, fault };
    let real = |edit: Box<dyn FnOnce(&mut TpmtPublic)>| real_key(&mut field.tpm.open(), edit);
    let sent = |key: Vec<u8>| valid.edited(|copy| copy.keys.attestation_key = key);
    let mut cases = vec![
        // Real keys of the same TPM.
        case(
            "AK: unrestricted",
            sent(real(Box::new(flip(TpmaObject::RESTRICTED)))),
            fault(KeyFault::Attribute("restricted")),
        ),
        case(
            "AK: PSS",
            sent(real(Box::new(sign_with(TpmAlgId::Rsapss, TpmAlgId::Sha256)))),
            fault(KeyFault::Scheme),
        ),
        case(
            "AK: SHA-384",
            sent(real(Box::new(sign_with(TpmAlgId::Rsassa, TpmAlgId::Sha384)))),
            fault(KeyFault::Scheme),
        ),
        case(
            "AK: the endorsement key",
            sent(valid.keys.endorsement_key.clone()),
            fault(KeyFault::Attribute("decrypt")),
        ),
    ];
    // Keys that no TPM makes so.
    let edits: [(&'static str, usize, u8, KeyFault); 9] = [
        ("AK: SHA-1 name", 3, 0x0f, KeyFault::NameHash),
        ("AK: not fixedTPM", 7, 0x02, KeyFault::Attribute("fixedTPM")),
        ("AK: not fixedParent", 7, 0x10, KeyFault::Attribute("fixedParent")),
        ("AK: made elsewhere", 7, 0x20, KeyFault::Attribute("sensitiveDataOrigin")),
        ("AK: not restricted", 5, 0x01, KeyFault::Attribute("restricted")),
        ("AK: storage key", 5, 0x02, KeyFault::Attribute("decrypt")),
        ("AK: does not sign", 5, 0x04, KeyFault::Attribute("sign")),
        ("AK: another length", 16, 0x04, KeyFault::Kind),
        ("AK: another exponent", 21, 0x03, KeyFault::Kind),
    ];
    cases.extend(edits.into_iter().map(|(name, at, bits, want)| {
        case(name, valid.edited(|copy| copy.keys.attestation_key[at] ^= bits), fault(want))
    }));
    // The TPM would not activate a credential for its name: here only the signature
    // tells.
    let other_modulus = valid.edited(|copy| copy.keys.attestation_key[30] ^= 1);
    cases.push(case("AK: another modulus", other_modulus, AttestationError::Quote(QuoteFault::Signature)));
    cases
}

fn credentials(field: &Field) -> Vec<Case> {
    let valid = &field.valid;
    let refused = || AttestationError::Credential;
    vec![
        case("replayed to another challenge", valid.edited(|copy| copy.nonce = [9; 32]), refused()),
        case("relayed to another connection", valid.edited(|copy| copy.exporter = [9; 32]), refused()),
        case("another certificate request", valid.edited(|copy| copy.request.push(0)), refused()),
        case("no authenticator", valid.edited(|copy| copy.proof.clear()), refused()),
        case("half an authenticator", valid.edited(|copy| copy.proof.truncate(16)), refused()),
        case("a longer authenticator", valid.edited(|copy| copy.proof.push(0)), refused()),
        case("an altered authenticator", valid.edited(|copy| copy.proof[31] ^= 1), refused()),
    ]
}

fn sizes(valid: &Transcript) -> Vec<Case> {
    let (max, bytes) = (TPM_STRUCTURE_BYTES, TPM_STRUCTURE_BYTES + 1);
    let large = |what| AttestationError::TooLarge { what, bytes, max };
    let malformed = |what| AttestationError::Malformed { what };
    let quote = |edit: fn(&mut TpmQuote)| valid.edited(|copy| edit(copy.quote.as_mut().unwrap()));
    let certificate = AttestationError::TooLarge {
        what: "the certificate of the endorsement key",
        bytes: ENDORSEMENT_CERTIFICATE_BYTES + 1,
        max: ENDORSEMENT_CERTIFICATE_BYTES,
    };
    let filled = |copy: &mut Transcript| {
        copy.keys.endorsement_certificate.resize(ENDORSEMENT_CERTIFICATE_BYTES + 1, 0);
    };
    vec![
        case(
            "a large EK",
            valid.edited(|copy| copy.keys.endorsement_key.resize(bytes, 0)),
            large("the endorsement key"),
        ),
        case(
            "a large AK",
            valid.edited(|copy| copy.keys.attestation_key.resize(bytes, 0)),
            large("the attestation key"),
        ),
        case(
            "a large quote",
            quote(|quote| quote.attest.resize(TPM_STRUCTURE_BYTES + 1, 0)),
            large("the quote"),
        ),
        case(
            "a large signature",
            quote(|quote| quote.signature.resize(TPM_STRUCTURE_BYTES + 1, 0)),
            large("the signature of the quote"),
        ),
        case("a large certificate", valid.edited(filled), certificate),
        case(
            "a truncated EK",
            valid.edited(|copy| copy.keys.endorsement_key.truncate(100)),
            malformed("the endorsement key"),
        ),
        case(
            "a truncated AK",
            valid.edited(|copy| copy.keys.attestation_key.truncate(100)),
            malformed("the attestation key"),
        ),
        case(
            "no EK",
            valid.edited(|copy| copy.keys.endorsement_key.clear()),
            malformed("the endorsement key"),
        ),
        case(
            "no AK",
            valid.edited(|copy| copy.keys.attestation_key.clear()),
            malformed("the attestation key"),
        ),
    ]
}
