//! Removes the node's files and credentials, and the bootstrap data of its join.

mod removal;

use proto::distribution;
use proto::v1alpha1::{FailureReason, StepDone, SystemState};

use super::{Context, list_paths, step_done};
use crate::ground::durable;
use crate::ground::failure::{Failure, FailureClass};
use crate::host::left_behind::list_left_behind;
use crate::host::system::System;
use crate::host::{credentials, kernel_state, observed, wipe};
use crate::state::{before_node, node_identity};

/// Directories with cloud-init's copy of the bootstrap data and with logs of pods, whatever the
/// distribution. Early boot wipes more at the next reprovision.
const DIRECTORIES: [&str; 3] = ["/var/lib/cloud/instances", "/var/log/containers", "/var/log/pods"];

/// Files of cloud-init that hold the bootstrap data or the output of its commands. A file of the
/// image returns at the next boot.
const FILES: [&str; 4] = [
    "/run/cloud-init/combined-cloud-config.json",
    "/run/cloud-init/instance-data-sensitive.json",
    "/var/log/cloud-init.log",
    "/var/log/cloud-init-output.log",
];

/// The directories that the step empties.
fn list_directories() -> Vec<&'static str> {
    distribution::cleaned_directories().into_iter().chain(DIRECTORIES).collect()
}

/// The single files that the step removes.
fn list_files() -> Vec<&'static str> {
    distribution::secret_files().into_iter().chain(FILES).collect()
}

pub(super) async fn remove_node_state<S: System>(context: &Context<'_, S>) -> Result<StepDone, Failure> {
    remove_kernel_items(context).await?;
    // Volumes of pods are mounted in the directories, and emptying a directory would delete the content of the volumes.
    for directory in list_directories().into_iter().chain(distribution::runtime_mounts()) {
        for mount in wipe::mounts_below(context.root, directory)? {
            context.system.unmount(&context.job, &mount).await?;
        }
    }
    let root = context.root.clone();
    // Millions of files take minutes, and the runtime has one thread.
    let removed = tokio::task::spawn_blocking(move || removal::remove_all(&root)).await;
    let kept = removed.map_err(|error| Failure::new(FailureReason::InputOutput, error.to_string(), ""))??;
    if !kept.is_empty() {
        let message = format!("still mounted, so not removed: {}", list_paths(&kept));
        let action = "unmount them by hand on the host";
        let error = Failure::new(FailureReason::InputOutput, message, action);
        return Err(error.with_class(FailureClass::Transient));
    }
    let left = removal::list_left(context.root);
    if !left.is_empty() {
        let message = format!("credentials of the node are back after their removal: {}", list_paths(&left));
        let action = "look on the host for what writes them, and stop it";
        let error = Failure::new(FailureReason::InputOutput, message, action);
        return Err(error.with_class(FailureClass::Transient));
    }
    // A plan may have failed after it requested a wipe. The marker would hold every boot of the
    // released host.
    durable::remove(&context.root.state().cleanup_marker())?;
    // The journal holds the output of kubeadm with its tokens.
    context.system.clear_journal(&context.job).await?;
    let trimmed = context.system.trim(&context.job).await;
    Ok(step_done(trimmed.map_or_else(|error| format!("not trimmed: {error}"), |output| output.0)))
}

/// The running system with what the clean left; `None` where the host carries a node.
/// The last step of a clean reports it, so that no machine gets the host before a reboot.
pub(super) async fn state_after_clean<S: System>(
    context: &Context<'_, S>,
) -> Result<Option<SystemState>, Failure> {
    if node_identity::read(context.root)?.is_some() || credentials::are_in_system(context.root) {
        return Ok(None);
    }
    let left_behind = list_left_behind(context.root).await;
    let state = SystemState { left_behind, ..context.system.running().await? };
    let Some(own) = before_node::own_items(context.root, &state.boot_id) else { return Ok(Some(state)) };
    let left_in_kernel = kernel_state::show_left(&own, &context.system.kernel_items().await?);
    Ok(Some(SystemState { left_in_kernel, ..state }))
}

/// The host states those that stay, and is free after a reboot.
async fn remove_kernel_items<S: System>(context: &Context<'_, S>) -> Result<(), Failure> {
    let boot = observed::boot_id(context.root)?;
    before_node::mark_node(context.root, &boot)?;
    match before_node::own_items(context.root, &boot) {
        Some(own) => context.system.remove_foreign_items(&context.job, &own).await,
        None => Ok(()),
    }
}
