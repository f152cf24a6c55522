//! The new `NoCloud` seed: first the authority, then cloud-init's copy, which
//! early boot would make as well.

use proto::plan::Seed;

use super::{Done, Failure};
use crate::boot::seed;
use crate::durable;
use crate::paths::Root;

pub(super) fn write(root: &Root, wanted: &Seed) -> Result<Done, Failure> {
    if seed::load(&root.state())?.as_ref() == Some(wanted) {
        durable::sweep(&root.state().seed())?;
    } else {
        seed::store(&root.state(), wanted)?;
    }
    seed::restore(root)?;
    Ok(Done::default())
}
