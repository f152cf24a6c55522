//! Certificates made on the spot: one authority per control plane, elliptic keys.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};

use crate::registry::sha256;

/// Making a certificate failed.
#[derive(Debug, thiserror::Error)]
#[error("make a certificate for {subject}")]
pub struct Error {
    subject: String,
    source: rcgen::Error,
}

/// A certificate with its private key, both PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    /// The private key, PKCS 8.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(…)")
    }
}

pub struct Authority {
    pair: Pair,
    issuer: Issuer<'static, KeyPair>,
    pin: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.pin)
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn new(name: &str) -> Result<Self, Error> {
        let failed = |source| Error { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(Self {
            pin: sha256(&key.subject_public_key_info()),
            pair: pair(&certificate, &key),
            issuer: Issuer::new(params, key),
        })
    }

    /// Its certificate and key: a controller manager signs with them.
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// What kubeadm calls `caCertHashes`: `sha256:` and the hash of the public key's PKIX DER.
    pub fn pin(&self) -> &str {
        &self.pin
    }

    /// A server certificate for localhost, kubernetes, 127.0.0.1 and `addresses`.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn server(&self, name: &str, addresses: &[IpAddr]) -> Result<Pair, Error> {
        let mut params = params(name, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let localhost =
            "localhost".try_into().map_err(|source| Error { subject: name.to_owned(), source })?;
        // As kubeadm has it: hosts ask their own API server by this name.
        let kubernetes =
            "kubernetes".try_into().map_err(|source| Error { subject: name.to_owned(), source })?;
        params.subject_alt_names = vec![
            SanType::DnsName(localhost),
            SanType::DnsName(kubernetes),
            SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
        ];
        let further = addresses.iter().copied().map(SanType::IpAddress);
        params.subject_alt_names.extend(further);
        self.sign(name, params)
    }

    /// A client certificate: Kubernetes takes the common name as user, the organisation as group.
    /// One group only, as rcgen keeps one organisation.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn client(&self, user: &str, group: &str) -> Result<Pair, Error> {
        let mut params = params(user, Some(group));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(user, params)
    }

    fn sign(&self, subject: &str, mut params: CertificateParams) -> Result<Pair, Error> {
        let failed = |source| Error { subject: subject.to_owned(), source };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(pair(&certificate, &key))
    }
}

/// The key pair that signs service-account tokens: public and private part.
#[derive(Clone)]
pub struct ServiceAccountKeys {
    /// PEM of the public key.
    pub public: String,
    /// PEM of the private key, PKCS 8.
    pub private: String,
}

impl ServiceAccountKeys {
    /// New ones.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn new() -> Result<Self, Error> {
        let key =
            KeyPair::generate().map_err(|source| Error { subject: "service accounts".to_owned(), source })?;
        Ok(Self { public: key.public_key_pem(), private: key.serialize_pem() })
    }
}

fn params(name: &str, organisation: Option<&str>) -> CertificateParams {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    if let Some(organisation) = organisation {
        subject.push(DnType::OrganizationName, organisation);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params
}

fn pair(certificate: &Certificate, key: &KeyPair) -> Pair {
    Pair { certificate: certificate.pem(), key: key.serialize_pem() }
}
