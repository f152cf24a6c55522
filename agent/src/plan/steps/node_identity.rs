//! Arguments and labels of the kubelet.

use proto::plan::NodeIdentity;
use proto::v1alpha1::{FailureReason, StepDone};

use super::StepError;
use crate::boot::node_identity;
use crate::paths::Root;

/// Early boot writes it into the kubelet's configuration.
pub(super) fn write_identity(root: &Root, identity: &NodeIdentity) -> Result<StepDone, StepError> {
    if !matches!(node_identity::read(root), Ok(Some(found)) if found == *identity) {
        node_identity::remember(root, identity)?;
    }
    Ok(StepDone::default())
}

pub(super) fn remove_identity(root: &Root) -> Result<StepDone, StepError> {
    if !node_identity::is_forgotten(root)? {
        node_identity::forget_identity(root)?;
    }
    if node_identity::is_forgotten(root)? {
        return Ok(StepDone::default());
    }
    Err(StepError::new(
        FailureReason::InputOutput,
        "the node's identity is still in the kubelet's configuration",
        "look at /etc/default/kubelet on the host",
    ))
}
