//! The certificates that the coordinator gives to a host, and what their names say.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use super::IdentityError;

/// The URI in a host's certificate is `baremetal://NAMESPACE/TPMHASH/ROLE`; the
/// name of its inventory is the subject's common name.
pub(super) const SCHEME: &str = "baremetal://";

/// What a certificate allows, by its URI; each role has its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Live,
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

    pub(super) const fn file_name(self) -> &'static str {
        match self {
            Self::Live => "live.pem",
            Self::Installed => "installed.pem",
        }
    }
}

/// A certificate and the time it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
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
    pub fn is_valid(&self, now: SystemTime) -> bool {
        now < self.not_after
    }

    /// Two thirds of its life: the time to ask for the next one.
    pub fn renew_at(&self) -> SystemTime {
        self.not_before + self.life() * 2 / 3
    }

    pub(super) fn life(&self) -> Duration {
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

pub(super) fn parse_uri(uri: &str) -> Option<(String, Role)> {
    let [namespace, hash, role] = uri.strip_prefix(SCHEME)?.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_named = !namespace.is_empty() && !hash.is_empty();
    is_named.then_some((namespace.to_owned(), Role::parse(role)?))
}
