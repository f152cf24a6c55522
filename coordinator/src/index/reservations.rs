use std::collections::HashMap;

use crate::key::Key;

/// Hosts that machines have chosen and not claimed yet. Without reservations, machines that are
/// created at once would all choose the same host. They only save writes, because the claim
/// decides.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    machines: HashMap<Key, Key>,
    hosts: HashMap<Key, Key>,
}

impl Reservations {
    pub(crate) fn is_taken(&self, host: &Key, machine: &Key) -> bool {
        self.machines.get(host).is_some_and(|holder| holder != machine)
    }

    /// Reserves a host, unless another machine has it. A machine has one reservation.
    pub(crate) fn insert_reservation(&mut self, host: &Key, machine: &Key) -> bool {
        if self.is_taken(host, machine) {
            return false;
        }
        self.release_machine(machine);
        self.machines.insert(host.clone(), machine.clone());
        self.hosts.insert(machine.clone(), host.clone());
        true
    }

    pub(crate) fn host_of(&self, machine: &Key) -> Option<&Key> {
        self.hosts.get(machine)
    }

    pub(crate) fn release_machine(&mut self, machine: &Key) -> Option<Key> {
        let host = self.hosts.remove(machine)?;
        self.machines.remove(&host);
        Some(host)
    }

    pub(crate) fn release_host(&mut self, host: &Key) {
        if let Some(machine) = self.machines.remove(host) {
            self.hosts.remove(&machine);
        }
    }
}
