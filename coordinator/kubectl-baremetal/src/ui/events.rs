//! Events of the coordinator by object, as the API server keeps them (for an hour).

use std::collections::{BTreeMap, HashMap};

use coordinator_api::notes::HostNote;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;

use crate::fleet::{Id, Kind};
use crate::view::EventView;

/// Bound of the Events of one object.
const KEPT: usize = 64;

/// Events by object, and by their own name.
#[derive(Debug, Default)]
pub(super) struct EventLog(HashMap<Id, BTreeMap<String, EventView>>);

impl EventLog {
    /// Inserts an Event, and returns the objects that it is about.
    pub(super) fn insert(&mut self, event: &Event) -> Vec<Id> {
        let targets = list_targets(event);
        for id in &targets {
            let events = self.0.entry(id.clone()).or_default();
            events.insert(event.name_any(), EventView::read(event));
            if events.len() > KEPT {
                let oldest = events.iter().min_by_key(|(_, event)| event.last).map(|(name, _)| name.clone());
                oldest.map(|name| events.remove(&name));
            }
        }
        targets
    }

    pub(super) fn remove(&mut self, event: &Event) {
        for id in list_targets(event) {
            if let Some(events) = self.0.get_mut(&id) {
                events.remove(&event.name_any());
                if events.is_empty() {
                    self.0.remove(&id);
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The Events about an object, the newest last.
    pub(super) fn of(&self, id: &Id) -> Vec<EventView> {
        let mut events: Vec<_> = self.0.get(id).into_iter().flat_map(BTreeMap::values).cloned().collect();
        events.sort_by_key(EventView::time);
        events
    }
}

impl EventView {
    fn time(&self) -> Option<Timestamp> {
        self.last.or(self.first)
    }
}

/// The object of an Event, and the host that the note names.
fn list_targets(event: &Event) -> Vec<Id> {
    let Some(id) = event.regarding.as_ref().and_then(read_reference) else { return vec![] };
    let host = event.note.as_deref().and_then(HostNote::read_host);
    let host = host.map(|host| Id::new(Kind::MachineInventory, &id.namespace, host));
    std::iter::once(id).chain(host).collect()
}

fn read_reference(object: &ObjectReference) -> Option<Id> {
    let kind = Kind::of(object.kind.as_deref()?)?;
    Some(Id::new(kind, object.namespace.as_deref().unwrap_or(""), object.name.as_deref()?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples::{NAMESPACE, id};

    fn event(name: &str, about: (&str, &str), note: &str, minute: u8) -> Event {
        let (kind, object) = about;
        let time = format!("2026-01-01T00:{minute:02}:00.000000Z");
        let value: Value = json!({
            "metadata": { "name": name, "namespace": NAMESPACE },
            "regarding": { "kind": kind, "name": object, "namespace": NAMESPACE },
            "reason": "PlanAssigned", "type": "Normal", "note": note, "eventTime": time,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn events_are_indexed_by_object_and_host() {
        let mut log = EventLog::default();
        let host = id(Kind::MachineInventory, "h");
        let later = event("b", ("MachineInventory", "h"), "released", 2);
        let assigned = event("a", ("BaremetalMachine", "m"), "plan clean-1 for MachineInventory h", 1);
        assert_eq!(log.insert(&later), std::slice::from_ref(&host));
        assert_eq!(log.insert(&assigned), [id(Kind::BaremetalMachine, "m"), host.clone()]);
        assert!(log.insert(&event("c", ("Pod", "p"), "", 1)).is_empty());
        let notes: Vec<_> = log.of(&host).into_iter().map(|event| event.note).collect();
        assert_eq!(notes, ["plan clean-1 for MachineInventory h", "released"]);
        log.remove(&assigned);
        assert_eq!((log.of(&host).len(), log.of(&id(Kind::BaremetalMachine, "m")).len()), (1, 0));
    }

    #[test]
    fn no_object_has_more_events_than_are_kept() {
        let mut log = EventLog::default();
        for number in 0..=KEPT {
            let minute = u8::try_from(number % 60).unwrap();
            log.insert(&event(&format!("e{number}"), ("MachineInventory", "h"), "", minute));
        }
        assert_eq!(log.of(&id(Kind::MachineInventory, "h")).len(), KEPT);
    }
}
