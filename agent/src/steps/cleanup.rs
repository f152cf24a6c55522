//! The marker that makes the next early boot wipe.

use std::fs;

use proto::plan::PlanId;

use super::{Done, Failure};
use crate::durable;
use crate::paths::Root;

pub(super) fn request(root: &Root, plan: &PlanId) -> Result<Done, Failure> {
    let marker = root.state().cleanup_marker();
    let wanted = format!("{plan}\n");
    if fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(Done::said("the marker is there already"));
    }
    durable::write(&marker, wanted.as_bytes())?;
    Ok(Done::said("the next boot by this plan wipes the former node"))
}
