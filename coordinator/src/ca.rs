//! The coordinator's own certificate authority. Hosts trust the copy in their seed ISO, and only
//! this authority signs client certificates of hosts.
//!
//! Only the authority is stored, and never written again. Every replica signs a server certificate
//! for itself in memory, so that a renewal or another name costs no write and no server key is
//! stored.

mod peer;
mod secret;

use std::time::Duration;

use coordinator_core::host::certified::KeyTime;
use jiff::Timestamp;
use proto::proof;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, SigningKey as _,
    SubjectPublicKeyInfo,
};
use ring::hmac;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

pub use peer::{HostKey, Peer, PeerError, Role};
pub use secret::{SECRET_NAME, read_or_create};

/// Life of a host's certificate. It is long enough for a renewal in time, and so short that no
/// revocation list is needed.
pub const HOST_LIFE: Duration = Duration::from_hours(24);
/// Life of a server certificate; renewed at two thirds.
pub const SERVER_LIFE: Duration = Duration::from_hours(24 * 90);
const AUTHORITY_LIFE: Duration = Duration::from_hours(24 * 3650);
/// The authority is backdated for hosts whose clock is in local time or has drifted.
const AUTHORITY_BACKDATED: Duration = Duration::from_hours(24 * 7);
/// The certificate of a host is backdated for replicas whose clock is a little behind.
const BACKDATED: Duration = Duration::from_mins(5);

/// A failure of the authority.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// Random numbers are not available, or a signature failed.
    #[error("cannot {attempt}")]
    Sign { attempt: &'static str, source: rcgen::Error },
    /// A time that no certificate can hold.
    #[error("the clock shows a time that no certificate can hold: set it right")]
    Clock,
    /// The stored authority is not usable.
    #[error(
        "the Secret {SECRET_NAME} holds no usable authority ({reason}): restore it, or delete it and create every seed ISO again"
    )]
    Stored { reason: String },
    /// The request cannot be understood, or its signature is not by its key.
    #[error("the certificate request is not PKCS#10 signed by a P-256 key")]
    Request,
    #[error("cannot {attempt} the Secret {SECRET_NAME}")]
    Api { attempt: &'static str, source: kube::Error },
}

impl CaError {
    fn sign(attempt: &'static str) -> impl Fn(rcgen::Error) -> Self + Copy {
        move |source| Self::Sign { attempt, source }
    }

    fn stored(reason: impl Into<String>) -> Self {
        Self::Stored { reason: reason.into() }
    }
}

pub struct Authority {
    /// The certificate of this authority, PEM.
    certificate: String,
    /// The certificate of this authority, then the others that hosts trust, PEM.
    certificates: String,
    der: CertificateDer<'static>,
    trusted: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    /// Makes the codes in the tokens of installed hosts.
    host_codes: hmac::Key,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Authority(…)")
    }
}

/// A server certificate and its key.
pub struct ServerIdentity {
    pub chain: Vec<CertificateDer<'static>>,
    /// PKCS#8.
    pub key: PrivateKeyDer<'static>,
}

/// The statement of a host's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    pub key: &'a HostKey,
    /// Name of the inventory, as a hint.
    pub name: &'a str,
    pub role: Role,
    pub key_time: KeyTime,
}

/// The public key of a certificate request, whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedKey(Vec<u8>);

impl RequestedKey {
    /// Reads the key of a PKCS#10 request. Names and extensions are ignored, because the coordinator
    /// chooses them.
    pub fn parse(request: &[u8]) -> Result<Self, CaError> {
        let (rest, request) = X509CertificationRequest::from_der(request).map_err(|_| CaError::Request)?;
        let key = request.certification_request_info.subject_pki.raw;
        if !rest.is_empty() || p256_point(key).is_none() {
            return Err(CaError::Request);
        }
        request.verify_signature().map_err(|_| CaError::Request)?;
        Ok(Self(key.to_vec()))
    }

    /// Lower-case hexadecimal SHA-256 of the key in PKIX DER.
    pub fn hash(&self) -> String {
        proof::identity(&self.0)
    }
}

/// The uncompressed point of a P-256 key in PKIX DER; `None` for another key.
pub fn p256_point(public_key: &[u8]) -> Option<&[u8]> {
    // SEQUENCE { SEQUENCE { ecPublicKey, prime256v1 }, BIT STRING }. The prefix is compared instead
    // of parsed, because DER has exactly one encoding.
    const PREFIX: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let point = public_key.strip_prefix(&PREFIX)?;
    (point.len() == 65 && point[0] == 4).then_some(point)
}

impl Authority {
    /// Makes a new authority.
    pub fn generate(now: Timestamp) -> Result<Self, CaError> {
        let failed = CaError::sign("make the authority");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params =
            certificate_params(timestamp(now)? - AUTHORITY_BACKDATED, timestamp(now)? + AUTHORITY_LIFE)?;
        params.distinguished_name.push(DnType::CommonName, "baremetal coordinator");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?;
        Self::parse(&certificate.pem(), &key.serialize_pem())
    }

    /// Reads a stored authority, both parts PEM. The first certificate is that of the authority; hosts
    /// trust the others too.
    pub fn parse(certificate: &str, key: &str) -> Result<Self, CaError> {
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(key, &PKCS_ECDSA_P256_SHA256)
            .map_err(|error| CaError::stored(format!("key: {error}")))?;
        let mut all = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| CaError::stored(format!("certificate: {error}")))?;
        if all.is_empty() {
            return Err(CaError::stored("certificate: none was found"));
        }
        let der = all.remove(0);
        if all.iter().any(|other| x509_parser::parse_x509_certificate(other).is_err()) {
            return Err(CaError::stored("a certificate after the first cannot be read"));
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(&der)
            .map_err(|error| CaError::stored(format!("certificate: {error}")))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(CaError::stored("certificate and key do not belong together"));
        }
        if !parsed.is_ca() {
            return Err(CaError::stored("the certificate is of no authority: with cert-manager set isCA"));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key)
            .map_err(|error| CaError::stored(format!("certificate: {error}")))?;
        let own = first_certificate(certificate).to_owned();
        let host_codes = derive_host_codes(issuer.key());
        let certificates = certificate.to_owned();
        Ok(Self { certificate: own, certificates, der, trusted: all, issuer, host_codes })
    }

    /// All certificates that hosts trust, PEM, for seed ISOs.
    pub fn certificates(&self) -> &str {
        &self.certificates
    }

    /// All certificates that hosts trust, DER; the first is that of the authority.
    pub fn roots(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        std::iter::once(&self.der).chain(&self.trusted)
    }

    /// Start of the validity of the authority.
    fn start(&self) -> Result<OffsetDateTime, CaError> {
        let parsed = x509_parser::parse_x509_certificate(&self.der);
        let start = parsed.map(|(_, parsed)| parsed.validity().not_before.timestamp());
        OffsetDateTime::from_unix_timestamp(start.unwrap_or(i64::MAX)).map_err(|_| CaError::Clock)
    }

    /// End of the validity of the authority.
    pub fn expiry(&self) -> Result<Timestamp, CaError> {
        let parsed = x509_parser::parse_x509_certificate(&self.der);
        let end = parsed.map(|(_, parsed)| parsed.validity().not_after.timestamp());
        Timestamp::from_second(end.unwrap_or(i64::MAX)).map_err(|_| CaError::Clock)
    }

    fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Signs a server certificate for `names`, each an address or a DNS name. Its validity starts with
    /// that of the authority, so that a restart locks out no host whose clock is behind.
    ///
    /// # Errors
    /// [`CaError::Sign`], also for an invalid name.
    pub fn server(&self, names: &[String], now: Timestamp) -> Result<ServerIdentity, CaError> {
        let failed = CaError::sign("sign the server certificate");
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = certificate_params(self.start()?, timestamp(now)? + SERVER_LIFE)?;
        params.subject_alt_names = CertificateParams::new(names.to_vec()).map_err(failed)?.subject_alt_names;
        params.distinguished_name.push(DnType::CommonName, "baremetal coordinator server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(ServerIdentity {
            chain: vec![certificate.der().clone(), self.der.clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    /// Signs a message of [`proto::proof::agent`] with ECDSA P-256 SHA-256; the signature is ASN.1 DER.
    pub fn sign_agent(&self, message: &[u8]) -> Result<Vec<u8>, CaError> {
        self.issuer.key().sign(message).map_err(CaError::sign("sign the agent"))
    }

    /// The code of a message for an installed host, HMAC-SHA256.
    pub fn make_host_code(&self, message: &[u8]) -> Vec<u8> {
        hmac::sign(&self.host_codes, message).as_ref().to_vec()
    }

    /// Compares a code in a time that reveals nothing about it.
    pub fn verify_host_code(&self, message: &[u8], code: &[u8]) -> bool {
        hmac::verify(&self.host_codes, message, code).is_ok()
    }

    /// The host of a client certificate that this authority signed, PEM, even if it has expired.
    pub fn verify_former(&self, chain: &str) -> Option<Peer> {
        let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).ok()?;
        let is_signed = self.roots().any(|root| {
            x509_parser::parse_x509_certificate(root)
                .is_ok_and(|(_, root)| parsed.verify_signature(Some(root.public_key())).is_ok())
        });
        Peer::parse(&leaf).ok().filter(|_| is_signed)
    }

    /// Signs a client certificate; the answer is the chain, PEM, leaf first.
    pub fn sign_host(
        &self,
        key: &RequestedKey,
        subject: &Subject<'_>,
        now: Timestamp,
    ) -> Result<String, CaError> {
        let failed = CaError::sign("sign the host's certificate");
        let mut params = certificate_params(timestamp(now)? - BACKDATED, timestamp(now)? + HOST_LIFE)?;
        let uri = peer::render_uri(subject).try_into().map_err(failed)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.distinguished_name.push(DnType::CommonName, subject.name);
        params.distinguished_name.push(peer::key_time_attribute(), peer::render_key_time(subject.key_time));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let public_key = SubjectPublicKeyInfo::from_der(&key.0).map_err(failed)?;
        let certificate = params.signed_by(&public_key, &self.issuer).map_err(failed)?;
        Ok(format!("{}{}", certificate.pem(), self.certificate))
    }
}

/// A key of its own, so that no code tells anything about the key that signs.
fn derive_host_codes(key: &KeyPair) -> hmac::Key {
    let root = hmac::Key::new(hmac::HMAC_SHA256, &key.serialize_der());
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"tokens of installed hosts").as_ref())
}

fn first_certificate(pem: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----\n";
    pem.find(END).map_or(pem, |end| &pem[..end + END.len()])
}

fn timestamp(at: Timestamp) -> Result<OffsetDateTime, CaError> {
    OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| CaError::Clock)
}

/// Parameters that all certificates share.
fn certificate_params(
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
) -> Result<CertificateParams, CaError> {
    let mut serial = [0; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut serial).map_err(|_| {
        CaError::Sign { attempt: "draw a serial number", source: rcgen::Error::RingUnspecified }
    })?;
    // The first bit is cleared, because it would make the number negative.
    serial[0] &= 0x7f;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = not_before;
    params.not_after = not_after;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

#[cfg(test)]
mod tests;
