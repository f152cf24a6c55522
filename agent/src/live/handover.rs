//! What the live system leaves on the installed disk, and the count of live
//! boots that followed.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::client::config::Config;
use crate::durable::{self, DurableError};
use crate::error::NextAction;
use crate::identity::{Certificate, Identity, IdentityError};
use crate::live::installed_disk::InstallRecord;
use crate::paths::StateDir;

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

const LIVE_BOOT: &str = "live-boot.json";

/// A live system on an installed host requested one boot of the disk.
#[derive(Debug, Serialize, Deserialize)]
struct LiveBoot {
    boot_id: String,
}

/// Whether this live boot may ask for a reboot into the disk: not when an
/// earlier one did and the host came back to the ISO, or it would go on for
/// ever. The installed agent removes it ([`forget_live_boot`]).
pub fn may_boot_disk(state: &StateDir, boot_id: &str) -> Result<bool, HandoverError> {
    let path = state.path().join(LIVE_BOOT);
    let earlier: Option<LiveBoot> =
        fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
    if let Some(earlier) = earlier {
        return Ok(earlier.boot_id == boot_id);
    }
    let text = serde_json::to_vec(&LiveBoot { boot_id: boot_id.to_owned() })
        .map_err(|error| HandoverError::Render { reason: error.to_string() })?;
    durable::write(&path, &text)?;
    Ok(true)
}

/// The disk was booted: the next live boot may ask again.
pub fn forget_live_boot(state: &StateDir) -> Result<(), HandoverError> {
    Ok(durable::remove(&state.path().join(LIVE_BOOT))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Root;

    #[test]
    fn a_live_boot_requests_the_disk_once() {
        let directory = tempfile::tempdir().unwrap();
        let state = Root::at(directory.path()).state();
        durable::create_directory(state.path()).unwrap();
        assert!(may_boot_disk(&state, "boot-1").unwrap());
        assert!(may_boot_disk(&state, "boot-1").unwrap(), "the agent was restarted in the same boot");
        assert!(!may_boot_disk(&state, "boot-2").unwrap(), "the host came back to the ISO");
        forget_live_boot(&state).unwrap();
        assert!(may_boot_disk(&state, "boot-3").unwrap());
    }
}
