//! What the kubelet must say of itself.

use proto::plan::NodeIdentity;
use proto::v1alpha1::FailureReason;

use super::{Done, Failure};
use crate::boot::kubelet;
use crate::paths::Root;

/// Early boot writes it into the kubelet's configuration.
pub(super) fn write(root: &Root, identity: &NodeIdentity) -> Result<Done, Failure> {
    if !matches!(kubelet::read(root), Ok(Some(found)) if found == *identity) {
        kubelet::remember(root, identity)?;
    }
    Ok(Done::default())
}

pub(super) fn remove(root: &Root) -> Result<Done, Failure> {
    if !kubelet::is_forgotten(root)? {
        kubelet::forget(root)?;
    }
    if kubelet::is_forgotten(root)? {
        return Ok(Done::default());
    }
    let message = "the node's identity is still in the kubelet's configuration; next: look at /etc/default/kubelet on the host";
    Err(Failure::new(FailureReason::InputOutput, message))
}
