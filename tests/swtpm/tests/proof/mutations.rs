//! One valid transcript, changed in one way each.

use agent::tpm::{Tpm, keys};
use coordinator_core::attestation::{AttestationError, ChainFault, KeyFault, KeyRole, QuoteFault};
use proto::limits::{ENDORSEMENT_CERTIFICATE_BYTES, TPM_STRUCTURE_BYTES};
use proto::tpm::{PCRS, pkix_rsa};
use proto::v1alpha1::TpmQuote;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa};
use swtpm::{Swtpm, Vendor, password};
use tpm2_protocol::basic::TpmHandle;
use tpm2_protocol::data::{
    Tpm2bData, TpmAlgId, TpmRh, TpmaObject, TpmlPcrSelection, TpmsPcrSelect, TpmsPcrSelection,
    TpmsSchemeHash, TpmtPublic, TpmtRsaScheme, TpmtSigScheme, TpmuAsymScheme, TpmuPublicParms,
};
use tpm2_protocol::frame::{TpmGetTimeCommand, TpmGetTimeResponse, TpmQuoteCommand, TpmQuoteResponse};
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
        let key = agent::tpm::read_identity(&one.host_root()).await.unwrap().unwrap();
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
    cases.extend(quotes(&field));
    cases.extend(altered_quotes(&field));
    cases.extend(chains(&field));
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
        ("EK: another cipher", 45, 0x40, malformed()),
        ("EK: another length", 50, 0x04, fault(KeyFault::Kind)),
        ("EK: another exponent", 55, 0x03, fault(KeyFault::Kind)),
    ];
    let mut cases: Vec<_> = edits
        .into_iter()
        .map(|(name, at, bits, want)| {
            case(name, valid.edited(|copy| copy.keys.endorsement_key[at] ^= bits), want)
        })
        .collect();
    // 128 bits with that bit flipped are 192.
    if let Some(case) = cases.iter_mut().find(|case| case.name == "EK: another cipher") {
        case.want = fault(KeyFault::Symmetric);
    }
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
    // Each changes the name, so the TPM would not activate: here only the signature
    // tells.
    let password = valid.edited(|copy| copy.keys.attestation_key[30] ^= 1);
    cases.push(case("AK: another modulus", password, AttestationError::Quote(QuoteFault::Signature)));
    cases
}

/// The authenticator.
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

fn bank(hash: TpmAlgId, bits: &[u8]) -> TpmsPcrSelection {
    TpmsPcrSelection { hash, pcr_select: TpmsPcrSelect::try_from(bits).unwrap() }
}

/// A real quote of registers that the agent would not choose.
fn quote_banks(tpm: &mut Tpm, binding: &[u8], banks: &[TpmsPcrSelection]) -> TpmQuote {
    let (key, _) = tpm.create_primary(keys::attestation_template().unwrap()).unwrap();
    let mut pcr_select = TpmlPcrSelection::new();
    pcr_select.try_extend_from_slice(banks).unwrap();
    let command = TpmQuoteCommand {
        handles: [key],
        qualifying_data: Tpm2bData::try_from(binding).unwrap(),
        in_scheme: TpmtSigScheme::default(),
        pcr_select,
    };
    let answer: TpmQuoteResponse = tpm.run("Quote", &command, &[password()]).unwrap();
    TpmQuote { attest: marshal(&answer.quoted.inner), signature: marshal(&answer.signature) }
}

/// What the attestation key signs besides quotes.
fn attest_time(tpm: &mut Tpm, binding: &[u8]) -> TpmQuote {
    let (key, _) = tpm.create_primary(keys::attestation_template().unwrap()).unwrap();
    let command = TpmGetTimeCommand {
        handles: [TpmHandle::new(TpmRh::Endorsement as u32), key],
        qualifying_data: Tpm2bData::try_from(binding).unwrap(),
        in_scheme: TpmtSigScheme::default(),
    };
    let answer: TpmGetTimeResponse = tpm.run("GetTime", &command, &[password(), password()]).unwrap();
    TpmQuote { attest: marshal(&answer.time_info.inner), signature: marshal(&answer.signature) }
}

/// Quotes that the right TPM has signed.
fn quotes(field: &Field) -> Vec<Case> {
    let Field { tpm, valid, .. } = field;
    let fault = |fault| AttestationError::Quote(fault);
    let quoted = |binding: &[u8], pcrs: &[u32]| {
        let mut open = tpm.open();
        let (key, _) = open.create_primary(keys::attestation_template().unwrap()).unwrap();
        valid.quoting(open.quote(key, binding, pcrs).unwrap())
    };
    let banked =
        |banks: &[TpmsPcrSelection]| valid.quoting(quote_banks(&mut tpm.open(), &valid.binding(), banks));
    let binding = valid.binding();
    let asked = PCRS.iter().fold([0; 3], |mut bits, pcr| {
        bits[usize::try_from(pcr / 8).unwrap()] |= 1_u8 << (pcr % 8);
        bits
    });
    let sha256 = bank(TpmAlgId::Sha256, &asked);
    assert!(banked(&[sha256]).verify().is_ok(), "the helper quotes as the agent does");
    vec![
        case("a quote of another nonce", quoted(&[7; 32], &PCRS), fault(QuoteFault::Nonce)),
        case("a quote without nonce", quoted(&[], &PCRS), fault(QuoteFault::Nonce)),
        case("a quote of half the nonce", quoted(&binding[..16], &PCRS), fault(QuoteFault::Nonce)),
        case("fewer registers", quoted(&binding, &PCRS[1..]), fault(QuoteFault::Registers)),
        case("more registers", quoted(&binding, &[0, 2, 4, 7, 11, 14]), fault(QuoteFault::Registers)),
        case("other registers", quoted(&binding, &[1, 3, 5, 8, 12]), fault(QuoteFault::Registers)),
        case("no registers", quoted(&binding, &[]), fault(QuoteFault::Registers)),
        case("another bank", banked(&[bank(TpmAlgId::Sha384, &asked)]), fault(QuoteFault::Registers)),
        case("two banks", banked(&[sha256, bank(TpmAlgId::Sha384, &asked)]), fault(QuoteFault::Registers)),
        case("no bank", banked(&[]), fault(QuoteFault::Registers)),
        case("the time", valid.quoting(attest_time(&mut tpm.open(), &binding)), fault(QuoteFault::Kind)),
        case(
            "an old quote with a new authenticator",
            valid.edited(|copy| copy.nonce = [9; 32]).authenticated(),
            fault(QuoteFault::Nonce),
        ),
        case(
            "a quote relayed with a new authenticator",
            valid.edited(|copy| copy.exporter = [9; 32]).authenticated(),
            fault(QuoteFault::Nonce),
        ),
        case(
            "a request exchanged with a new authenticator",
            valid.edited(|copy| copy.request.push(0)).authenticated(),
            fault(QuoteFault::Nonce),
        ),
    ]
}

/// Quotes that no TPM has signed so.
fn altered_quotes(field: &Field) -> Vec<Case> {
    let Field { valid, other, .. } = field;
    let fault = |fault| AttestationError::Quote(fault);
    let whole = |what| AttestationError::Malformed { what };
    let attest = |edit: fn(&mut Vec<u8>)| {
        valid.edited(|copy| copy.quote.as_mut().map(|quote| edit(&mut quote.attest)).unwrap())
    };
    let signature = |edit: fn(&mut Vec<u8>)| {
        valid.edited(|copy| copy.quote.as_mut().map(|quote| edit(&mut quote.signature)).unwrap())
    };
    let theirs = other.quote.clone().unwrap().signature;
    let signed_by_other =
        valid.edited(|copy| copy.quote.as_mut().map(|quote| quote.signature = theirs).unwrap());
    const QUOTE: &str = "the quote";
    const SIGNATURE: &str = "the signature of the quote";
    vec![
        case("no quote", valid.edited(|copy| copy.quote = None), whole(QUOTE)),
        case("an empty quote", attest(Vec::clear), fault(QuoteFault::Magic)),
        case("another magic", attest(|bytes| bytes[0] ^= 1), fault(QuoteFault::Magic)),
        case("another kind", attest(|bytes| bytes[5] = 0x1a), whole(QUOTE)),
        case("an unknown kind", attest(|bytes| bytes[4] = 0), whole(QUOTE)),
        case("a truncated quote", attest(|bytes| bytes.truncate(bytes.len() - 1)), whole(QUOTE)),
        case("bytes behind the quote", attest(|bytes| bytes.push(0)), whole(QUOTE)),
        case(
            "altered registers",
            attest(|bytes| *bytes.last_mut().unwrap() ^= 1),
            fault(QuoteFault::Signature),
        ),
        case("an altered signer", attest(|bytes| bytes[20] ^= 1), fault(QuoteFault::Signature)),
        case("signed by another TPM", signed_by_other, fault(QuoteFault::Signature)),
        case("an altered signature", signature(|bytes| bytes[100] ^= 1), fault(QuoteFault::Signature)),
        case("another signature scheme", signature(|bytes| bytes[1] = 0x16), fault(QuoteFault::Algorithm)),
        case("another signature hash", signature(|bytes| bytes[3] = 0x0c), fault(QuoteFault::Algorithm)),
        case("no signature", signature(Vec::clear), whole(SIGNATURE)),
        case("a truncated signature", signature(|bytes| bytes.truncate(100)), whole(SIGNATURE)),
        case("bytes behind the signature", signature(|bytes| bytes.push(0)), whole(SIGNATURE)),
    ]
}

fn chains(field: &Field) -> Vec<Case> {
    let Field { valid, other, vendor, .. } = field;
    let fault = AttestationError::Chain;
    let certified =
        |certificate: Vec<u8>| valid.edited(|copy| copy.keys.endorsement_certificate = certificate);
    let by = |vendor: &Vendor| certified(vendor.certify(&valid.public_key, |_| {}));
    let trusting =
        |vendor: &Vendor| by(vendor).edited(|copy| copy.authorities = Some(vendor.authority.clone()));
    let server = vendor.certify(&valid.public_key, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let authority = vendor.certify(&valid.public_key, |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let no_authority = Vendor::edited("host", |params| params.is_ca = IsCa::NoCa);
    let old = Vendor::edited("old", |params| params.not_after = rcgen::date_time_ymd(2025, 1, 1));
    let early = Vendor::edited("early", |params| params.not_before = rcgen::date_time_ymd(2030, 1, 1));
    let at = |now: &str| valid.edited(|copy| copy.now = now.parse().unwrap());
    let short = vendor.certify(&valid.public_key, |params| {
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
    });
    let own = &valid.keys.endorsement_certificate;
    let refused = |reason: &str| fault(ChainFault::Unusable(reason.to_owned()));
    let wrong_use = certified(server).verify().unwrap_err();
    assert!(matches!(wrong_use, AttestationError::Chain(ChainFault::Unusable(_))), "{wrong_use:?}");
    vec![
        case("no certificate", certified(vec![]), fault(ChainFault::Missing)),
        case(
            "a certificate of another TPM",
            certified(other.keys.endorsement_certificate.clone()),
            fault(ChainFault::ForeignKey),
        ),
        case("another vendor", by(&Vendor::new("another")), fault(ChainFault::UnknownIssuer)),
        case("a forged vendor", by(&Vendor::new("vendor")), fault(ChainFault::Forged)),
        case("the certificate of a CA", certified(authority), refused("CaUsedAsEndEntity")),
        case(
            "a vendor that is no CA",
            trusting(&no_authority),
            fault(ChainFault::BadAuthority("is not a CA's")),
        ),
        case("a vendor that has expired", trusting(&old), fault(ChainFault::BadAuthority("has expired"))),
        case("a vendor of tomorrow", trusting(&early), fault(ChainFault::BadAuthority("is not valid yet"))),
        case("an expired certificate", certified(short), fault(ChainFault::Expired)),
        case(
            "a Secret without CA",
            valid.edited(|copy| copy.authorities = Some(String::new())),
            fault(ChainFault::NoAuthority),
        ),
        case(
            "a clock that is behind",
            at("2019-01-01T00:00:00Z"),
            fault(ChainFault::BadAuthority("is not valid yet")),
        ),
        case(
            "a clock that is ahead",
            at("2041-01-01T00:00:00Z"),
            fault(ChainFault::BadAuthority("has expired")),
        ),
        case(
            "an altered certificate",
            certified([&own[..own.len() - 1], &[own[own.len() - 1] ^ 1]].concat()),
            fault(ChainFault::Forged),
        ),
        case(
            "a truncated certificate",
            certified(own[..own.len() - 1].to_vec()),
            fault(ChainFault::Malformed),
        ),
        case(
            "bytes behind the certificate",
            certified([&own[..], &[0]].concat()),
            fault(ChainFault::Malformed),
        ),
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
