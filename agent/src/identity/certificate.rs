//! The certificates that the coordinator gives to a host, and the names in them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::ground::failure::Failure;

/// The URI in a host's certificate is `baremetal://NAMESPACE/TPMHASH/ROLE`; the
/// name of its inventory is the subject's common name.
pub(super) const SCHEME: &str = "baremetal://";

/// The rights of a certificate, by its URI; each role has its own file.
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

/// A certificate and its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub role: Role,
    /// PEM, leaf first.
    pub chain: String,
    /// `namespace/name` of the inventory, if the certificate has the name.
    pub inventory: Option<String>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
}

impl Certificate {
    /// Parses a chain for the key whose public part is `public_key`.
    pub fn parse(chain: &str, public_key: &[u8]) -> Result<Self, Failure> {
        let leaf =
            CertificateDer::from_pem_slice(chain.as_bytes()).map_err(|error| invalid(&error.to_string()))?;
        let (_, leaf) =
            x509_parser::parse_x509_certificate(&leaf).map_err(|error| invalid(&error.to_string()))?;
        if leaf.public_key().raw != public_key {
            let message = "the certificate is for another key than this host's";
            return Err(Failure::refused(message, ""));
        }
        let (namespace, role) =
            parse_names(&leaf).ok_or_else(|| invalid("it has no URI baremetal://NAMESPACE/TPMHASH/ROLE"))?;
        let name = leaf.subject().iter_common_name().find_map(|name| name.as_str().ok());
        let validity = leaf.validity();
        let [not_before, not_after] = [validity.not_before, validity.not_after]
            .map(|time| UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0)));
        Ok(Self {
            role,
            chain: chain.to_owned(),
            inventory: name.map(|name| format!("{namespace}/{name}")),
            not_before,
            not_after,
        })
    }

    pub fn is_valid(&self, now: SystemTime) -> bool {
        now < self.not_after
    }

    /// Two thirds of the certificate's life; at this time the host asks for the next one.
    pub fn renew_at(&self) -> SystemTime {
        self.not_before + self.life() * 2 / 3
    }

    pub fn life(&self) -> Duration {
        self.not_after.duration_since(self.not_before).unwrap_or(Duration::ZERO)
    }
}

fn invalid(reason: &str) -> Failure {
    Failure::refused(format!("the certificate is invalid: {reason}"), "")
}

/// Namespace and role of the first URI with [`SCHEME`].
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
