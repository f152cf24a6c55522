//! What a host stated when it attached.

use coordinator_core::host::statement::HostStatement;

use crate::ca::Peer;

/// What a host stated when it attached, and who it is.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) peer: Peer,
    pub(super) stated: HostStatement,
}

impl Statement {
    pub(super) fn boot_id(&self) -> &str {
        &self.stated.system.boot_id
    }
}
