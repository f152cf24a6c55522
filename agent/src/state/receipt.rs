//! The proof that the wipe for a plan was done, and the progress of a wipe that goes on.

use std::fmt;
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

/// A wipe that reached the time limit of its boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WipeProgress {
    pub plan_id: String,
    /// The boot that wrote this record.
    pub boot_id: String,
    /// Files and directories that all boots of the plan have removed.
    pub removed: u64,
    /// The directory that is not empty yet.
    pub directory: String,
}

impl fmt::Display for WipeProgress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { removed, directory, .. } = self;
        write!(
            formatter,
            "the wipe of the former node goes on at the next boot: {removed} files and directories are removed, {directory} is not empty yet"
        )
    }
}

pub(crate) fn read_progress(root: &Root) -> Option<WipeProgress> {
    let bytes = fs::read(root.state().cleanup_progress()).ok()?;
    serde_json::from_slice(&bytes).ok()
}

pub(crate) fn write_progress(root: &Root, progress: &WipeProgress) -> Result<(), Failure> {
    durable::write_json(&root.state().cleanup_progress(), progress)
}
