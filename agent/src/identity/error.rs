//! Why a host has no usable identity.

use std::io;
use std::path::PathBuf;

use crate::ground::durable::DurableError;
use crate::ground::error::NextAction;

/// Why the host has no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Key or certificate cannot be kept.
    #[error("cannot keep the identity")]
    Keep(#[from] DurableError),
    /// The key file holds no P-256 key.
    #[error("{path} holds no P-256 key", path = path.display())]
    Key { path: PathBuf, source: rcgen::Error },
    /// The file of the endorsement key is damaged.
    #[error("{path} holds no public key", path = path.display())]
    EndorsementKey { path: PathBuf },
    /// No randomness, or a signature failed.
    #[error("cannot {attempt} with the identity key")]
    Cryptography { attempt: &'static str, source: rcgen::Error },
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
            Self::Key { .. } | Self::EndorsementKey { .. } => Some(
                "restore the file, or install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
            ),
            Self::Read { .. } | Self::Keep(_) => {
                Some("check the host's disk and free space on its persistent partition")
            }
            Self::Cryptography { .. } | Self::Certificate { .. } | Self::ForeignCertificate => None,
        }
    }
}
