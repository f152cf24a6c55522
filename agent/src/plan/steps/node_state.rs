//! The node's files and credentials.

use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, StepError, list_paths};
use crate::boot::wipe;
use crate::host::system::System;

/// What holds credentials and pods; the deep wipe comes at the next boot.
const DIRECTORIES: [&str; 2] = ["/var/lib/kubelet", "/etc/kubernetes"];

pub(super) async fn remove_node_state<S: System>(context: &Context<'_, S>) -> Result<StepDone, StepError> {
    let mut kept = Vec::new();
    for directory in DIRECTORIES {
        // Pods' volumes: emptying them would empty what is mounted there.
        for mount in wipe::mounts_below(context.root, directory) {
            context.system.unmount(&context.job, &mount).await?;
        }
        kept.extend(wipe::empty_directory(context.root, directory)?);
    }
    // The journal must not record the removal before it happened.
    wipe::flush_directories(context.root)?;
    if kept.is_empty() {
        return Ok(StepDone::default());
    }
    let message = format!("still mounted, so not removed: {}", list_paths(&kept));
    Err(StepError::new(FailureReason::InputOutput, message, "unmount them by hand on the host"))
}
