//! The hosts of machines by the statements of inventories, which outlive the names in other objects.

use std::collections::HashMap;

use crate::index::groups::Partition;
use crate::key::Key;

#[derive(Debug, Default)]
pub(super) struct StatedHosts {
    /// By inventory: the machine, and the name of its host.
    stated: HashMap<Key, (Key, String)>,
    /// Inventories by machine.
    inventories: Partition<Key, Key>,
}

impl StatedHosts {
    pub(super) fn find(&self, inventory: &Key) -> Option<&(Key, String)> {
        self.stated.get(inventory)
    }

    /// Sets the machine and the host that an inventory states, and gives the former and the new machine.
    pub(super) fn set_inventory(&mut self, inventory: &Key, stated: Option<(Key, String)>) -> Vec<Key> {
        let machine = stated.as_ref().map(|(machine, _)| machine.clone());
        self.inventories.set_group(inventory, machine.as_ref());
        let old = match stated {
            Some(stated) => self.stated.insert(inventory.clone(), stated),
            None => self.stated.remove(inventory),
        };
        old.map(|(machine, _)| machine).into_iter().chain(machine).collect()
    }

    /// Names of the hosts that state a machine, in no order.
    pub(super) fn hosts_of(&self, machine: &Key) -> impl Iterator<Item = &String> {
        let inventories = self.inventories.group_members(machine);
        inventories.filter_map(|inventory| self.stated.get(inventory)).map(|(_, host)| host)
    }
}
