//! The networks of single hosts in seed ISOs, by registration. They change at most once a minute,
//! because every change makes another ISO.

use crate::key::Presence;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::network::{self, SingleHost};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

/// Delay between the first change and the ISOs that contain it, because hosts are imported and
/// changed in groups.
const DEBOUNCE: Duration = Duration::from_mins(1);

type RegistrationRef = ObjectRef<MachineRegistration>;
type Hosts = BTreeMap<String, Arc<SingleHost>>;

/// The state of an inventory that matters here, because most changes of an inventory are of its
/// status.
#[derive(PartialEq, Eq)]
struct Known {
    registration: RegistrationRef,
    version: (Option<String>, Option<i64>, Option<String>, Option<String>),
}

#[derive(Default)]
struct State {
    known: HashMap<ObjectRef<MachineInventory>, Known>,
    current: HashMap<RegistrationRef, Hosts>,
    published: HashMap<RegistrationRef, Arc<Hosts>>,
    changed: BTreeSet<(String, String)>,
}

/// The networks of all registrations.
#[derive(Default)]
pub struct HostNetworks {
    state: Mutex<State>,
    change: Notify,
}

impl HostNetworks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change of an inventory.
    pub fn apply_change(&self, inventory: &MachineInventory, presence: Presence) {
        let mut state = self.state();
        if state.apply(inventory, presence) {
            drop(state);
            self.change.notify_one();
        }
    }

    /// The hosts of a registration in its ISOs.
    pub fn published(&self, registration: &MachineRegistration) -> Arc<Hosts> {
        let state = self.state();
        state.published.get(&ObjectRef::from_obj(registration)).cloned().unwrap_or_default()
    }

    /// Publishes the changes for the ISOs. Returns namespace and name of each changed registration.
    pub fn publish(&self) -> BTreeSet<(String, String)> {
        let mut state = self.state();
        let changed = std::mem::take(&mut state.changed);
        for (namespace, name) in &changed {
            let key = RegistrationRef::new(name).within(namespace);
            match state.current.get(&key).cloned() {
                Some(hosts) => state.published.insert(key, Arc::new(hosts)),
                None => state.published.remove(&key),
            };
        }
        changed
    }

    /// Publishes each change after a minute, with all changes of that minute.
    pub async fn publish_changes(&self, wake: impl Fn(&BTreeSet<(String, String)>)) -> Infallible {
        loop {
            self.change.notified().await;
            tokio::time::sleep(DEBOUNCE).await;
            // A change within that minute wakes the loop once more, without a change to publish.
            let changed = self.publish();
            if !changed.is_empty() {
                wake(&changed);
            }
        }
    }
}

impl State {
    /// Applies a change of an inventory; `true` if an ISO changes.
    fn apply(&mut self, inventory: &MachineInventory, presence: Presence) -> bool {
        let (key, name) = (ObjectRef::from_obj(inventory), inventory.name_any());
        let known = Known::of(inventory).filter(|_| presence == Presence::Exists);
        let last = self.known.get(&key).filter(|last| last.version.1.is_some());
        if last.is_some() && last == known.as_ref() {
            return false;
        }
        let host = known.as_ref().and_then(|_| network::single_host(inventory)).map(Arc::new);
        let registration = known.as_ref().map(|known| known.registration.clone());
        let former = match known {
            Some(known) => self.known.insert(key, known),
            None => self.known.remove(&key),
        };
        let left =
            former.map(|former| former.registration).filter(|left| Some(left) != registration.as_ref());
        let has_left = left.is_some_and(|left| self.set_host(left, &name, None));
        let has_come = registration.is_some_and(|registration| self.set_host(registration, &name, host));
        has_left || has_come
    }

    fn set_host(&mut self, registration: RegistrationRef, name: &str, host: Option<Arc<SingleHost>>) -> bool {
        let hosts = self.current.entry(registration.clone()).or_default();
        let is_same = hosts.get(name) == host.as_ref();
        match host {
            Some(host) => hosts.insert(name.to_owned(), host),
            None => hosts.remove(name),
        };
        if hosts.is_empty() {
            self.current.remove(&registration);
        }
        if !is_same {
            self.changed.insert((registration.namespace.unwrap_or_default(), registration.name));
        }
        !is_same
    }
}

impl Known {
    /// `None` if the inventory names no registration.
    fn of(inventory: &MachineInventory) -> Option<Self> {
        let annotations = inventory.annotations();
        let registration = ObjectRef::new(annotations.get(annotation::REGISTRATION)?);
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        let reported = host.and_then(|host| host.system_uuid.clone());
        let stated = annotations.get(annotation::SYSTEM_UUID).cloned();
        let version = (inventory.uid(), inventory.metadata.generation, reported, stated);
        Some(Self { registration: registration.within(&inventory.namespace()?), version })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;

    fn inventory(name: &str, registration: &str, address: &str, generation: i64) -> MachineInventory {
        let card = json!({ "match": { "macaddress": "02:00:00:00:00:01" }, "addresses": [address] });
        let config = json!({ "version": 2, "ethernets": { "eno1": card } });
        let network = if address.is_empty() { Value::Null } else { json!({ "config": config }) };
        serde_json::from_value(json!({
            "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
            "metadata": {
                "name": name, "namespace": "fleet", "uid": name, "generation": generation,
                "annotations": { annotation::REGISTRATION: registration },
            },
            "spec": { "network": network },
        }))
        .unwrap()
    }

    fn registration(name: &str) -> MachineRegistration {
        let mut registration = MachineRegistration::default();
        registration.metadata.name = Some(name.into());
        registration.metadata.namespace = Some("fleet".into());
        registration
    }

    #[test]
    fn hosts_follow_their_inventories() {
        let networks = HostNetworks::default();
        let count = |name: &str| networks.published(&registration(name)).len();
        let changes = |inventory: &MachineInventory, presence| networks.state().apply(inventory, presence);
        let first = inventory("h-1", "a", "192.0.2.1/24", 1);
        assert!(changes(&first, Presence::Exists));
        assert_eq!(count("a"), 0, "not yet");
        assert_eq!(networks.publish().len(), 1);
        assert_eq!(count("a"), 1);
        assert!(!changes(&first, Presence::Exists), "its status changed");
        assert!(!changes(&inventory("h-1", "a", "192.0.2.1/24", 2), Presence::Exists), "something else");
        assert!(!changes(&inventory("h-2", "a", "", 1), Presence::Exists), "no network of its own");
        assert!(networks.publish().is_empty());
        assert!(changes(&inventory("h-1", "b", "192.0.2.1/24", 2), Presence::Exists), "it moved");
        assert_eq!(networks.publish().len(), 2);
        assert_eq!((count("a"), count("b")), (0, 1));
        assert!(changes(&inventory("h-1", "b", "192.0.2.1/24", 2), Presence::Deleted));
        networks.publish();
        assert_eq!(count("b"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_changes_is_published_once() {
        let (networks, published) = (Arc::new(HostNetworks::default()), Arc::new(AtomicUsize::new(0)));
        let (running, counted) = (networks.clone(), published.clone());
        let count = move |_: &BTreeSet<(String, String)>| {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let task = tokio::spawn(async move { running.publish_changes(count).await });
        for number in 0..100 {
            networks
                .apply_change(&inventory(&format!("h-{number}"), "a", "192.0.2.1/24", 1), Presence::Exists);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(DEBOUNCE).await;
        assert_eq!(published.load(Ordering::SeqCst), 1);
        assert_eq!(networks.published(&registration("a")).len(), 100);
        tokio::time::sleep(10 * DEBOUNCE).await;
        assert_eq!(published.load(Ordering::SeqCst), 1, "nothing more without a change");
        task.abort();
    }
}
