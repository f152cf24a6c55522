//! Hosts by state, counted when a host changes, so that a scrape reads no host.

use crate::key::{Key, Presence};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::MachineInventory;

/// The labels by which a host is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostState {
    pub(super) state: &'static str,
    pub(super) ready: &'static str,
    /// The reason for which the host is not ready.
    pub(super) reason: Option<&'static str>,
}

/// The counts that a change of one host adds to and takes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) old: Option<HostState>,
    pub(super) new: Option<HostState>,
}

impl HostState {
    /// Reads the stored facts. A reason that is not ours counts as `Other`.
    fn of(inventory: &MachineInventory) -> Self {
        let conditions = inventory.status.as_ref().map(|status| &status.conditions);
        let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == Type::Ready.as_str()));
        let status = match ready.map(|ready| ready.status.as_str()) {
            Some("True") => "True",
            Some("False") => "False",
            Some(_) | None => "Unknown",
        };
        let known = ready.and_then(|ready| ready.reason.parse::<Reason>().ok());
        Self {
            state: inventory.allocation_state().into(),
            ready: status,
            reason: (status != "True").then(|| known.map_or("Other", Reason::as_str)),
        }
    }
}

/// The labels of each host.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<HashMap<Key, HostState>>);

impl Hosts {
    /// Records a change; `None` if no count changes.
    pub(super) fn record_change(&self, inventory: &MachineInventory, presence: Presence) -> Option<Change> {
        let key = Key::of(inventory);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = (presence == Presence::Exists).then(|| HostState::of(inventory));
        let old = match new {
            Some(new) => known.insert(key, new),
            None => known.remove(&key),
        };
        (old != new).then_some(Change { old, new })
    }
}
