//! The end of the first boot with a plan's seed: a reboot may have interrupted its bootstrap
//! commands.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;

/// The end of the boot that ran the commands of a plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapRecord {
    pub plan_id: String,
    pub is_interrupted: bool,
}

impl BootstrapRecord {
    /// The note about `plan`.
    pub fn read(root: &Root, plan: &str) -> Option<Self> {
        let text = fs::read(root.state().bootstrap_record()).ok()?;
        serde_json::from_slice(&text).ok().filter(|note: &Self| note.plan_id == plan)
    }

    pub fn write(&self, root: &Root) -> Result<(), Failure> {
        durable::write_json(&root.state().bootstrap_record(), self)
    }
}

/// True if a reboot interrupted the commands of `plan`.
pub fn is_interrupted(root: &Root, plan: &str) -> bool {
    BootstrapRecord::read(root, plan).is_some_and(|note| note.is_interrupted)
}
