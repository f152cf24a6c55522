//! Why there is no connection to the coordinator.

use std::io;

use crate::client::names::NameError;
use crate::ground::error::NextAction;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The coordinator's name has no address.
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the coordinator at {address} does not answer")]
    Away {
        address: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// Another authority signed the server's certificate.
    #[error("the certificate of the server at {address} is not signed by the CA of this configuration")]
    WrongAuthority { address: String },
    /// The certificate does not name the address.
    #[error("the certificate of the coordinator at {address} is for another name")]
    WrongName { address: String },
    /// The certificate's time does not fit this host's clock.
    #[error("the certificate of the coordinator at {address} is not valid at this host's time ({now})")]
    WrongTime {
        address: String,
        /// Unix time of the host, seconds.
        now: u64,
    },
    /// Any other end of the handshake.
    #[error("no TLS connection to {address}")]
    Handshake { address: String, source: io::Error },
    /// The CA or our certificate cannot be used.
    #[error("cannot use the configured certificates")]
    Configuration(#[source] rustls::Error),
    /// No HTTP/2 over the connection.
    #[error("the coordinator at {address} does not serve gRPC")]
    Protocol { address: String, source: tonic::transport::Error },
}

impl NextAction for ConnectError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::Name(error) => return error.next_action(),
            Self::Away { .. } => "start it, or correct the network or firewall between",
            Self::WrongAuthority { .. } => {
                "check which server listens there, or download a fresh seed ISO and boot it"
            }
            Self::WrongName { .. } => "use a server URL that its certificate names",
            Self::WrongTime { .. } => "set the host's clock, or renew the certificate",
            Self::Handshake { .. } => {
                "check which server listens there: a coordinator behind a proxy that terminates TLS cannot be reached"
            }
            Self::Configuration(_) => "download a fresh seed ISO and boot it",
            Self::Protocol { .. } => "correct the server URL",
        })
    }
}
