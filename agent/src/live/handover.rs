//! What the live system leaves on the installed disk.

use crate::client::config::Config;
use crate::ground::durable::{self, DurableError};
use crate::ground::error::NextAction;
use crate::ground::paths::StateDir;
use crate::identity::{Certificate, Identity, IdentityError};
use crate::state::install_record::InstallRecord;

/// Why the installed system would have no identity.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A file on the persistent partition.
    #[error("cannot leave the agent's state on the installed disk")]
    File(#[from] DurableError),
    /// The configuration or the record cannot be written as text.
    #[error("cannot render what the installed system needs: {reason}")]
    Render { reason: String },
}

impl NextAction for HandoverError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Identity(error) => error.next_action(),
            Self::File(error) => error.next_action(),
            Self::Render { .. } => None,
        }
    }
}

/// Who this host is, for the installed system.
#[derive(Clone, Copy, Debug)]
pub struct Handover<'a> {
    pub identity: &'a Identity,
    /// The live system's certificate; the installed one exchanges it.
    pub certificate: &'a Certificate,
    /// Where the coordinator is.
    pub config: &'a Config,
}

/// Leaves identity and configuration.
pub fn write(state: &StateDir, handover: Handover<'_>) -> Result<(), HandoverError> {
    durable::create_directory(state.path())?;
    handover.identity.copy_to(&state.identity())?.keep_certificate(handover.certificate)?;
    let config =
        handover.config.render_yaml().map_err(|error| HandoverError::Render { reason: error.to_string() })?;
    durable::write(&state.config(), config.as_bytes())?;
    durable::remove(&state.next_config())?;
    Ok(())
}

/// Leaves the record: from here on this disk is never installed again.
pub fn write_record(state: &StateDir, record: &InstallRecord) -> Result<(), HandoverError> {
    let text = serde_json::to_vec_pretty(record)
        .map_err(|error| HandoverError::Render { reason: error.to_string() })?;
    Ok(durable::write(&state.install_record(), &text)?)
}
