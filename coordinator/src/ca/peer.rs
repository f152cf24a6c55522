//! The host of a client certificate.
//!
//! A certificate is bound to the identity key of its host, never to a UID, so that the certificate
//! stays valid if a restore or a move recreates the inventory.

use coordinator_api::object::Namespace;
use coordinator_core::host::certified::{KeyTime, ShownKey};
use jiff::Timestamp;
use proto::proof;
use rcgen::DnType;
use x509_parser::der_parser::Oid;
use x509_parser::extensions::GeneralName;
use x509_parser::x509::X509Name;

use super::Subject;

const SCHEME: &str = "baremetal://";
/// serialNumber of X.520: both times of the key, `SINCE.FROM`, seconds since the epoch.
const KEY_TIME: &[u64] = &[2, 5, 4, 5];

/// The rights of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The system of the seed ISO, which may register, install and report.
    Live,
    /// The system on the disk, which may also get plans.
    Installed,
}

impl Role {
    /// Last part of the name in the certificate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Installed => "installed",
        }
    }
}

/// The identity of a host: `spec.tpmHash` and the namespace of its inventory. Keys are sorted in this
/// order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostKey {
    pub tpm_hash: String,
    pub namespace: Namespace,
}

/// The host at the other end, as its certificate states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub key: HostKey,
    /// Name of the inventory when the certificate was signed, for logs and for the first read; it
    /// proves nothing.
    pub name_hint: String,
    pub role: Role,
    /// Lower-case hexadecimal SHA-256 of the certificate's key in PKIX DER.
    pub public_key_hash: String,
    pub key_time: KeyTime,
    /// Serial number, hexadecimal, for logs.
    pub serial: String,
    pub not_after: Timestamp,
}

/// A certificate that names no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Not X.509.
    #[error("the client certificate cannot be read")]
    Certificate,
    /// Signed by our authority, but not in the form that [`Peer`] has.
    #[error("the client certificate names no host")]
    Name,
}

/// The only name in a host's certificate.
pub(super) fn render_uri(subject: &Subject<'_>) -> String {
    let HostKey { namespace, tpm_hash } = subject.key;
    format!("{SCHEME}{namespace}/{tpm_hash}/{}", subject.role.as_str())
}

pub(super) fn key_time_attribute() -> DnType {
    DnType::CustomDnType(KEY_TIME.to_vec())
}

pub(super) fn render_key_time(time: KeyTime) -> String {
    format!("{}.{}", time.since.as_second(), time.from.as_second())
}

fn parse_key_time(subject: &X509Name<'_>) -> Option<KeyTime> {
    let oid = Oid::from(KEY_TIME).ok()?;
    let (since, from) = subject.iter_by_oid(&oid).next()?.as_str().ok()?.split_once('.')?;
    let parse = |text: &str| Timestamp::from_second(text.parse().ok()?).ok();
    Some(KeyTime { since: parse(since)?, from: parse(from)? })
}

fn parse_uri(uri: &str) -> Option<(HostKey, Role)> {
    let mut parts = uri.strip_prefix(SCHEME)?.split('/');
    let key =
        HostKey { namespace: next_part(&mut parts)?.into(), tpm_hash: next_part(&mut parts)?.to_owned() };
    let role = match parts.next()? {
        "live" => Role::Live,
        "installed" => Role::Installed,
        _ => return None,
    };
    parts.next().is_none().then_some((key, role))
}

fn next_part<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<&'a str> {
    parts.next().filter(|part| !part.is_empty())
}

impl Peer {
    /// Reads a certificate that the TLS layer has verified against the authority.
    ///
    /// # Errors
    /// [`PeerError`] unless [`super::Authority::sign_host`] signed the certificate.
    pub fn parse(certificate: &[u8]) -> Result<Self, PeerError> {
        let (_, certificate) =
            x509_parser::parse_x509_certificate(certificate).map_err(|_| PeerError::Certificate)?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| PeerError::Certificate)?
            .ok_or(PeerError::Name)?;
        let [GeneralName::URI(uri)] = names.value.general_names.as_slice() else {
            return Err(PeerError::Name);
        };
        let (key, role) = parse_uri(uri).ok_or(PeerError::Name)?;
        let common_name = certificate.subject().iter_common_name().next();
        let name_hint = common_name.and_then(|name| name.as_str().ok()).ok_or(PeerError::Name)?;
        let not_after = certificate.validity().not_after.timestamp();
        Ok(Self {
            key,
            name_hint: name_hint.to_owned(),
            role,
            public_key_hash: proof::identity(certificate.public_key().raw),
            key_time: parse_key_time(certificate.subject()).unwrap_or_default(),
            serial: hex::encode(certificate.raw_serial()),
            not_after: Timestamp::from_second(not_after).map_err(|_| PeerError::Certificate)?,
        })
    }

    /// The key of the certificate.
    pub fn shown_key(&self) -> ShownKey<'_> {
        ShownKey { hash: &self.public_key_hash, time: self.key_time }
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.not_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_name_is_parsed_whole() {
        let key = HostKey { namespace: "fleet".into(), tpm_hash: "0a".into() };
        for (uri, want) in [
            ("baremetal://fleet/0a/live", Some((key.clone(), Role::Live))),
            ("baremetal://fleet/0a/installed", Some((key, Role::Installed))),
            ("baremetal://fleet/0a/root", None),
            ("baremetal://fleet/0a", None),
            ("baremetal://fleet/0a/live/more", None),
            ("baremetal://fleet//live", None),
            ("baremetal://fleet/host-1/uid-1/live", None),
            ("https://fleet/0a/live", None),
            ("", None),
        ] {
            assert_eq!(parse_uri(uri), want, "{uri}");
        }
    }
}
