//! The live boot of an installed host that asked for one boot of the disk.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::StateDir;

const LIVE_BOOT: &str = "live-boot.json";

/// A live system on an installed host requested one boot of the disk.
#[derive(Debug, Serialize, Deserialize)]
struct LiveBoot {
    boot_id: String,
}

/// True if this live boot may ask for a reboot into the disk. If an earlier live boot did so and
/// the host booted the ISO again, another attempt would repeat for ever. The installed agent
/// removes the record ([`forget_live_boot`]).
pub fn may_boot_disk(state: &StateDir, boot_id: &str) -> Result<bool, Failure> {
    let path = state.path().join(LIVE_BOOT);
    let earlier: Option<LiveBoot> =
        fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
    if let Some(earlier) = earlier {
        return Ok(earlier.boot_id == boot_id);
    }
    durable::write_json(&path, &LiveBoot { boot_id: boot_id.to_owned() })?;
    Ok(true)
}

/// Records that the disk was booted, so that the next live boot may ask again.
pub fn forget_live_boot(state: &StateDir) -> Result<(), Failure> {
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
