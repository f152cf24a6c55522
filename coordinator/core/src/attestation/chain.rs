//! The vendor's certificate of an endorsement key, verified against the CAs of the operator.

use ::proto::tpm::pkcs1_rsa;
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;

use super::EndorsementKey;

/// tcg-kp-EKCertificate, 2.23.133.8.1.
const ENDORSEMENT_USAGE: &[u8] = &[0x67, 0x81, 0x05, 0x08, 0x01];

/// Fault of the certificate of an endorsement key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    #[error("is missing in the TPM, and the Secret tpm-ca asks for one")]
    Missing,
    #[error("cannot be parsed")]
    Malformed,
    /// The certificate belongs to another TPM.
    #[error("is for another key")]
    ForeignKey,
    #[error("cannot be checked: the Secret tpm-ca holds no certificate of a CA under the key tls.crt")]
    NoAuthority,
    /// The issuer is in the Secret, but may not sign.
    #[error("is signed by a certificate of the Secret tpm-ca that {0}")]
    BadAuthority(&'static str),
    #[error("has expired")]
    Expired,
    #[error("is not valid yet")]
    NotYetValid,
    /// The certificate names a CA of the Secret that did not sign it.
    #[error("is forged: its signature is not by the CA that it names")]
    Forged,
    #[error("is not signed by a CA of the Secret tpm-ca")]
    UnknownIssuer,
    #[error("is not one of an endorsement key: {0}")]
    Unusable(String),
}

/// Verifies that `certificate` belongs to the key and is signed by one of the PEM `authorities`.
/// Each authority is a trust anchor, even if it is no root.
pub fn verify_chain(
    key: &EndorsementKey,
    certificate: &[u8],
    authorities: &[u8],
    now: Timestamp,
) -> Result<(), ChainFault> {
    if certificate.is_empty() {
        return Err(ChainFault::Missing);
    }
    let (rest, leaf) = x509_parser::parse_x509_certificate(certificate).map_err(|_| ChainFault::Malformed)?;
    if !rest.is_empty() {
        return Err(ChainFault::Malformed);
    }
    // Only the key is compared, because some vendors name the algorithm RSAES-OAEP.
    if *leaf.public_key().subject_public_key.data != *pkcs1_rsa(key.modulus()) {
        return Err(ChainFault::ForeignKey);
    }
    let authorities: Vec<_> = CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok).collect();
    let trusted = choose_authorities(&leaf, &authorities, now)?;
    verify_path(certificate, &trusted, now)
}

/// The authorities that may sign now. A fault of the issuer itself is an error.
fn choose_authorities<'a>(
    leaf: &X509Certificate<'_>,
    authorities: &'a [CertificateDer<'a>],
    now: Timestamp,
) -> Result<Vec<&'a CertificateDer<'a>>, ChainFault> {
    let (mut trusted, mut fault_of_issuer) = (vec![], None);
    for authority in authorities {
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(authority) else { continue };
        match find_fault(&parsed, now) {
            None => trusted.push(authority),
            Some(fault) if parsed.subject().as_raw() == leaf.issuer().as_raw() => {
                fault_of_issuer = Some(fault);
            }
            Some(_) => {}
        }
    }
    let has_issuer = trusted.iter().any(|authority| {
        x509_parser::parse_x509_certificate(authority)
            .is_ok_and(|(_, parsed)| parsed.subject().as_raw() == leaf.issuer().as_raw())
    });
    match fault_of_issuer {
        // The Secret may hold a renewed CA beside its former certificate.
        Some(fault) if !has_issuer => Err(ChainFault::BadAuthority(fault)),
        _ if trusted.is_empty() => Err(ChainFault::NoAuthority),
        _ => Ok(trusted),
    }
}

/// The reason why a certificate may not sign others at `now`.
fn find_fault(authority: &X509Certificate<'_>, now: Timestamp) -> Option<&'static str> {
    let may_sign = match authority.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    let validity = authority.validity();
    if !authority.is_ca() || !may_sign {
        Some("is not a CA's")
    } else if now.as_second() > validity.not_after.timestamp() {
        Some("has expired")
    } else if now.as_second() < validity.not_before.timestamp() {
        Some("is not valid yet")
    } else {
        None
    }
}

fn verify_path(
    certificate: &[u8],
    authorities: &[&CertificateDer<'_>],
    now: Timestamp,
) -> Result<(), ChainFault> {
    let anchors: Vec<_> =
        authorities.iter().filter_map(|authority| anchor_from_trusted_cert(authority).ok()).collect();
    let certificate = CertificateDer::from(certificate);
    let leaf = EndEntityCert::try_from(&certificate).map_err(|error| name_fault(&error))?;
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let usage = KeyUsage::required_if_present(ENDORSEMENT_USAGE);
    leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], time, usage, None, None)
        .map(drop)
        .map_err(|error| name_fault(&error))
}

fn name_fault(error: &webpki::Error) -> ChainFault {
    match error {
        webpki::Error::CertExpired { .. } => ChainFault::Expired,
        webpki::Error::CertNotValidYet { .. } => ChainFault::NotYetValid,
        webpki::Error::InvalidSignatureForPublicKey => ChainFault::Forged,
        webpki::Error::UnknownIssuer => ChainFault::UnknownIssuer,
        other => ChainFault::Unusable(format!("{other:?}").chars().take(80).collect()),
    }
}
