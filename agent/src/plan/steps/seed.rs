//! The new `NoCloud` seed: first the authority, then cloud-init's copy, which
//! early boot would make as well.

use proto::plan::Seed;
use proto::v1alpha1::StepDone;

use super::StepError;
use crate::boot::seed;
use crate::durable;
use crate::paths::Root;

pub(super) fn write_seed(root: &Root, wanted: &Seed) -> Result<StepDone, StepError> {
    if seed::load(&root.state())?.as_ref() == Some(wanted) {
        durable::remove_temporary(&root.state().seed())?;
    } else {
        seed::store(&root.state(), wanted)?;
    }
    seed::restore_seed(root)?;
    Ok(StepDone::default())
}
