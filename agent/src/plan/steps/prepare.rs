//! Writes the files that the next boot uses: the marker of the wipe, the seed, the kubelet's
//! identity.

use std::fs;

use proto::plan::{NodeIdentity, PlanId, Seed};
use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, step_done};
use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::observed;
use crate::host::system::System;
use crate::state::{network_trial, node_identity, seed};

/// Writes the marker that makes the next early boot wipe.
pub(super) fn request_cleanup(root: &Root, plan: &PlanId) -> Result<StepDone, Failure> {
    let marker = root.state().cleanup_marker();
    let wanted = format!("{plan}\n");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(step_done("the marker is there already"));
    }
    durable::write(&marker, wanted.as_bytes())?;
    Ok(step_done("the next boot by this plan wipes the former node"))
}

/// Removes cloud-init's state of the former instance. The step comes before the new seed is written,
/// because cloud-init deletes its seed as well.
pub(super) async fn clean_cloud_init<S: System>(context: &Context<'_, S>) -> Result<StepDone, Failure> {
    let output = context.system.cloud_init_clean(&context.job).await?;
    let instance = context.root.join("/var/lib/cloud/instance");
    // The presence of the link counts, because its target may be missing.
    if instance.symlink_metadata().is_ok() {
        let error = Failure::new(
            FailureReason::CloudInit,
            "cloud-init clean left /var/lib/cloud/instance behind: cloud-init would not run the new seed",
            "remove /var/lib/cloud/instance on the host",
        );
        return Err(error.with_output(output.0));
    }
    Ok(step_done(output.0))
}

/// Stores the new seed: first the agent's copy, then cloud-init's.
///
/// A seed that starts a node reaches cloud-init at early boot, after the wipe. Until then cloud-init's
/// copy brings up the network only, so that no node starts whatever becomes of that boot.
pub(super) fn write_seed(root: &Root, plan: &PlanId, wanted: &Seed) -> Result<StepDone, Failure> {
    network_trial::keep_former(root, plan, &observed::boot_id(root)?, wanted)?;
    if seed::load(&root.state())?.as_ref() == Some(wanted) {
        durable::remove_temporary(&root.state().seed())?;
    } else {
        seed::store(&root.state(), wanted)?;
    }
    if wanted.user_data.is_some() {
        seed::restore_network(root)?;
    } else {
        seed::restore_seed(root)?;
    }
    Ok(StepDone::default())
}

/// Stores the identity; early boot writes it into the kubelet's configuration.
pub(super) fn write_identity(root: &Root, identity: &NodeIdentity) -> Result<StepDone, Failure> {
    if !matches!(node_identity::read(root), Ok(Some(found)) if found == *identity) {
        node_identity::remember(root, identity)?;
    }
    Ok(StepDone::default())
}

pub(super) fn remove_identity(root: &Root) -> Result<StepDone, Failure> {
    if !node_identity::is_forgotten(root)? {
        node_identity::forget_identity(root)?;
    }
    if node_identity::is_forgotten(root)? {
        return Ok(StepDone::default());
    }
    Err(Failure::new(
        FailureReason::InputOutput,
        "the node's identity is still in the kubelet's configuration",
        "look at /etc/default/kubelet on the host",
    ))
}
