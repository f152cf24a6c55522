//! Who this host is: a P-256 key made here from the system's randomness, and
//! the certificates that the coordinator gave for it.
//!
//! It is the key of the TLS client, and on a host without TPM also its identity
//! (SHA-256 of the public part). On a host that registered with a TPM the identity
//! is the endorsement key, whose public part is kept beside it. The key never
//! leaves the host: its files are 0600 in a 0700 directory.

mod certificate;
mod error;
pub mod tpm;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use proto::proof;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::time::Instant;

use crate::ground::durable;

pub use certificate::{Certificate, Role};
pub use error::IdentityError;

const KEY: &str = "key.pem";
/// PKIX DER; only on a host whose identity is in its TPM.
const ENDORSEMENT_KEY: &str = "endorsement-key.der";
/// No RSA key of a TPM is longer in this form.
const ENDORSEMENT_KEY_BYTES: usize = 1024;

/// The host's key and where it is kept.
#[derive(Debug)]
pub struct Identity {
    key: KeyPair,
    /// PKIX DER, where the identity is in the TPM.
    endorsement_key: Option<Vec<u8>>,
    directory: PathBuf,
    /// The chain that this process received last, and when: the clock of the
    /// calendar may be wrong.
    received: Mutex<Option<(String, Instant)>>,
}

impl Identity {
    /// Loads the key of `directory`; nothing when there is none.
    ///
    /// # Errors
    /// [`IdentityError`] when there is one that cannot be used.
    pub fn load(directory: &Path) -> Result<Option<Self>, IdentityError> {
        let path = directory.join(KEY);
        let pem = match fs::read_to_string(&path) {
            Ok(pem) => pem,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityError::Read { path, source }),
        };
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &PKCS_ECDSA_P256_SHA256)
            .map_err(|source| IdentityError::Key { path, source })?;
        let endorsement_key = read_endorsement_key(directory.join(ENDORSEMENT_KEY))?;
        Ok(Some(Self { key, endorsement_key, directory: directory.to_owned(), received: Mutex::default() }))
    }

    /// As [`Identity::load_or_make`], for a host whose identity is the endorsement
    /// key with that public part, PKIX DER.
    pub fn load_or_make_for_tpm(directory: &Path, endorsement_key: Vec<u8>) -> Result<Self, IdentityError> {
        let mut identity = Self::load_or_make(directory)?;
        if identity.endorsement_key.as_ref() != Some(&endorsement_key) {
            identity.write_file(ENDORSEMENT_KEY, &endorsement_key)?;
            identity.endorsement_key = Some(endorsement_key);
        }
        Ok(identity)
    }

    /// Loads the key of `directory` or makes one there.
    pub fn load_or_make(directory: &Path) -> Result<Self, IdentityError> {
        if let Some(identity) = Self::load(directory)? {
            return Ok(identity);
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map_err(|source| IdentityError::Cryptography { attempt: "make a key pair", source })?;
        let directory = directory.to_owned();
        let identity = Self { key, endorsement_key: None, directory, received: Mutex::default() };
        identity.write_file(KEY, identity.key.serialize_pem().as_bytes())?;
        Ok(identity)
    }

    /// The same identity, kept in another directory too.
    pub fn copy_to(&self, directory: &Path) -> Result<Self, IdentityError> {
        let pem = self.key.serialize_pem();
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &PKCS_ECDSA_P256_SHA256)
            .map_err(|source| IdentityError::Cryptography { attempt: "copy the key pair", source })?;
        let endorsement_key = self.endorsement_key.clone();
        let copy = Self { key, endorsement_key, directory: directory.to_owned(), received: Mutex::default() };
        match &copy.endorsement_key {
            Some(endorsement_key) => copy.write_file(ENDORSEMENT_KEY, endorsement_key)?,
            None => durable::remove(&copy.directory.join(ENDORSEMENT_KEY))?,
        }
        copy.write_file(KEY, pem.as_bytes())?;
        Ok(copy)
    }

    /// Public part of the key of the TLS client, PKIX DER.
    pub fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    /// The endorsement key, PKIX DER, where the identity of this host is in its
    /// TPM.
    pub fn endorsement_key(&self) -> Option<&[u8]> {
        self.endorsement_key.as_deref()
    }

    /// `spec.tpmHash`.
    pub fn hash(&self) -> String {
        match &self.endorsement_key {
            Some(endorsement_key) => proof::identity(endorsement_key),
            None => proof::identity(&self.public_key()),
        }
    }

    /// Signs a binding (`proto::proof`), ASN.1 DER.
    pub fn prove_possession(&self, binding: &[u8; 32]) -> Result<Vec<u8>, IdentityError> {
        self.key.sign(binding).map_err(|source| IdentityError::Cryptography { attempt: "sign", source })
    }

    /// A PKCS#10 request for the key, DER. The coordinator picks the names.
    pub fn create_request(&self) -> Result<Vec<u8>, IdentityError> {
        CertificateParams::default()
            .serialize_request(&self.key)
            .map(|request| request.der().to_vec())
            .map_err(|source| IdentityError::Cryptography { attempt: "request a certificate", source })
    }

    /// The private key for TLS.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Keeps a certificate. One for the live system ends every older one.
    pub fn keep_certificate(&self, certificate: &Certificate) -> Result<(), IdentityError> {
        self.write_file(certificate.role.file_name(), certificate.chain.as_bytes())?;
        *self.received.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((certificate.chain.clone(), Instant::now()));
        if certificate.role == Role::Live {
            durable::remove(&self.directory.join(Role::Installed.file_name()))?;
        }
        Ok(())
    }

    /// The strongest certificate that holds at `now`. One that this process
    /// received holds for its whole life since then, whatever the calendar says.
    pub fn certificate(&self, now: SystemTime) -> Option<Certificate> {
        self.kept_certificates().find(|certificate| match self.age(certificate) {
            Some(age) => age < certificate.life(),
            None => certificate.is_valid(now),
        })
    }

    /// How long ago this process received it.
    fn age(&self, certificate: &Certificate) -> Option<Duration> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, at) = received.as_ref().filter(|(chain, _)| *chain == certificate.chain)?;
        Some(at.elapsed())
    }

    /// How long until it is renewed: never longer than for a fresh one.
    pub fn renewal_wait(&self, certificate: &Certificate, now: SystemTime) -> Duration {
        let fresh = certificate.life() * 2 / 3;
        match self.age(certificate) {
            Some(age) => fresh.saturating_sub(age),
            None => certificate.renew_at().duration_since(now).unwrap_or_default().min(fresh),
        }
    }

    /// Every certificate that is kept, the strongest first, also those that do
    /// not hold any more. A file that cannot be understood is as good as none:
    /// the host registers again.
    pub fn kept_certificates(&self) -> impl Iterator<Item = Certificate> {
        [Role::Installed, Role::Live].into_iter().filter_map(|role| {
            let chain = fs::read_to_string(self.directory.join(role.file_name())).ok()?;
            Certificate::parse(&chain, &self.public_key())
                .inspect_err(|error| tracing::warn!(%error, ?role, "ignored a stored certificate"))
                .ok()
        })
    }

    fn write_file(&self, name: &str, contents: &[u8]) -> Result<(), IdentityError> {
        durable::create_directory(&self.directory)?;
        Ok(durable::write(&self.directory.join(name), contents)?)
    }
}

fn read_endorsement_key(path: PathBuf) -> Result<Option<Vec<u8>>, IdentityError> {
    match fs::read(&path) {
        Ok(key) if key.is_empty() || key.len() > ENDORSEMENT_KEY_BYTES => {
            Err(IdentityError::EndorsementKey { path })
        }
        Ok(key) => Ok(Some(key)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Read { path, source }),
    }
}

#[cfg(test)]
pub(crate) mod fake {
    use std::time::UNIX_EPOCH;

    use super::certificate::SCHEME;
    use super::*;
    use rcgen::{BasicConstraints, CertificateSigningRequestParams, DnType, IsCa, Issuer, SanType};

    /// A chain for the key of `identity` that holds for three days of January
    /// 2026 and names the inventory `fleet/host-1`.
    pub(crate) fn issue_certificate(identity: &Identity, role: &str) -> String {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(params, key);
        let request =
            rustls_pki_types::CertificateSigningRequestDer::from(identity.create_request().unwrap());
        let mut request = CertificateSigningRequestParams::from_der(&request).unwrap();
        request.params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        request.params.not_after = rcgen::date_time_ymd(2026, 1, 4);
        let uri = format!("{SCHEME}fleet/{}/{role}", identity.hash()).try_into().unwrap();
        request.params.subject_alt_names = vec![SanType::URI(uri)];
        request.params.distinguished_name.push(DnType::CommonName, "host-1");
        request.signed_by(&issuer).unwrap().pem()
    }

    /// Midnight of that day of January 2026.
    pub(crate) fn january_day(day: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_767_225_600 + (day - 1) * 86_400)
    }
}

#[cfg(test)]
mod tests;
