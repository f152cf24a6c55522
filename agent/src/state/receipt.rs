//! The proof that the wipe for a plan was done.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The plan that asked for the wipe.
    pub plan_id: String,
    /// The boot that did the wipe.
    pub boot_id: String,
    /// Mount points inside the wiped directories; the wipe leaves them alone.
    #[serde(default)]
    pub kept: Vec<PathBuf>,
}

/// The receipt of the last wipe. A damaged receipt proves nothing, so it counts as missing.
pub(crate) fn read_receipt(root: &Root) -> Option<Receipt> {
    let bytes = fs::read(root.state().cleanup_receipt()).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(crate) fn write_receipt(root: &Root, receipt: &Receipt) -> Result<(), Failure> {
    durable::write_json(&root.state().cleanup_receipt(), receipt)
}
