//! Why the installed agent cannot work, and why a connection ends.

use tonic::Status;

use crate::client::calls::CallError;
use crate::client::config::ConfigError;
use crate::client::registration::AttemptError;
use crate::ground::durable::DurableError;
use crate::ground::error::NextAction;
use crate::host::system::SystemError;
use crate::identity::IdentityError;

/// Why the installed agent cannot work at all. A restart starts over.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Where the coordinator is.
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The persistent partition is empty or not mounted.
    #[error("this host has no identity key in {directory}")]
    NoIdentity {
        /// Where it should be.
        directory: String,
    },
    /// The mark of a live boot stays.
    #[error(transparent)]
    LiveBoot(#[from] DurableError),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A call failed or was refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The registration for another certificate did.
    #[error("cannot get a certificate")]
    Registration(#[from] AttemptError),
    /// The new certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The coordinator closed the stream: it restarts, or another line of this
    /// host took over.
    #[error("the coordinator closed the stream")]
    Closed,
    /// What runs here is unknown.
    #[error("cannot read what this host runs")]
    System(#[from] SystemError),
    /// The worker ended.
    #[error("the executor has stopped")]
    Worker,
    /// The install record cannot be read.
    #[error(transparent)]
    InstallRecord(#[from] DurableError),
    /// The coordinator does not take this host as installed.
    #[error("the coordinator signed a certificate of the live system for this installed host")]
    NotInstalled,
}

impl NextAction for RunError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Config(error) => error.next_action(),
            Self::Identity(error) => error.next_action(),
            Self::NoIdentity { .. } => Some(
                "mount the persistent partition there, or, if the key is lost, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
            ),
            Self::LiveBoot(error) => error.next_action(),
        }
    }
}

impl NextAction for LinkError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Call(error) => error.next_action(),
            Self::Registration(error) => error.next_action(),
            Self::Identity(error) => error.next_action(),
            Self::System(error) => error.next_action(),
            Self::InstallRecord(error) => error.next_action(),
            Self::Closed | Self::Worker => None,
            Self::NotInstalled => Some(
                "none: the host reports its install again and retries; if it persists, read the coordinator's log",
            ),
        }
    }
}

impl From<Status> for LinkError {
    fn from(status: Status) -> Self {
        Self::Call(status.into())
    }
}
