//! Removes cloud-init's state of the former instance, and its seed.

use proto::v1alpha1::{FailureReason, StepDone};

use super::{Context, StepError, step_done};
use crate::host::system::System;

/// It deletes the seed too, so it comes before the new one is written.
pub(super) async fn clean_cloud_init<S: System>(context: &Context<'_, S>) -> Result<StepDone, StepError> {
    let output = context.system.cloud_init_clean(&context.job).await?;
    let instance = context.root.join("/var/lib/cloud/instance");
    // The link may lead nowhere: its own presence counts.
    if instance.symlink_metadata().is_ok() {
        let error = StepError::new(
            FailureReason::CloudInit,
            "cloud-init clean left /var/lib/cloud/instance behind: cloud-init would not run the new seed",
            "remove /var/lib/cloud/instance on the host",
        );
        return Err(error.with_output(output));
    }
    Ok(step_done(output.0))
}
