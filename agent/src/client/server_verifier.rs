//! Verifies the coordinator's certificate on a host whose clock may be wrong.
//!
//! The chain to the pinned authority and the name are verified as usual. Only the time of the
//! verification is taken from the certificate if the clock of the host does not fit it. A
//! certificate that is not valid yet proves that the clock is behind, because the authority has
//! signed it. An expired certificate is accepted unless the host knows a later time, which is the
//! start of its own certificate.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

#[derive(Debug)]
pub(super) struct ServerVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    /// A time that has passed, counted from 1970.
    floor: Duration,
}

impl ServerVerifier {
    pub(super) fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
        floor: Duration,
    ) -> Result<Self, Error> {
        let webpki = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self { webpki, floor })
    }
}

const UNREADABLE: Error = Error::InvalidCertificate(CertificateError::BadEncoding);

/// First and last second of a certificate.
fn read_validity(certificate: &CertificateDer<'_>) -> Result<(u64, u64), Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| UNREADABLE)?;
    let validity = parsed.validity();
    let [first, last] = [validity.not_before, validity.not_after].map(|time| u64::try_from(time.timestamp()));
    Ok((first.map_err(|_| UNREADABLE)?, last.map_err(|_| UNREADABLE)?))
}

/// The time at which a certificate is verified.
fn choose_time(now: u64, floor: u64, (first, last): (u64, u64)) -> u64 {
    if last < floor { floor } else { now.max(first).min(last) }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let validity = read_validity(end_entity)?;
        let chosen = choose_time(now.as_secs(), self.floor.as_secs(), validity);
        let at = UnixTime::since_unix_epoch(Duration::from_secs(chosen));
        let verified =
            self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, at)?;
        if chosen != now.as_secs() {
            tracing::warn!(
                clock = now.as_secs(),
                not_before = validity.0,
                not_after = validity.1,
                "clock of this host does not fit the coordinator's certificate, set the clock"
            );
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    /// 2026-06-02.
    const NOW: u64 = 1_780_358_400;
    const HOUR: u64 = 3600;
    const YEAR: u64 = 365 * 24 * HOUR;

    fn make_authority() -> (Issuer<'static, KeyPair>, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let der = params.self_signed(&key).unwrap().der().clone();
        (Issuer::new(params, key), der)
    }

    fn sign_server(issuer: &Issuer<'static, KeyPair>) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["c.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 6, 1);
        params.not_after = date_time_ymd(2026, 9, 1);
        params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    fn verify(
        root: &CertificateDer<'static>,
        leaf: &CertificateDer<'static>,
        name: &str,
        now: u64,
        floor: u64,
    ) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = ServerVerifier::new(roots, provider, Duration::from_secs(floor)).unwrap();
        let (name, now) =
            (name.to_owned().try_into().unwrap(), UnixTime::since_unix_epoch(Duration::from_secs(now)));
        verifier.verify_server_cert(leaf, std::slice::from_ref(root), &name, &[], now).map(drop)
    }

    #[test]
    fn only_the_time_may_not_fit() {
        let (issuer, root) = make_authority();
        let (_, other) = make_authority();
        let leaf = sign_server(&issuer);
        for (name, now) in [
            ("right", NOW),
            ("8 h behind", NOW - 8 * HOUR),
            ("2 years behind", NOW - 2 * YEAR),
            ("2 years ahead", NOW + 2 * YEAR),
        ] {
            assert_eq!(verify(&root, &leaf, "c.example", now, 0), Ok(()), "{name}");
            assert_eq!(verify(&root, &leaf, "c.example", now, NOW - HOUR), Ok(()), "{name}, known host");
            let error = verify(&other, &leaf, "c.example", now, 0).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::InvalidCertificate(
                        CertificateError::UnknownIssuer | CertificateError::BadSignature
                    )
                ),
                "{name}: {error}"
            );
            let error = verify(&root, &leaf, "d.example", now, 0).unwrap_err();
            assert!(
                matches!(error, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })),
                "{name}: {error}"
            );
            let expired = verify(&root, &leaf, "c.example", now, NOW + YEAR).unwrap_err();
            assert!(
                matches!(expired, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
                "{name}, the host has a newer certificate: {expired}"
            );
        }
    }
}
