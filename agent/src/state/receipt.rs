//! The proof that a wipe was done: for which plan, in which boot.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ground::durable::{self, DurableError};
use crate::ground::paths::Root;

/// What the last wipe left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The plan that asked for it.
    pub plan_id: String,
    /// The boot that did it.
    pub boot_id: String,
    /// Mount points inside the wiped directories, which were left alone.
    #[serde(default)]
    pub kept: Vec<PathBuf>,
}

/// The receipt; one that cannot be read proves nothing.
pub(crate) fn read_receipt(root: &Root) -> Option<Receipt> {
    let bytes = fs::read(root.state().cleanup_receipt()).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(crate) fn write_receipt(root: &Root, receipt: &Receipt) -> Result<(), DurableError> {
    let text = serde_json::to_vec_pretty(receipt).unwrap_or_default();
    durable::write(&root.state().cleanup_receipt(), &text)
}
