//! Detects bootstrap commands that a reboot interrupted. cloud-init records them as run before it
//! starts them, so the next boot does not run them again and the node would never join.

use proto::v1alpha1::{PlanKind, PlanOutcome};

use crate::ground::failure::Failure;
use crate::ground::paths::Root;
use crate::host::observed;
use crate::state::bootstrap::BootstrapRecord;
use crate::state::{journal, receipt, seed};

/// cloud-init's record of the module that runs `runcmd`, below the directory of its instance.
const COMMANDS_BEGUN: &str = "sem/config_scripts_user";
/// The last module writes this file, and the next boot removes it.
const FINISHED: &str = "boot-finished";

/// Records whether the boot before this one ended while the commands of the newest plan ran.
/// Returns true if they were interrupted.
pub(super) fn record_interrupted(root: &Root) -> Result<bool, Failure> {
    let Ok(Some(journal)) = journal::read(&root.state().journal()) else { return Ok(false) };
    if journal.kind() != PlanKind::Reprovision || journal.outcome() != PlanOutcome::InProgress {
        return Ok(false);
    }
    let this_boot = observed::boot_id(root)?;
    let is_later = receipt::read_receipt(root)
        .is_some_and(|receipt| receipt.plan_id == journal.plan_id() && receipt.boot_id != this_boot);
    let instance = seed::load(&root.state())?.and_then(|seed| seed::instance_id(&seed.meta_data));
    let Some(instance) = instance.filter(|_| is_later) else { return Ok(false) };
    let instance = root.join("/var/lib/cloud/instances").join(instance);
    // Only the boot after the commands can tell, because later boots do not leave these records.
    if BootstrapRecord::read(root, journal.plan_id()).is_some() {
        return Ok(false);
    }
    let has_begun = instance.join(COMMANDS_BEGUN).exists();
    let is_interrupted = has_begun && !instance.join(FINISHED).exists();
    if has_begun {
        BootstrapRecord { plan_id: journal.plan_id().to_owned(), is_interrupted }.write(root)?;
    }
    Ok(is_interrupted)
}
