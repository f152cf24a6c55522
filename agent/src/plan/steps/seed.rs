//! The new `NoCloud` seed: first the authority, then cloud-init's copy.
//!
//! One that starts a node reaches cloud-init at early boot, after the wipe:
//! until then its copy brings up the network only, whatever becomes of that
//! boot.

use proto::plan::{PlanId, Seed};
use proto::v1alpha1::StepDone;

use super::StepError;
use crate::boot::{network_trial, seed};
use crate::durable;
use crate::host::observed;
use crate::paths::Root;

pub(super) fn write_seed(root: &Root, plan: &PlanId, wanted: &Seed) -> Result<StepDone, StepError> {
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
