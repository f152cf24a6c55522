//! Who a client certificate belongs to.

use proto::proof;
use x509_parser::extensions::GeneralName;

use super::Subject;

const SCHEME: &str = "baremetal://";

/// What a host may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Register, install and report: the system of the seed ISO.
    Live,
    /// Everything, plans too: the system on the disk.
    Installed,
}

impl Role {
    /// Last part of the name in the certificate.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Installed => "installed",
        }
    }
}

/// The host at the other end, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Namespace of the inventory.
    pub namespace: String,
    /// Name of the inventory.
    pub name: String,
    /// UID of the inventory.
    pub uid: String,
    /// What the host may do.
    pub role: Role,
    /// Lower-case hexadecimal SHA-256 of the key in PKIX DER.
    pub public_key_hash: String,
    /// Serial number, hexadecimal, for logs.
    pub serial: String,
}

/// Why a certificate names no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Not X.509.
    #[error("the client certificate cannot be read")]
    Certificate,
    /// Signed by us, but not in the form that [`Peer`] has.
    #[error("the client certificate names no inventory")]
    Name,
}

/// The one name in a host's certificate.
pub(super) fn uri(subject: &Subject<'_>) -> String {
    let Subject { namespace, name, uid, role } = subject;
    format!("{SCHEME}{namespace}/{name}/{uid}/{}", role.as_str())
}

fn parse_uri(uri: &str) -> Option<(&str, &str, &str, Role)> {
    let mut parts = uri.strip_prefix(SCHEME)?.split('/');
    let mut part = || parts.next().filter(|part| !part.is_empty());
    let (namespace, name, uid) = (part()?, part()?, part()?);
    let role = match part()? {
        "live" => Role::Live,
        "installed" => Role::Installed,
        _ => return None,
    };
    parts.next().is_none().then_some((namespace, name, uid, role))
}

impl Peer {
    /// Reads a certificate that the TLS layer has verified against our
    /// authority.
    ///
    /// # Errors
    /// [`PeerError`] when it is not one that [`super::Authority::host`] made.
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
        let (namespace, name, uid, role) = parse_uri(uri).ok_or(PeerError::Name)?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            role,
            public_key_hash: proof::identity(certificate.public_key().raw),
            serial: hex::encode(certificate.raw_serial()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_whole_or_not_at_all() {
        for (uri, want) in [
            ("baremetal://fleet/host-1/u-1/live", Some(("fleet", "host-1", "u-1", Role::Live))),
            ("baremetal://fleet/host-1/u-1/installed", Some(("fleet", "host-1", "u-1", Role::Installed))),
            ("baremetal://fleet/host-1/u-1/root", None),
            ("baremetal://fleet/host-1/u-1", None),
            ("baremetal://fleet/host-1/u-1/live/more", None),
            ("baremetal://fleet//u-1/live", None),
            ("https://fleet/host-1/u-1/live", None),
            ("", None),
        ] {
            assert_eq!(parse_uri(uri), want, "{uri}");
        }
    }
}
