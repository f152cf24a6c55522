//! The node's files and credentials, and the bootstrap data it joined with.

use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, StepError, list_paths};
use crate::boot::wipe;
use crate::durable;
use crate::host::system::{FailureClass, System};

/// What holds credentials and pods, cloud-init's copy of the bootstrap data and
/// kubeadm's file with the token; the deep wipe comes at the next boot.
const DIRECTORIES: [&str; 4] =
    ["/var/lib/kubelet", "/etc/kubernetes", "/var/lib/cloud/instances", "/run/kubeadm"];

/// Files of cloud-init that hold the bootstrap data, or what its commands wrote.
const FILES: [&str; 4] = [
    "/run/cloud-init/combined-cloud-config.json",
    "/run/cloud-init/instance-data-sensitive.json",
    "/var/log/cloud-init.log",
    "/var/log/cloud-init-output.log",
];

pub(super) async fn remove_node_state<S: System>(context: &Context<'_, S>) -> Result<StepDone, StepError> {
    let mut kept = Vec::new();
    for directory in DIRECTORIES {
        // Pods' volumes: emptying them would empty what is mounted there.
        for mount in wipe::mounts_below(context.root, directory) {
            context.system.unmount(&context.job, &mount).await?;
        }
        kept.extend(wipe::empty_directory(context.root, directory)?);
    }
    for file in FILES {
        durable::remove(&context.root.join(file))?;
    }
    // The journal must not say that they are removed before they are.
    wipe::flush_directories(context.root, &DIRECTORIES)?;
    if kept.is_empty() {
        return Ok(StepDone::default());
    }
    let message = format!("still mounted, so not removed: {}", list_paths(&kept));
    let error = StepError::new(FailureReason::InputOutput, message, "unmount them by hand on the host");
    Err(error.with_class(FailureClass::Transient))
}
