//! Removes the node's files and credentials, and the bootstrap data of its join.

mod removal;

use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, list_paths, step_done};
use crate::ground::durable;
use crate::ground::failure::{Failure, FailureClass};
use crate::host::system::System;
use crate::host::wipe;

/// Directories with credentials and pods, cloud-init's copy of the bootstrap data and kubeadm's
/// file with the token. Early boot wipes more at the next reprovision.
const DIRECTORIES: [&str; 14] = [
    "/etc/kubernetes",
    "/etc/rancher/k3s/config.yaml.d",
    "/etc/rancher/node",
    "/etc/rancher/rke2/config.yaml.d",
    "/run/k3s",
    "/run/kubeadm",
    "/var/lib/cloud/instances",
    "/var/lib/cni",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/lib/rancher/k3s",
    "/var/lib/rancher/rke2",
    "/var/log/containers",
    "/var/log/pods",
];

/// Files of cloud-init that hold the bootstrap data or the output of its commands, and files of
/// distributions with token, administrator's key or passwords of registries. A file of the image
/// returns at the next boot.
const FILES: [&str; 20] = [
    "/etc/default/k3s",
    "/etc/default/k3s-agent",
    "/etc/default/rke2-agent",
    "/etc/default/rke2-server",
    "/etc/rancher/k3s/config.yaml",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/rancher/k3s/registries.yaml",
    "/etc/rancher/rke2/config.yaml",
    "/etc/rancher/rke2/registries.yaml",
    "/etc/rancher/rke2/rke2.yaml",
    "/etc/sysconfig/k3s",
    "/etc/sysconfig/k3s-agent",
    "/etc/sysconfig/rke2-agent",
    "/etc/sysconfig/rke2-server",
    "/etc/systemd/system/k3s-agent.service.env",
    "/etc/systemd/system/k3s.service.env",
    "/run/cloud-init/combined-cloud-config.json",
    "/run/cloud-init/instance-data-sensitive.json",
    "/var/log/cloud-init.log",
    "/var/log/cloud-init-output.log",
];

/// Directories in which containerd mounts for Kubernetes: the shared memory of a sandbox, which stays when `ctr` removes
/// the sandbox, and the file system of a container.
const CONTAINERD_MOUNTS: [&str; 2] =
    ["/run/containerd/io.containerd.grpc.v1.cri", "/run/containerd/io.containerd.runtime.v2.task/k8s.io"];

pub(super) async fn remove_node_state<S: System>(context: &Context<'_, S>) -> Result<StepDone, Failure> {
    // Volumes of pods are mounted in the directories, and emptying a directory would delete the content of the volumes.
    for directory in DIRECTORIES.into_iter().chain(CONTAINERD_MOUNTS) {
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
