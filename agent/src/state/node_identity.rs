//! The kubelet's identity: the label `metal3.io/uuid` and the providerID,
//! written into the configuration of whatever starts the kubelet.
//!
//! kubeadm's kubelet reads `KUBELET_EXTRA_ARGS` from an environment file (a
//! drop-in with `Environment=` would lose to it); RKE2 and k3s read fragments
//! of their own configuration.

mod environment;
mod environment_files;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proto::plan::NodeIdentity;
use serde::{Deserialize, Serialize};

use crate::ground::durable::{self, DurableError, PUBLIC};
use crate::ground::error::{NextAction, explain};
use crate::ground::paths::Root;

/// An identity that was not written.
#[derive(Debug, thiserror::Error)]
pub enum NodeIdentityError {
    /// The kernel does not give a file.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// `node-identity.json` is not what the agent writes.
    #[error("node-identity.json is damaged")]
    Parse(#[source] serde_json::Error),
    /// A file cannot be written.
    #[error("cannot write the kubelet's configuration")]
    Write(#[from] DurableError),
    /// It would change the meaning of a command line.
    #[error("{0} of the node identity is empty or has characters that a kubelet argument cannot hold")]
    Unsafe(&'static str),
}

impl NextAction for NodeIdentityError {
    fn next_action(&self) -> Option<&str> {
        Some(match self {
            Self::Read { source, .. } => durable::next_action(source.kind()),
            Self::Parse(_) => "check the host's disk; the next plan writes the file again",
            Self::Write(error) => return error.next_action(),
            Self::Unsafe(_) => "correct the names of machine and inventory, then create another plan",
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    uuid: String,
    #[serde(rename = "providerID")]
    provider_id: String,
    /// Releases before this one wrote none.
    #[serde(default)]
    owner: String,
}

/// The identity that the agent stored.
pub fn read(root: &Root) -> Result<Option<NodeIdentity>, NodeIdentityError> {
    let Some(text) = read_file(&root.state().node_identity())? else {
        return Ok(None);
    };
    let stored: Stored = serde_json::from_str(&text).map_err(NodeIdentityError::Parse)?;
    let Stored { uuid, provider_id, owner } = stored;
    Ok(Some(NodeIdentity { uuid, provider_id, owner }))
}

/// Stores the identity for every later boot.
pub fn remember(root: &Root, identity: &NodeIdentity) -> Result<(), NodeIdentityError> {
    check_identity(identity)?;
    let NodeIdentity { uuid, provider_id, owner } = identity.clone();
    let stored = Stored { uuid, provider_id, owner };
    let text = serde_json::to_vec_pretty(&stored).map_err(NodeIdentityError::Parse)?;
    let state = root.state();
    durable::create_directory(state.path())?;
    durable::write(&state.node_identity(), &text)?;
    Ok(())
}

/// Both end up on a command line that systemd splits.
fn check_identity(identity: &NodeIdentity) -> Result<(), NodeIdentityError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let address = |c: char| plain(c) || ":/".contains(c);
    if identity.uuid.is_empty() || identity.uuid.len() > 63 || !identity.uuid.chars().all(plain) {
        return Err(NodeIdentityError::Unsafe("the uuid"));
    }
    if identity.provider_id.is_empty() || !identity.provider_id.chars().all(address) {
        return Err(NodeIdentityError::Unsafe("the providerID"));
    }
    Ok(())
}

/// Writes the identity wherever a kubelet of this host reads arguments.
pub fn apply_identity(root: &Root, identity: &NodeIdentity) -> Result<(), NodeIdentityError> {
    check_identity(identity)?;
    let files = environment_files::find_files(root);
    for path in &files.others {
        edit_file(path, environment::remove_arguments)?;
    }
    for path in &files.chosen {
        edit_file(path, |text| environment::merge_labels(text, identity))?;
    }
    for directory in list_distributions(root) {
        durable::create_directory_with_mode(&directory, 0o755)?;
        let path = directory.join(FRAGMENT);
        durable::write_with_mode(&path, render_fragment(identity).as_bytes(), durable::SECRET)?;
    }
    Ok(())
}

/// Forgets the identity and takes it out of every kubelet's configuration.
pub fn forget_identity(root: &Root) -> Result<(), NodeIdentityError> {
    durable::remove(&root.state().node_identity())?;
    remove_arguments(root)?;
    for directory in list_distributions(root) {
        durable::remove(&directory.join(FRAGMENT))?;
    }
    Ok(())
}

/// Takes the identity out of every environment file. The unit of the agent may
/// write only those that packages use; early boot writes all, and does this at
/// each boot without an identity.
pub fn remove_arguments(root: &Root) -> Result<(), NodeIdentityError> {
    let usual = environment_files::usual_files(root);
    let files = environment_files::find_files(root);
    for path in &usual {
        edit_file(path, environment::remove_arguments)?;
    }
    for path in files.chosen.iter().chain(&files.others).filter(|path| !usual.contains(path)) {
        if let Err(error) = edit_file(path, environment::remove_arguments) {
            tracing::warn!(
                error = explain(&error),
                "the node's identity stays in a file until the next boot"
            );
        }
    }
    Ok(())
}

/// Whether any trace of an identity is left that the agent can remove.
pub fn is_forgotten(root: &Root) -> Result<bool, NodeIdentityError> {
    for path in environment_files::usual_files(root) {
        let text = read_file(&path)?.unwrap_or_default();
        if environment::remove_arguments(&text) != text {
            return Ok(false);
        }
    }
    let fragment = |directory: &PathBuf| directory.join(FRAGMENT).exists();
    Ok(!root.state().node_identity().exists() && !list_distributions(root).iter().any(fragment))
}

fn edit_file(path: &Path, edit: impl FnOnce(&str) -> String) -> Result<(), NodeIdentityError> {
    let before = read_file(path)?;
    let text = before.as_deref().unwrap_or_default();
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

fn read_file(path: &Path) -> Result<Option<String>, NodeIdentityError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(NodeIdentityError::Read { path: path.to_owned(), source }),
    }
}

const FRAGMENT: &str = "90-baremetal-agent.yaml";

fn list_distributions(root: &Root) -> Vec<PathBuf> {
    let directories = ["/etc/rancher/rke2", "/etc/rancher/k3s"].map(|path| root.join(path));
    let installed = directories.into_iter().filter(|path| path.is_dir());
    installed.map(|path| path.join("config.yaml.d")).collect()
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
