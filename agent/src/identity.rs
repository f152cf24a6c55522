//! The identity of this host: a P-256 key made from the system's randomness, and the certificates
//! that the coordinator gave for it.
//!
//! The TLS client uses the key, which is replaced at each clean and each install, because a tenant
//! may have copied it. On a host that registered with a TPM, the endorsement key is the identity, and
//! its public part is stored as well; on a host without TPM, the SHA-256 of the public part of its
//! first key is the identity. The P-256 key never leaves the host: its files are 0600 in a 0700
//! directory.

mod certificate;
pub mod tpm;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use proto::proof;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::time::Instant;

use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, describe_cause};
use crate::ground::paths::BALLAST;

pub use certificate::{Certificate, Role};

const KEY: &str = "key.pem";
/// PKIX DER; the file exists only on a host whose identity is in its TPM.
const ENDORSEMENT_KEY: &str = "endorsement-key.der";
/// PKIX DER; the file exists only on a host without TPM whose first key was replaced.
const FIRST_KEY: &str = "first-key.der";
/// A key that takes the place of the present one as soon as it has a certificate.
const NEXT_KEY: &str = "next-key.pem";
/// The PKIX form of every key of a host is shorter.
const PUBLIC_KEY_BYTES: usize = 1024;

/// The host's key, and the directory of its files.
#[derive(Debug)]
pub struct Identity {
    key: KeyPair,
    /// PKIX DER; set if the identity is in the TPM.
    endorsement_key: Option<Vec<u8>>,
    /// PKIX DER; set if another software key has replaced the first one, whose hash is the identity.
    first_key: Option<Vec<u8>>,
    directory: PathBuf,
    received: Mutex<Option<Received>>,
}

/// The certificate that this process received last.
#[derive(Clone, Debug)]
struct Received {
    role: Role,
    chain: String,
    /// Time of the receipt, because the calendar clock may be wrong.
    at: Instant,
    /// Why it is in memory only.
    failure: Option<Failure>,
}

/// A key that has no certificate yet.
#[derive(Debug)]
pub struct NextKey(KeyPair);

impl NextKey {
    /// Makes a key in memory.
    pub fn generate() -> Result<Self, Failure> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(|error| cryptography_failure("make a key pair", &error))
    }

    /// Public part, PKIX DER.
    pub fn public_key(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// A PKCS#10 request for the key, DER.
    pub fn create_request(&self) -> Result<Vec<u8>, Failure> {
        create_request(&self.0)
    }
}

impl Identity {
    /// Loads the key of `directory`; `None` if there is none.
    pub fn load(directory: &Path) -> Result<Option<Self>, Failure> {
        let Some(key) = read_key(&directory.join(KEY))? else { return Ok(None) };
        let endorsement_key = read_public_key(&directory.join(ENDORSEMENT_KEY))?;
        let first_key = read_public_key(&directory.join(FIRST_KEY))?;
        let mut identity = Self::new(key, endorsement_key, first_key, directory);
        // A power cut may come between the certificate of the next key and its place.
        if let Some(next) = read_key(&directory.join(NEXT_KEY))? {
            let former = std::mem::replace(&mut identity.key, next);
            if identity.kept_certificates().next().is_none() {
                identity.key = former;
            }
        }
        Ok(Some(identity))
    }

    fn new(
        key: KeyPair,
        endorsement_key: Option<Vec<u8>>,
        first_key: Option<Vec<u8>>,
        directory: &Path,
    ) -> Self {
        let directory = directory.to_owned();
        Self { key, endorsement_key, first_key, directory, received: Mutex::default() }
    }

    /// Like [`Identity::load_or_make`], for a host whose identity is the endorsement key with this
    /// public part, PKIX DER.
    pub fn load_or_make_for_tpm(directory: &Path, endorsement_key: Vec<u8>) -> Result<Self, Failure> {
        let mut identity = Self::load_or_make(directory)?;
        if identity.endorsement_key.as_ref() != Some(&endorsement_key) {
            identity.write_file(ENDORSEMENT_KEY, &endorsement_key)?;
            identity.endorsement_key = Some(endorsement_key);
        }
        Ok(identity)
    }

    /// Loads the key of `directory`, or makes one.
    pub fn load_or_make(directory: &Path) -> Result<Self, Failure> {
        if let Some(identity) = Self::load(directory)? {
            return Ok(identity);
        }
        let identity = Self::new(NextKey::generate()?.0, None, None, directory);
        identity.write_file(KEY, identity.key.serialize_pem().as_bytes())?;
        Ok(identity)
    }

    /// Stores the same identity in another directory, with its certificates.
    pub fn copy_to(&self, directory: &Path) -> Result<Self, Failure> {
        let copy = self.copy_names_to(directory)?;
        copy.write_file(KEY, copy.key.serialize_pem().as_bytes())?;
        for certificate in self.kept_certificates() {
            copy.write_file(certificate.role.file_name(), certificate.chain.as_bytes())?;
        }
        Ok(copy)
    }

    /// Stores the same identity with one certificate in another directory, which may have a former key
    /// of the host: at each moment the directory has a key with its certificate.
    pub fn hand_over(&self, directory: &Path, certificate: &Certificate) -> Result<(), Failure> {
        let copy = self.copy_names_to(directory)?;
        copy.keep_next(certificate)
    }

    fn copy_names_to(&self, directory: &Path) -> Result<Self, Failure> {
        let pem = self.key.serialize_pem();
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &PKCS_ECDSA_P256_SHA256)
            .map_err(|error| cryptography_failure("copy the key pair", &error))?;
        let copy = Self::new(key, self.endorsement_key.clone(), self.first_key.clone(), directory);
        for (name, public_key) in [(ENDORSEMENT_KEY, &copy.endorsement_key), (FIRST_KEY, &copy.first_key)] {
            match public_key {
                Some(public_key) => copy.write_file(name, public_key)?,
                None => durable::remove(&directory.join(name))?,
            }
        }
        Ok(copy)
    }

    /// Stores the key of `self` with its certificate, in place of another key.
    fn keep_next(&self, certificate: &Certificate) -> Result<(), Failure> {
        let pem = self.key.serialize_pem();
        self.write_file(NEXT_KEY, pem.as_bytes())?;
        self.write_chain(certificate.role, &certificate.chain)?;
        self.write_file(KEY, pem.as_bytes())?;
        self.receive(certificate, None);
        durable::remove(&self.directory.join(NEXT_KEY))
    }

    /// Replaces the key by one that has a certificate.
    pub fn replace_key(&mut self, next: NextKey, certificate: &Certificate) -> Result<(), Failure> {
        self.keep_first_key()?;
        // The next key of an earlier time may be in use.
        self.write_file(KEY, self.key.serialize_pem().as_bytes())?;
        let former = std::mem::replace(&mut self.key, next.0);
        // Without its file the next key would be lost with this process.
        self.keep_next(certificate).inspect_err(|_| self.key = former)
    }

    /// Replaces a key whose certificate the coordinator refuses. A key without certificate is kept,
    /// because an operator may be about to accept it.
    pub fn abandon_key(&mut self) -> Result<(), Failure> {
        if self.kept_certificates().next().is_none() {
            return Ok(());
        }
        self.keep_first_key()?;
        self.key = NextKey::generate()?.0;
        durable::remove(&self.directory.join(NEXT_KEY))?;
        self.write_file(KEY, self.key.serialize_pem().as_bytes())
    }

    /// Keeps the key whose hash is the identity of a host without TPM.
    fn keep_first_key(&mut self) -> Result<(), Failure> {
        if self.endorsement_key.is_none() && self.first_key.is_none() {
            let first_key = self.public_key();
            self.write_file(FIRST_KEY, &first_key)?;
            self.first_key = Some(first_key);
        }
        Ok(())
    }

    /// Public part of the key of the TLS client, PKIX DER.
    pub fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    /// The endorsement key, PKIX DER, if the identity of this host is in its TPM.
    pub fn endorsement_key(&self) -> Option<&[u8]> {
        self.endorsement_key.as_deref()
    }

    /// The first software key, PKIX DER, if another one has replaced it.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.first_key.as_deref()
    }

    /// `spec.tpmHash`.
    pub fn hash(&self) -> String {
        match self.endorsement_key.as_ref().or(self.first_key.as_ref()) {
            Some(named) => proof::identity(named),
            None => proof::identity(&self.public_key()),
        }
    }

    /// Signs a binding (`proto::proof`), ASN.1 DER.
    pub fn prove_possession(&self, binding: &[u8; 32]) -> Result<Vec<u8>, Failure> {
        self.key.sign(binding).map_err(|error| cryptography_failure("sign", &error))
    }

    /// A PKCS#10 request for the key, DER. The coordinator picks the names.
    pub fn create_request(&self) -> Result<Vec<u8>, Failure> {
        create_request(&self.key)
    }

    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Keeps a certificate in memory, and stores it if its file can be written. A certificate of the
    /// live system invalidates every older one.
    pub fn keep_certificate(&self, certificate: &Certificate) {
        let failure = self.write_chain(certificate.role, &certificate.chain).err();
        if let Some(failure) = &failure {
            tracing::warn!(%failure, "certificate kept in memory only");
        }
        self.receive(certificate, failure);
    }

    fn receive(&self, certificate: &Certificate, failure: Option<Failure>) {
        let Certificate { role, chain, .. } = certificate;
        let received = Received { role: *role, chain: chain.clone(), at: Instant::now(), failure };
        *self.lock_received() = Some(received);
    }

    /// Stores the last certificate if it is in memory only.
    pub fn store_received(&self) {
        if let Some(received) = &mut *self.lock_received()
            && received.failure.is_some()
        {
            received.failure = self.write_chain(received.role, &received.chain).err();
        }
    }

    fn write_chain(&self, role: Role, chain: &str) -> Result<(), Failure> {
        self.write_file(role.file_name(), chain.as_bytes())?;
        match role {
            Role::Live => durable::remove(&self.directory.join(Role::Installed.file_name())),
            Role::Installed => Ok(()),
        }
    }

    /// Why the last certificate is in memory only; `None` if it is stored.
    pub fn write_failure(&self) -> Option<Failure> {
        self.lock_received().as_ref()?.failure.clone()
    }

    fn lock_received(&self) -> MutexGuard<'_, Option<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The strongest certificate that is valid at `now`. A certificate that this process received
    /// is valid for its whole life from then on, because the calendar clock may be wrong.
    pub fn certificate(&self, now: SystemTime) -> Option<Certificate> {
        self.kept_certificates().find(|certificate| match self.age(certificate) {
            Some(age) => age < certificate.life(),
            None => certificate.is_valid(now),
        })
    }

    /// Time since this process received the certificate.
    fn age(&self, certificate: &Certificate) -> Option<Duration> {
        let received = self.lock_received();
        let same = received.as_ref().filter(|received| received.chain == certificate.chain)?;
        Some(same.at.elapsed())
    }

    /// Time until the renewal of the certificate, at most the time for a fresh one.
    pub fn renewal_wait(&self, certificate: &Certificate, now: SystemTime) -> Duration {
        let fresh = certificate.life() * 2 / 3;
        match self.age(certificate) {
            Some(age) => fresh.saturating_sub(age),
            None => certificate.renew_at().duration_since(now).unwrap_or(Duration::ZERO).min(fresh),
        }
    }

    /// Every kept certificate, the strongest first, including expired ones. A damaged file counts as
    /// missing, because the host registers again.
    pub fn kept_certificates(&self) -> impl Iterator<Item = Certificate> {
        let newest = self.lock_received().clone();
        let is_live = newest.as_ref().is_some_and(|newest| newest.role == Role::Live);
        let roles: &[Role] = if is_live { &[Role::Live] } else { &[Role::Installed, Role::Live] };
        roles.iter().filter_map(move |&role| {
            let in_memory = newest.as_ref().filter(|newest| newest.role == role);
            let chain = match in_memory {
                Some(newest) => newest.chain.clone(),
                None => fs::read_to_string(self.directory.join(role.file_name())).ok()?,
            };
            Certificate::parse(&chain, &self.public_key())
                .inspect_err(|error| tracing::warn!(%error, ?role, "stored certificate ignored"))
                .ok()
        })
    }

    fn write_file(&self, name: &str, contents: &[u8]) -> Result<(), Failure> {
        durable::create_directory(&self.directory)?;
        let ballast = self.directory.with_file_name(BALLAST);
        durable::write_with_ballast(&self.directory.join(name), contents, &ballast)
            .context("cannot keep the identity")
    }
}

const RESTORE: &str =
    "restore the file, or install the host as a new one (\"Wipe a disk\" in docs/operations.md)";

fn cryptography_failure(attempt: &str, error: &rcgen::Error) -> Failure {
    Failure::input_output(describe_cause(&format!("cannot {attempt} with the identity key"), error), "")
}

fn create_request(key: &KeyPair) -> Result<Vec<u8>, Failure> {
    CertificateParams::default()
        .serialize_request(key)
        .map(|request| request.der().to_vec())
        .map_err(|error| cryptography_failure("request a certificate", &error))
}

fn read_key(path: &Path) -> Result<Option<KeyPair>, Failure> {
    let Some(pem) = durable::read_text(path)? else { return Ok(None) };
    let key = KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &PKCS_ECDSA_P256_SHA256).map_err(|error| {
        let message = format!("{} holds no P-256 key: {error}", path.display());
        Failure::input_output(message, RESTORE)
    })?;
    Ok(Some(key))
}

fn read_public_key(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let key = durable::read(path)?;
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > PUBLIC_KEY_BYTES) {
        return Err(Failure::input_output(format!("{} holds no public key", path.display()), RESTORE));
    }
    Ok(key)
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
