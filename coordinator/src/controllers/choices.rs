//! Hosts that machines have chosen and not claimed yet.
//!
//! From the caches alone, machines that are made at once would all choose the
//! same host, and all but one in vain. This memory only saves writes: the claim
//! decides, and another leader begins with an empty one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use kube::runtime::reflector::ObjectRef;

type Host = ObjectRef<MachineInventory>;
type Machine = ObjectRef<BaremetalMachine>;

/// Who has chosen what.
#[derive(Clone, Debug, Default)]
pub struct Choices(Arc<Mutex<HashMap<Host, Machine>>>);

impl Choices {
    fn chosen(&self) -> MutexGuard<'_, HashMap<Host, Machine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine that has chosen `host`.
    #[must_use]
    pub fn by(&self, host: &Host) -> Option<Machine> {
        self.chosen().get(host).cloned()
    }

    /// Promises `host` to `machine`, unless another one that `lives` has it.
    pub fn promise(&self, host: &Host, machine: &Machine, lives: impl Fn(&Machine) -> bool) -> Promised {
        let mut chosen = self.chosen();
        if chosen.get(host).is_some_and(|other| other != machine && lives(other)) {
            return Promised::Taken;
        }
        chosen.retain(|_, other| other != machine);
        chosen.insert(host.clone(), machine.clone());
        Promised::Yes
    }

    /// `machine` has claimed its host, or wants none any more.
    pub fn forget(&self, machine: &Machine) {
        self.chosen().retain(|_, other| other != machine);
    }
}

/// Whether a host was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promised {
    /// It was.
    Yes,
    /// Somebody else was faster.
    Taken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_promised_to_one_living_machine_and_a_machine_has_one_promise() {
        let choices = Choices::default();
        let host = |name: &str| Host::new(name).within("fleet");
        let machine = |name: &str| Machine::new(name).within("fleet");
        let lives = |_: &Machine| true;
        assert_eq!(choices.promise(&host("a"), &machine("1"), lives), Promised::Yes);
        assert_eq!(choices.promise(&host("a"), &machine("1"), lives), Promised::Yes);
        assert_eq!(choices.promise(&host("a"), &machine("2"), lives), Promised::Taken);
        assert_eq!(choices.promise(&host("b"), &machine("1"), lives), Promised::Yes);
        assert_eq!(choices.promise(&host("a"), &machine("2"), lives), Promised::Yes);
        assert_eq!(choices.promise(&host("b"), &machine("3"), |_| false), Promised::Yes);
        choices.forget(&machine("2"));
        assert_eq!((choices.by(&host("a")), choices.by(&host("b"))), (None, Some(machine("3"))));
    }
}
