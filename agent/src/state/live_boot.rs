//! The live boot of an installed host that asked for one boot of the disk.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::ground::durable::{self, DurableError};
use crate::ground::paths::StateDir;

const LIVE_BOOT: &str = "live-boot.json";

/// A live system on an installed host requested one boot of the disk.
#[derive(Debug, Serialize, Deserialize)]
struct LiveBoot {
    boot_id: String,
}

/// Whether this live boot may ask for a reboot into the disk: not when an
/// earlier one did and the host came back to the ISO, or it would go on for
/// ever. The installed agent removes it ([`forget_live_boot`]).
pub fn may_boot_disk(state: &StateDir, boot_id: &str) -> Result<bool, DurableError> {
    let path = state.path().join(LIVE_BOOT);
    let earlier: Option<LiveBoot> =
        fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
    if let Some(earlier) = earlier {
        return Ok(earlier.boot_id == boot_id);
    }
    let text = serde_json::json!(LiveBoot { boot_id: boot_id.to_owned() }).to_string();
    durable::write(&path, text.as_bytes())?;
    Ok(true)
}

/// The disk was booted: the next live boot may ask again.
pub fn forget_live_boot(state: &StateDir) -> Result<(), DurableError> {
    durable::remove(&state.path().join(LIVE_BOOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::paths::Root;

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
