//! The vendor's certificate, and the Secret that names vendors.

use coordinator_core::attestation::{AttestationError, ChainFault};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa};
use swtpm::Vendor;

use super::{Case, Field, case};
use crate::transcript::Transcript;

fn certified(valid: &Transcript, certificate: Vec<u8>) -> Transcript {
    valid.edited(|copy| copy.keys.endorsement_certificate = certificate)
}

fn unusable(reason: &str) -> AttestationError {
    AttestationError::Chain(ChainFault::Unusable(reason.to_owned()))
}

pub(super) fn certificates(field: &Field) -> Vec<Case> {
    let Field { valid, other, vendor, .. } = field;
    let fault = AttestationError::Chain;
    let sent = |certificate: Vec<u8>| certified(valid, certificate);
    let made = |edit: fn(&mut CertificateParams)| sent(vendor.certify(&valid.public_key, edit));
    let own = &valid.keys.endorsement_certificate;
    let (body, last) = (&own[..own.len() - 1], own[own.len() - 1]);
    let server = made(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let wrong_use = server.verify().unwrap_err();
    assert!(matches!(wrong_use, AttestationError::Chain(ChainFault::Unusable(_))), "{wrong_use:?}");
    let authority = made(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let short = made(|params| params.not_after = rcgen::date_time_ymd(2026, 1, 1));
    let theirs = sent(other.keys.endorsement_certificate.clone());
    vec![
        case("no certificate", sent(vec![]), fault(ChainFault::Missing)),
        case("a certificate of another TPM", theirs, fault(ChainFault::ForeignKey)),
        case("the certificate of a CA", authority, unusable("CaUsedAsEndEntity")),
        case("an expired certificate", short, fault(ChainFault::Expired)),
        case("an altered certificate", sent([body, &[last ^ 1]].concat()), fault(ChainFault::Forged)),
        case("a truncated certificate", sent(body.to_vec()), fault(ChainFault::Malformed)),
        case("bytes behind the certificate", sent([&own[..], &[0]].concat()), fault(ChainFault::Malformed)),
    ]
}

pub(super) fn authorities(field: &Field) -> Vec<Case> {
    let valid = &field.valid;
    let fault = AttestationError::Chain;
    let bad = |why| fault(ChainFault::BadAuthority(why));
    let by = |vendor: &Vendor| certified(valid, vendor.certify(&valid.public_key, |_| {}));
    let trusting =
        |vendor: &Vendor| by(vendor).edited(|copy| copy.authorities = Some(vendor.authority.clone()));
    let no_authority = Vendor::edited("host", |params| params.is_ca = IsCa::NoCa);
    let old = Vendor::edited("old", |params| params.not_after = rcgen::date_time_ymd(2025, 1, 1));
    let early = Vendor::edited("early", |params| params.not_before = rcgen::date_time_ymd(2030, 1, 1));
    let at = |now: &str| valid.edited(|copy| copy.now = now.parse().unwrap());
    let empty = valid.edited(|copy| copy.authorities = Some(String::new()));
    vec![
        case("another vendor", by(&Vendor::new("another")), fault(ChainFault::UnknownIssuer)),
        case("a forged vendor", by(&Vendor::new("vendor")), fault(ChainFault::Forged)),
        case("a vendor that is no CA", trusting(&no_authority), bad("is not a CA's")),
        case("a vendor that has expired", trusting(&old), bad("has expired")),
        case("a vendor of tomorrow", trusting(&early), bad("is not valid yet")),
        case("a Secret without CA", empty, fault(ChainFault::NoAuthority)),
        case("a clock that is behind", at("2019-01-01T00:00:00Z"), bad("is not valid yet")),
        case("a clock that is ahead", at("2041-01-01T00:00:00Z"), bad("has expired")),
    ]
}
