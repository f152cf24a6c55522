//! The place of a machine among those that wait for a host of a pool.

use coordinator_core::assignment::Effect;
use coordinator_core::pool::Wish;

use crate::controllers::context::Context;
use crate::index::Wait;
use crate::key::Key;

/// The wait and the reservation of a machine while it is reconciled.
pub(crate) struct Guard<'a> {
    context: &'a Context,
    machine: Key,
}

impl<'a> Guard<'a> {
    pub(crate) fn begin(context: &'a Context, machine: Key) -> Self {
        let guard = Self { context, machine };
        guard.set_wait(Some(Wait::Decision));
        guard
    }

    pub(super) fn set_wait(&self, wait: Option<Wait<Wish>>) {
        self.context.index.set_wait(&self.machine, wait, self.context.clock.now());
    }

    /// Reserves a chosen host until it is claimed, and releases the reservation of a machine that
    /// chooses none; `false` if the host is reserved for another machine.
    pub(super) fn reserve_host(&self, effect: Option<&Effect>) -> bool {
        match effect {
            Some(Effect::Choose { host }) => self.context.index.reserve_host(host.as_str(), &self.machine),
            // A host that another leader chose is claimed, whichever machine reserved it here.
            Some(Effect::Claim { .. }) => true,
            _ => {
                self.release_host();
                true
            }
        }
    }

    fn release_host(&self) {
        self.context.router.send_keys(self.context.index.release_reservation(&self.machine));
    }

    /// Gives up wait and reservation.
    pub(crate) fn abandon(&self) {
        self.set_wait(None);
        self.release_host();
    }
}
