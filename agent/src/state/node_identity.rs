//! The kubelet's identity: the label `metal3.io/uuid` and the providerID, written into the
//! configuration of the service that starts the kubelet.
//!
//! kubeadm's kubelet reads `KUBELET_EXTRA_ARGS` from an environment file, which overrides a drop-in
//! with `Environment=`; RKE2 and k3s read fragments of their own configuration.

mod environment;
mod environment_files;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proto::distribution;
use proto::plan::NodeIdentity;
use serde::{Deserialize, Serialize};

use crate::ground::durable::{self, PUBLIC};
use crate::ground::failure::{Failure, describe_cause};
use crate::ground::paths::Root;

#[derive(Serialize, Deserialize)]
struct Stored {
    uuid: String,
    #[serde(rename = "providerID")]
    provider_id: String,
    /// Earlier releases did not write this field.
    #[serde(default)]
    owner: String,
}

pub fn read(root: &Root) -> Result<Option<NodeIdentity>, Failure> {
    let Some(text) = durable::read_text(&root.state().node_identity())? else {
        return Ok(None);
    };
    let stored: Stored = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    let Stored { uuid, provider_id, owner } = stored;
    Ok(Some(NodeIdentity { uuid, provider_id, owner }))
}

fn damaged(error: &serde_json::Error) -> Failure {
    let message = describe_cause("node-identity.json is damaged", error);
    Failure::refused(message, "check the host's disk; the next plan writes the file again")
}

fn unsafe_value(name: &str) -> Failure {
    Failure::refused(
        format!("{name} of the node identity is empty or has characters that a kubelet argument cannot hold"),
        "correct the names of machine and inventory, then create another plan",
    )
}

/// Stores the identity for every later boot.
pub fn remember(root: &Root, identity: &NodeIdentity) -> Result<(), Failure> {
    check_identity(identity)?;
    let NodeIdentity { uuid, provider_id, owner } = identity.clone();
    let state = root.state();
    durable::create_directory(state.path())?;
    durable::write_json(&state.node_identity(), &Stored { uuid, provider_id, owner })
}

/// Both values end up on a command line that systemd splits.
fn check_identity(identity: &NodeIdentity) -> Result<(), Failure> {
    if identity.uuid.is_empty() || identity.uuid.len() > 63 || !identity.uuid.chars().all(is_plain) {
        return Err(unsafe_value("the uuid"));
    }
    if identity.provider_id.is_empty()
        || !identity.provider_id.chars().all(|c| is_plain(c) || ":/".contains(c))
    {
        return Err(unsafe_value("the providerID"));
    }
    Ok(())
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._".contains(character)
}

/// Writes the identity into each file from which a kubelet of this host reads arguments.
pub fn apply_identity(root: &Root, identity: &NodeIdentity) -> Result<(), Failure> {
    check_identity(identity)?;
    let files = environment_files::find_files(root);
    for path in &files.others {
        edit_file(path, environment::remove_arguments)?;
    }
    for path in &files.chosen {
        edit_file(path, |text| environment::merge_labels(text, identity))?;
    }
    for path in list_fragments(root) {
        if let Some(directory) = path.parent() {
            durable::create_directory_with_mode(directory, 0o755)?;
        }
        durable::write_with_mode(&path, render_fragment(identity).as_bytes(), durable::SECRET)?;
    }
    Ok(())
}

/// Removes the stored identity, and its traces in every kubelet's configuration.
pub fn forget_identity(root: &Root) -> Result<(), Failure> {
    durable::remove(&root.state().node_identity())?;
    remove_arguments(root)?;
    for path in list_fragments(root) {
        durable::remove(&path)?;
    }
    Ok(())
}

/// Removes the identity from every environment file. The sandbox of the running agent can write
/// only the files that packages use; early boot can write all of them, and calls this at each boot
/// without an identity.
pub fn remove_arguments(root: &Root) -> Result<(), Failure> {
    let usual = environment_files::usual_files(root);
    let files = environment_files::find_files(root);
    for path in &usual {
        edit_file(path, environment::remove_arguments)?;
    }
    for path in files.chosen.iter().chain(&files.others).filter(|path| !usual.contains(path)) {
        if let Err(error) = edit_file(path, environment::remove_arguments) {
            tracing::warn!(%error, "cannot remove the kubelet's node identity now; it is removed at the next boot");
        }
    }
    Ok(())
}

/// True if no trace of an identity is left that the agent can remove.
pub fn is_forgotten(root: &Root) -> Result<bool, Failure> {
    for path in environment_files::usual_files(root) {
        if durable::read_text(&path)?.is_some_and(|text| environment::remove_arguments(&text) != text) {
            return Ok(false);
        }
    }
    let is_left = list_fragments(root).iter().any(|fragment| fragment.exists());
    Ok(!root.state().node_identity().exists() && !is_left)
}

fn edit_file(path: &Path, edit: impl FnOnce(&str) -> String) -> Result<(), Failure> {
    let before = durable::read_text(path)?;
    let text = before.as_deref().unwrap_or("");
    let after = edit(text);
    if after == text {
        return Ok(());
    }
    let mode = fs::metadata(path).map_or(PUBLIC, |found| found.permissions().mode() & 0o777);
    if let Some(parent) = path.parent() {
        durable::create_directory_with_mode(parent, 0o755)?;
    }
    durable::write_with_mode(path, after.as_bytes(), mode)?;
    Ok(())
}

const FRAGMENT: &str = "90-baremetal-agent.yaml";

/// The fragments of every distribution. At the first boot nothing tells which one cloud-init will
/// install, because cloud-init makes the directory later; the other fragments have no reader.
fn list_fragments(root: &Root) -> Vec<PathBuf> {
    distribution::fragments().into_iter().map(|directory| root.join(directory).join(FRAGMENT)).collect()
}

/// `key+` appends to the values of other fragments.
fn render_fragment(identity: &NodeIdentity) -> String {
    format!(
        "# Written by baremetal-agent at every boot.\nnode-label+:\n  - \"metal3.io/uuid={}\"\nkubelet-arg+:\n  - \"provider-id={}\"\n",
        identity.uuid, identity.provider_id
    )
}

#[cfg(test)]
mod tests;
