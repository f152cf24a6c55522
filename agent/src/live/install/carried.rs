//! What would be lost with the disk of an installed host. The coordinator asks for a second
//! install only where a host carries nothing; it may have forgotten what it knew.

use proto::v1alpha1::{PlanKind, PlanOutcome};

use crate::paths::StateDir;
use crate::plan::journal::{self, Journal};

/// What the disk carries of a node; nothing where it was cleaned, or never carried one. What
/// cannot be read may be a node.
pub(super) fn describe_node(state: &StateDir) -> Option<String> {
    if state.node_identity().try_exists().unwrap_or(true) {
        return Some("the disk carries a node".to_owned());
    }
    match journal::read(&state.journal()) {
        Ok(None) => None,
        Ok(Some(journal)) => {
            may_leave_node(&journal).then(|| format!("the disk carries what plan {} left", journal.plan_id()))
        }
        Err(_) => Some("the journal of its plans cannot be read, so the disk may carry a node".to_owned()),
    }
}

/// The coordinator goes by the same rule before it asks for the install.
fn may_leave_node(journal: &Journal) -> bool {
    match journal.kind() {
        PlanKind::Clean => journal.outcome() != PlanOutcome::Applied,
        PlanKind::Reprovision | PlanKind::Unspecified => true,
        PlanKind::Custom => journal.outcome() == PlanOutcome::InProgress,
    }
}
