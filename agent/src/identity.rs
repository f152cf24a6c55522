//! Who this host is: a P-256 key made here from the system's randomness, and
//! the certificates that the coordinator gave for it.
//!
//! It is the key of the TLS client, and on a host without TPM also its identity
//! (SHA-256 of the public part). On a host that registered with a TPM the identity
//! is the endorsement key, whose public part is kept beside it. The key never
//! leaves the host: its files are 0600 in a 0700 directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::proof;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SigningKey as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::time::Instant;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::durable::{self, DurableError};
use crate::error::NextAction;

const KEY: &str = "key.pem";
/// PKIX DER; only on a host whose identity is in its TPM.
const ENDORSEMENT_KEY: &str = "endorsement-key.der";
/// No RSA key of a TPM is longer in this form.
const ENDORSEMENT_KEY_BYTES: usize = 1024;
/// The URI in a host's certificate is `baremetal://NAMESPACE/TPMHASH/ROLE`; the
/// name of its inventory is the subject's common name.
const SCHEME: &str = "baremetal://";

/// Why the host has no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Key or certificate cannot be kept.
    #[error("cannot keep the identity")]
    Keep(#[from] DurableError),
    /// The key file holds no P-256 key.
    #[error("{path} holds no P-256 key", path = path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rcgen::Error,
    },
    /// The file of the endorsement key is damaged.
    #[error("{path} holds no public key", path = path.display())]
    EndorsementKey {
        /// Which file.
        path: PathBuf,
    },
    /// No randomness, or a signature failed.
    #[error("cannot {attempt} with the identity key")]
    Cryptography {
        /// What was tried.
        attempt: &'static str,
        /// Why.
        source: rcgen::Error,
    },
    /// The coordinator's answer is no certificate of a host.
    #[error("the certificate is invalid: {reason}")]
    Certificate {
        /// The error of the parser.
        reason: String,
    },
    /// The certificate belongs to another key.
    #[error("the certificate is for another key than this host's")]
    ForeignCertificate,
}

impl NextAction for IdentityError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Key { .. } | Self::EndorsementKey { .. } => {
                Some("restore the file, or wipe the disk (wipefs -a) and boot a seed ISO to install again")
            }
            Self::Read { .. } | Self::Keep(_) => {
                Some("check the host's disk and free space on its persistent partition")
            }
            Self::Cryptography { .. } | Self::Certificate { .. } | Self::ForeignCertificate => None,
        }
    }
}

/// What a certificate allows, by its URI; each role has its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Register, install, report.
    Live,
    /// Receive plans.
    Installed,
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "live" => Some(Self::Live),
            "installed" => Some(Self::Installed),
            _ => None,
        }
    }

    const fn file_name(self) -> &'static str {
        match self {
            Self::Live => "live.pem",
            Self::Installed => "installed.pem",
        }
    }
}

/// A certificate and the time it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// What it allows.
    pub role: Role,
    /// Leaf first, PEM.
    pub chain: String,
    /// `namespace/name` of the inventory, where its name is known.
    pub inventory: Option<String>,
    /// First moment of its life.
    pub not_before: SystemTime,
    /// Last moment of its life.
    pub not_after: SystemTime,
}

impl Certificate {
    /// Parses a chain for the key whose public part is `public_key`.
    ///
    /// # Errors
    /// [`IdentityError::Certificate`], [`IdentityError::ForeignCertificate`].
    pub fn parse(chain: &str, public_key: &[u8]) -> Result<Self, IdentityError> {
        let failed = |reason: String| IdentityError::Certificate { reason };
        let leaf =
            CertificateDer::from_pem_slice(chain.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let (_, leaf) =
            x509_parser::parse_x509_certificate(&leaf).map_err(|error| failed(error.to_string()))?;
        if leaf.public_key().raw != public_key {
            return Err(IdentityError::ForeignCertificate);
        }
        let (namespace, role) = parse_names(&leaf)
            .ok_or_else(|| failed("it has no URI baremetal://NAMESPACE/TPMHASH/ROLE".to_owned()))?;
        let name = leaf.subject().iter_common_name().find_map(|name| name.as_str().ok());
        let moment = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok(Self {
            role,
            chain: chain.to_owned(),
            inventory: name.map(|name| format!("{namespace}/{name}")),
            not_before: moment(leaf.validity().not_before.timestamp()),
            not_after: moment(leaf.validity().not_after.timestamp()),
        })
    }

    /// Whether it is valid at `now`.
    #[must_use]
    pub fn is_valid(&self, now: SystemTime) -> bool {
        now < self.not_after
    }

    /// Two thirds of its life: the time to ask for the next one.
    #[must_use]
    pub fn renew_at(&self) -> SystemTime {
        self.not_before + self.life() * 2 / 3
    }

    fn life(&self) -> Duration {
        self.not_after.duration_since(self.not_before).unwrap_or_default()
    }
}

/// Namespace and role of the first URI of ours.
fn parse_names(leaf: &X509Certificate<'_>) -> Option<(String, Role)> {
    let names = leaf.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => parse_uri(uri),
        _ => None,
    })
}

fn parse_uri(uri: &str) -> Option<(String, Role)> {
    let [namespace, hash, role] = uri.strip_prefix(SCHEME)?.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_named = !namespace.is_empty() && !hash.is_empty();
    is_named.then_some((namespace.to_owned(), Role::parse(role)?))
}

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
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load_or_make_for_tpm(directory: &Path, endorsement_key: Vec<u8>) -> Result<Self, IdentityError> {
        let mut identity = Self::load_or_make(directory)?;
        if identity.endorsement_key.as_ref() != Some(&endorsement_key) {
            identity.write_file(ENDORSEMENT_KEY, &endorsement_key)?;
            identity.endorsement_key = Some(endorsement_key);
        }
        Ok(identity)
    }

    /// Loads the key of `directory` or makes one there.
    ///
    /// # Errors
    /// [`IdentityError`].
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
    ///
    /// # Errors
    /// [`IdentityError::Keep`].
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
    #[must_use]
    pub fn public_key(&self) -> Vec<u8> {
        self.key.subject_public_key_info()
    }

    /// The endorsement key, PKIX DER, where the identity of this host is in its
    /// TPM.
    #[must_use]
    pub fn endorsement_key(&self) -> Option<&[u8]> {
        self.endorsement_key.as_deref()
    }

    /// `spec.tpmHash`.
    #[must_use]
    pub fn hash(&self) -> String {
        match &self.endorsement_key {
            Some(endorsement_key) => proof::identity(endorsement_key),
            None => proof::identity(&self.public_key()),
        }
    }

    /// Signs a binding (`proto::proof`), ASN.1 DER.
    ///
    /// # Errors
    /// [`IdentityError::Cryptography`].
    pub fn prove_possession(&self, binding: &[u8; 32]) -> Result<Vec<u8>, IdentityError> {
        self.key.sign(binding).map_err(|source| IdentityError::Cryptography { attempt: "sign", source })
    }

    /// A PKCS#10 request for the key, DER. The coordinator picks the names.
    ///
    /// # Errors
    /// [`IdentityError::Cryptography`].
    pub fn create_request(&self) -> Result<Vec<u8>, IdentityError> {
        CertificateParams::default()
            .serialize_request(&self.key)
            .map(|request| request.der().to_vec())
            .map_err(|source| IdentityError::Cryptography { attempt: "request a certificate", source })
    }

    /// The private key for TLS.
    #[must_use]
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()))
    }

    /// Keeps a certificate. One for the live system ends every older one.
    ///
    /// # Errors
    /// [`IdentityError::Keep`].
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
    #[must_use]
    pub fn certificate(&self, now: SystemTime) -> Option<Certificate> {
        self.kept_certificates().find(|certificate| match self.age(certificate) {
            Some(age) => age < certificate.life(),
            None => certificate.is_valid(now),
        })
    }

    /// How long ago this process received it.
    #[must_use]
    pub fn age(&self, certificate: &Certificate) -> Option<Duration> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, at) = received.as_ref().filter(|(chain, _)| *chain == certificate.chain)?;
        Some(at.elapsed())
    }

    /// How long until it is renewed: never longer than for a fresh one.
    #[must_use]
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
mod tests {
    use super::fake::{issue_certificate, january_day as day};
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_key_persists_with_mode_0600() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        assert!(Identity::load(&path).unwrap().is_none());
        let made = Identity::load_or_make(&path).unwrap();
        let again = Identity::load_or_make(&path).unwrap();
        assert_eq!(made.hash(), again.hash());
        let permissions = fs::metadata(path.join(KEY)).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, 0o600);
    }

    #[test]
    fn the_identity_of_a_tpm_goes_with_the_key() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let software = Identity::load_or_make(here.path()).unwrap();
        assert_eq!(software.endorsement_key(), None);
        let held = Identity::load_or_make_for_tpm(here.path(), vec![7]).unwrap();
        assert_eq!(held.public_key(), software.public_key(), "the key of the TLS client stays");
        assert_eq!(held.hash(), proof::identity(&[7]));
        let copied = held.copy_to(there.path()).unwrap();
        let loaded = Identity::load(there.path()).unwrap().unwrap();
        assert_eq!((loaded.hash(), loaded.public_key()), (copied.hash(), held.public_key()));
        software.copy_to(there.path()).unwrap();
        let loaded = Identity::load(there.path()).unwrap().unwrap();
        assert_eq!(loaded.hash(), software.hash(), "a software key leaves no endorsement key");
        fs::write(here.path().join(ENDORSEMENT_KEY), "").unwrap();
        assert!(matches!(Identity::load(here.path()), Err(IdentityError::EndorsementKey { .. })));
    }

    #[test]
    fn a_proof_is_verified_by_the_public_key() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_make(directory.path()).unwrap();
        let binding = proof::binding(&[1; 32], &[2; 32], &identity.public_key());
        let signature = identity.prove_possession(&binding).unwrap();
        let verifier = ring::signature::UnparsedPublicKey::new(
            &ring::signature::ECDSA_P256_SHA256_ASN1,
            identity.key.public_key_raw(),
        );
        assert!(verifier.verify(&binding, &signature).is_ok());
        assert!(verifier.verify(&[0; 32], &signature).is_err());
    }

    #[test]
    fn the_installed_certificate_wins_while_it_holds() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_make(directory.path()).unwrap();
        assert_eq!(identity.certificate(day(2)), None);
        let parse =
            |role| Certificate::parse(&issue_certificate(&identity, role), &identity.public_key()).unwrap();
        let (live, installed) = (parse("live"), parse("installed"));
        assert_eq!(live.renew_at(), day(3));
        assert_eq!(live.inventory.as_deref(), Some("fleet/host-1"));
        identity.keep_certificate(&live).unwrap();
        assert_eq!(identity.certificate(day(2)).unwrap().role, Role::Live);
        identity.keep_certificate(&installed).unwrap();
        assert_eq!(identity.certificate(day(2)).unwrap().role, Role::Installed);
        assert_eq!(identity.certificate(day(5)).unwrap().role, Role::Installed, "it was received just now");
        let restarted = Identity::load(directory.path()).unwrap().unwrap();
        assert_eq!(restarted.certificate(day(2)).unwrap().role, Role::Installed);
        assert_eq!(restarted.certificate(day(5)), None, "expired");
        assert_eq!(identity.kept_certificates().count(), 2, "yet kept");
        identity.keep_certificate(&live).unwrap();
        assert_eq!(identity.certificate(day(2)).unwrap().role, Role::Live, "a new registration starts over");
    }

    #[tokio::test(start_paused = true)]
    async fn life_and_renewal_follow_the_receipt() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_make(directory.path()).unwrap();
        let chain = issue_certificate(&identity, "installed");
        let certificate = Certificate::parse(&chain, &identity.public_key()).unwrap();
        let (life, years) = (certificate.life(), Duration::from_hours(2 * 365 * 24));
        let behind = certificate.not_before - years;
        assert_eq!(identity.renewal_wait(&certificate, behind), life * 2 / 3, "not two years");
        identity.keep_certificate(&certificate).unwrap();
        for now in [behind, certificate.not_before, certificate.not_after + years] {
            assert_eq!(identity.certificate(now).as_ref(), Some(&certificate));
            assert_eq!(identity.renewal_wait(&certificate, now), life * 2 / 3);
        }
        tokio::time::advance(life / 2).await;
        assert_eq!(identity.renewal_wait(&certificate, behind), life / 6);
        tokio::time::advance(life).await;
        assert_eq!(identity.certificate(behind), None, "its life is over");
    }

    #[test]
    fn the_uri_names_namespace_and_role() {
        for (uri, want) in [
            ("baremetal://fleet/0011/live", Some(("fleet", Role::Live))),
            ("baremetal://fleet/0011/installed", Some(("fleet", Role::Installed))),
            ("baremetal://fleet/0011/admin", None),
            ("baremetal://fleet/0011", None),
            ("baremetal://fleet/host-1/uid/live", None),
            ("baremetal:///0011/live", None),
            ("https://fleet/0011/live", None),
        ] {
            let parsed = parse_uri(uri);
            assert_eq!(parsed.as_ref().map(|(namespace, role)| (namespace.as_str(), *role)), want, "{uri}");
        }
    }

    #[test]
    fn a_certificate_for_another_key_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = Identity::load_or_make(one.path()).unwrap();
        let other = Identity::load_or_make(other.path()).unwrap();
        assert!(matches!(
            Certificate::parse(&issue_certificate(&other, "live"), &one.public_key()),
            Err(IdentityError::ForeignCertificate)
        ));
        for chain in ["nonsense".to_owned(), issue_certificate(&one, "other-role")] {
            assert!(Certificate::parse(&chain, &one.public_key()).is_err());
        }
    }
}
