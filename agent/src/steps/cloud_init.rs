//! Making cloud-init forget the former instance, and delete its seed.

use proto::v1alpha1::FailureReason;

use super::{Context, Done, Failure};
use crate::system::System;

/// It deletes the seed too, so it comes before the new one is written.
pub(super) async fn clean<S: System>(context: &Context<'_, S>) -> Result<Done, Failure> {
    let output = context.system.cloud_init_clean(&context.job).await?;
    let instance = context.root.join("/var/lib/cloud/instance");
    // The link may lead nowhere: its own presence counts.
    if instance.symlink_metadata().is_ok() {
        let message = "cloud-init clean left /var/lib/cloud/instance behind: cloud-init would take the new seed for done; next: remove /var/lib/cloud/instance on the host";
        return Err(Failure { output: output.0, ..Failure::new(FailureReason::CloudInit, message) });
    }
    Ok(Done::said(output.0))
}
