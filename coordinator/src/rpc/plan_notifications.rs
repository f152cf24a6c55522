//! Notifies the streams of hosts of the changes of their inventories. A change costs a look-up and
//! wakes only the stream of its host.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_api::inventory::{CertifiedKey, LoadBalancerDuty, MachineInventory, PlanType, SessionStatus};
use coordinator_api::names::annotation;
use coordinator_core::host::certified::{ShownKey, refuses_key};
use coordinator_core::host::{AnnouncedPlan, HostRecord};
use coordinator_core::ids::Uid;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::refusal::Refusal;
use tokio::sync::{mpsc, watch};

use super::registered_hosts::RegisteredHosts;
use crate::ca::HostKey;
use crate::key::{Key, Presence};

/// The part of an inventory that the stream of its host follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostState {
    pub uid: Option<Uid>,
    pub session: Option<SessionStatus>,
    /// The plan in flight.
    pub plan: Option<AnnouncedPlan>,
    /// Duty of the host for its cluster's load balancer.
    pub duty: Option<LoadBalancerDuty>,
    /// The boot that a request of a reboot ends.
    pub rebooting_from: Option<String>,
    /// Checksum of the stated journal, if an operator has it removed.
    pub forgotten_journal: Option<String>,
    /// The version of the agent that an operator asks for.
    pub wanted_agent: Option<String>,
    /// The cause if calls of the host are refused.
    pub refusal: Option<Refusal>,
    /// The key of the certificates of the host.
    pub certified_key: Option<CertifiedKey>,
    /// Hash of the key that an operator took away.
    pub replaced_key: Option<String>,
    /// No inventory has the identity at the moment.
    pub is_deleted: bool,
}

impl HostState {
    /// Why the stream of a host with this key ends.
    pub fn refusal_of(&self, key: ShownKey<'_>) -> Option<Refusal> {
        let is_former = refuses_key(self.certified_key.as_ref(), self.replaced_key.as_deref(), key);
        self.refusal.or_else(|| is_former.then_some(Refusal::KeyReplaced))
    }

    fn parse(inventory: &MachineInventory) -> Self {
        let Some(record) = HostRecord::parse(inventory) else { return Self::default() };
        // The plans of a claim that is older than the node are not for this node.
        let is_foreign = record.foreign_owner().is_some();
        let plan = record.plan_in_flight().filter(|plan| {
            // The machine of an abandoned host does not exist, so that only its clean is sent.
            let is_wanted = !record.is_abandoned || plan.kind == PlanType::Clean;
            is_wanted && !is_foreign
        });
        let duty = record.load_balancer.as_ref().map(|known| &known.duty);
        Self {
            plan: plan.cloned(),
            duty: duty.filter(|duty| !record.is_abandoned || duty.address.is_empty()).cloned(),
            forgotten_journal: inventory.forgotten_journal().map(str::to_owned),
            wanted_agent: inventory.wanted_agent().map(str::to_owned),
            refusal: record.refusal(),
            certified_key: record.certified_key,
            replaced_key: record.replaced_key,
            rebooting_from: record.rebooting_from,
            uid: record.uid,
            session: record.session,
            is_deleted: false,
        }
    }
}

/// The identity of an inventory.
pub fn host_key(inventory: &MachineInventory) -> Option<HostKey> {
    let tpm_hash = inventory.spec.tpm_hash.clone().filter(|hash| !hash.is_empty())?;
    Some(HostKey { namespace: inventory.namespace()?.into(), tpm_hash })
}

struct Entry {
    name: String,
    state: watch::Sender<HostState>,
}

#[derive(Default)]
struct Index {
    entries: BTreeMap<HostKey, Entry>,
    registered: RegisteredHosts,
    keys: HashMap<ObjectRef<MachineInventory>, HostKey>,
    /// Gets the host of each event that shows an open session.
    open_sessions: Option<mpsc::UnboundedSender<HostKey>>,
}

/// Inventories by identity, and the streams that follow them.
#[derive(Default)]
pub struct PlanNotifications(Mutex<Index>);

/// The state of a host, followed by its stream.
pub struct Subscription {
    notifications: Arc<PlanNotifications>,
    key: HostKey,
    state: watch::Receiver<HostState>,
}

impl PlanNotifications {
    fn lock_index(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn apply_change(&self, inventory: &MachineInventory, presence: Presence) {
        match presence {
            Presence::Exists => self.lock_index().update_host(inventory),
            Presence::Deleted => self.lock_index().delete_host(inventory),
        }
    }

    /// Name of the inventory with that identity.
    pub fn find_name(&self, key: &HostKey) -> Option<String> {
        let index = self.lock_index();
        let entry = index.entries.get(key).filter(|entry| !entry.state.borrow().is_deleted)?;
        Some(entry.name.clone())
    }

    /// The identity with that hash, if only one namespace has it.
    pub fn find_only_key(&self, tpm_hash: &str) -> Option<HostKey> {
        let first = HostKey { tpm_hash: tpm_hash.to_owned(), namespace: "".into() };
        let index = self.lock_index();
        let mut found = index
            .entries
            .range(first..)
            .take_while(|(key, _)| key.tpm_hash == tpm_hash)
            .filter(|(_, entry)| !entry.state.borrow().is_deleted);
        let (only, next) = (found.next()?, found.next());
        next.is_none().then(|| only.0.clone())
    }

    /// Number of inventories of a registration.
    pub fn count_registered(&self, registration: &Key) -> usize {
        self.lock_index().registered.count_hosts(registration)
    }

    /// An inventory of the registration has the identity.
    pub fn is_registered(&self, registration: &str, key: &HostKey) -> bool {
        self.lock_index().registered.contains_host(registration, key)
    }

    /// The host of each later event that shows an open session.
    pub fn follow_open_sessions(&self) -> mpsc::UnboundedReceiver<HostKey> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock_index().open_sessions = Some(sender);
        receiver
    }

    /// Follows the inventory with that identity, also through a deletion and recreation. `inventory` is
    /// its state for the case that the watch has not seen it yet.
    pub fn subscribe(self: &Arc<Self>, key: &HostKey, inventory: &MachineInventory) -> Subscription {
        let mut index = self.lock_index();
        let entry = index.entries.entry(key.clone()).or_insert_with(|| Entry {
            name: inventory.name_any(),
            state: watch::Sender::new(HostState::parse(inventory)),
        });
        let state = entry.state.subscribe();
        Subscription { notifications: self.clone(), key: key.clone(), state }
    }
}

impl Index {
    fn update_host(&mut self, inventory: &MachineInventory) {
        let key = host_key(inventory);
        self.forget_former_key(inventory, key.as_ref());
        let Some(key) = key else { return };
        self.registered.set_host(&key, inventory.annotations().get(annotation::REGISTRATION));
        let new = HostState::parse(inventory);
        if new.session.as_ref().is_some_and(|session| session.ended.is_none())
            && let Some(open_sessions) = &self.open_sessions
        {
            // The receiver is gone when the process ends.
            let _ = open_sessions.send(key.clone());
        }
        let entry = self
            .entries
            .entry(key)
            .or_insert_with(|| Entry { name: String::new(), state: watch::Sender::default() });
        entry.name = inventory.name_any();
        entry.state.send_if_modified(|old| {
            let is_changed = *old != new;
            *old = new;
            is_changed
        });
    }

    /// Marks the former key as deleted if the inventory has another key now.
    fn forget_former_key(&mut self, inventory: &MachineInventory, key: Option<&HostKey>) {
        let object = ObjectRef::from_obj(inventory);
        let former = match key {
            Some(key) => self.keys.insert(object, key.clone()),
            None => self.keys.remove(&object),
        };
        if let Some(former) = former.filter(|former| Some(former) != key)
            && self.entries.get(&former).is_some_and(|entry| entry.name == inventory.name_any())
        {
            self.mark_deleted(&former);
        }
    }

    fn delete_host(&mut self, inventory: &MachineInventory) {
        self.keys.remove(&ObjectRef::from_obj(inventory));
        let Some(key) = host_key(inventory) else { return };
        let uid = inventory.uid().as_deref().and_then(Uid::parse);
        // An inventory that was recreated under another name has another UID.
        if self.entries.get(&key).is_some_and(|entry| entry.state.borrow().uid == uid) {
            self.mark_deleted(&key);
        }
    }

    fn mark_deleted(&mut self, key: &HostKey) {
        self.registered.set_host(key, None);
        let Some(entry) = self.entries.get(key) else { return };
        if entry.state.receiver_count() == 0 {
            self.entries.remove(key);
        } else {
            entry.state.send_modify(|state| *state = HostState { is_deleted: true, ..HostState::default() });
        }
    }
}

impl Subscription {
    /// The newest state.
    pub fn latest_state(&mut self) -> HostState {
        self.state.borrow_and_update().clone()
    }

    /// Waits for a newer state.
    pub async fn wait_changed(&mut self) {
        // The sender lives as long as a subscription follows it.
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut index = self.notifications.lock_index();
        let entry = index.entries.get(&self.key);
        if entry.is_some_and(|entry| entry.state.borrow().is_deleted && entry.state.receiver_count() <= 1) {
            index.entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::inventory::{MachineInventorySpec, PlanState, PlanStatus, PlanType};
    use proto::plan::{Checksum, Generation};

    const EXISTS: Presence = Presence::Exists;

    fn inventory(hash: &str, uid: &str) -> MachineInventory {
        let spec = MachineInventorySpec { tpm_hash: Some(hash.into()), ..Default::default() };
        let mut inventory = MachineInventory::new(&format!("host-{uid}"), spec);
        inventory.metadata.namespace = Some("fleet".into());
        inventory.metadata.uid = Some(uid.into());
        inventory
    }

    fn with_plan(hash: &str, generation: i64, state: Option<PlanState>) -> MachineInventory {
        let mut inventory = inventory(hash, "1");
        inventory.status.get_or_insert_default().plan = Some(PlanStatus {
            id: Some("clean-1".into()),
            checksum: Some(Checksum::of(b"plan").to_string()),
            kind: Some(PlanType::Clean),
            generation: Some(generation),
            state,
            ..PlanStatus::default()
        });
        inventory
    }

    fn key(hash: &str) -> HostKey {
        HostKey { namespace: "fleet".into(), tpm_hash: hash.into() }
    }

    #[test]
    fn event_wakes_the_stream_of_its_host() {
        let notifications = Arc::<PlanNotifications>::default();
        let mut one = notifications.subscribe(&key("a"), &inventory("a", "1"));
        let mut two = notifications.subscribe(&key("b"), &inventory("b", "2"));
        drop((one.latest_state(), two.latest_state()));
        let announced = with_plan("a", 4, None);
        notifications.apply_change(&announced, EXISTS);
        assert!(one.state.has_changed().unwrap() && !two.state.has_changed().unwrap());
        let plan = one.latest_state().plan.unwrap();
        assert_eq!((plan.generation, plan.secret.as_str()), (Generation(4), "host-1"));
        notifications.apply_change(&announced, EXISTS);
        assert!(!one.state.has_changed().unwrap(), "nothing new");
        notifications.apply_change(&with_plan("a", 4, Some(PlanState::Applied)), EXISTS);
        assert_eq!(one.latest_state().plan, None);
    }

    #[test]
    fn subscription_outlives_a_recreated_inventory() {
        let notifications = Arc::<PlanNotifications>::default();
        notifications.apply_change(&inventory("a", "1"), EXISTS);
        let mut followed = notifications.subscribe(&key("a"), &inventory("a", "1"));
        notifications.apply_change(&inventory("a", "1"), Presence::Deleted);
        assert!(followed.latest_state().is_deleted);
        assert_eq!(notifications.find_name(&key("a")), None);
        notifications.apply_change(&inventory("a", "2"), EXISTS);
        let state = followed.latest_state();
        assert_eq!((state.is_deleted, state.uid), (false, Uid::parse("2")));
        assert_eq!(notifications.find_name(&key("a")).as_deref(), Some("host-2"));
        notifications.apply_change(&inventory("a", "1"), Presence::Deleted);
        assert!(!followed.latest_state().is_deleted, "that was the former one");
    }

    #[test]
    fn deleted_inventories_leave_no_entry() {
        let notifications = Arc::<PlanNotifications>::default();
        notifications.apply_change(&inventory("a", "1"), EXISTS);
        let followed = notifications.subscribe(&key("b"), &inventory("b", "2"));
        notifications.apply_change(&inventory("b", "2"), EXISTS);
        for (hash, uid) in [("a", "1"), ("b", "2")] {
            notifications.apply_change(&inventory(hash, uid), Presence::Deleted);
        }
        assert_eq!(notifications.lock_index().entries.len(), 1, "followed");
        drop(followed);
        assert_eq!(notifications.lock_index().entries.len(), 0);
    }

    #[test]
    fn host_is_found_in_its_namespace_only() {
        let notifications = PlanNotifications::default();
        notifications.apply_change(&inventory("a", "1"), EXISTS);
        assert_eq!(notifications.find_name(&key("a")).as_deref(), Some("host-1"));
        let other = HostKey { namespace: "other".into(), ..key("a") };
        assert_eq!(notifications.find_name(&other), None);
    }

    #[test]
    fn inventory_is_found_by_its_newest_key_only() {
        let notifications = PlanNotifications::default();
        for hash in ["a", "b"] {
            notifications.apply_change(&inventory(hash, "1"), EXISTS);
        }
        assert_eq!((notifications.find_name(&key("a")), notifications.lock_index().entries.len()), (None, 1));
        assert_eq!(notifications.find_name(&key("b")).as_deref(), Some("host-1"));
    }
}
