//! The marker that makes the next early boot wipe.

use std::fs;

use proto::plan::PlanId;
use proto::v1alpha1::StepDone;

use super::{StepError, step_done};
use crate::durable;
use crate::paths::Root;

pub(super) fn request_cleanup(root: &Root, plan: &PlanId) -> Result<StepDone, StepError> {
    let marker = root.state().cleanup_marker();
    let wanted = format!("{plan}\n");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(step_done("the marker is there already"));
    }
    durable::write(&marker, wanted.as_bytes())?;
    Ok(step_done("the next boot by this plan wipes the former node"))
}
