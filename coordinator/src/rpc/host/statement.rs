//! The statement of an attached host.

use coordinator_core::host::statement::HostStatement;

use crate::ca::Peer;

/// The statement of a host when it attached, with its identity.
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
