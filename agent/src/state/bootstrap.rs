//! How the first boot of a plan's seed ended: whether a reboot cut the bootstrap commands off.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::ground::durable::{self, DurableError};
use crate::ground::paths::Root;

/// How the boot ended that ran the commands of a plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapNote {
    pub plan_id: String,
    pub is_interrupted: bool,
}

impl BootstrapNote {
    /// The note about `plan`.
    pub fn read(root: &Root, plan: &str) -> Option<Self> {
        let text = fs::read(root.state().bootstrap_note()).ok()?;
        serde_json::from_slice(&text).ok().filter(|note: &Self| note.plan_id == plan)
    }

    pub fn write(&self, root: &Root) -> Result<(), DurableError> {
        let text = serde_json::json!(self).to_string();
        durable::write(&root.state().bootstrap_note(), text.as_bytes())
    }
}

/// Whether the commands of `plan` were cut off.
pub fn is_interrupted(root: &Root, plan: &str) -> bool {
    BootstrapNote::read(root, plan).is_some_and(|note| note.is_interrupted)
}
