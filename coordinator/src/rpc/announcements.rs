//! From the one watch on inventories to the streams of single hosts: an event
//! costs one look-up and wakes the stream of that host alone.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coordinator_api::conditions::{self, Reason, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_core::host;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use proto::plan::Generation;
use tokio::sync::watch;

/// A plan that the host has not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Name of the plan.
    pub id: String,
    /// Number of the plan.
    pub generation: Generation,
    /// The Secret that holds it.
    pub secret: String,
}

/// What a stream has to know of its inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// What the host has to do.
    pub plan: Option<Unfinished>,
    /// The status says that the host is lost, or its plan unusable: a stream
    /// that is alive, or has read the plan, knows better.
    pub doubted: bool,
    /// Two hosts claim the identity.
    pub quarantined: bool,
    /// The inventory was deleted.
    pub gone: bool,
}

/// What of an inventory its stream must be told.
#[must_use]
pub fn news(inventory: &MachineInventory) -> News {
    let because = |reason: Reason| {
        conditions::find(inventory.conditions(), Type::Ready)
            .is_some_and(|condition| condition.reason == reason.as_str())
    };
    let doubts = [Reason::PlanSecretMissing, Reason::PlanSecretInvalid];
    News {
        plan: unfinished(inventory),
        doubted: host::is_unreachable(inventory) || doubts.into_iter().any(because),
        quarantined: inventory.annotations().contains_key(annotation::QUARANTINED),
        gone: false,
    }
}

fn unfinished(inventory: &MachineInventory) -> Option<Unfinished> {
    let plan = inventory.plan().filter(|plan| plan.state.is_none())?;
    let generation = u64::try_from(plan.generation?).ok().filter(|generation| *generation > 0)?;
    let secret = plan.secret_ref.as_ref().and_then(|secret| secret.name.clone());
    Some(Unfinished {
        id: plan.id.clone().unwrap_or_default(),
        generation: Generation(generation),
        secret: secret.unwrap_or_else(|| inventory.name_any()),
    })
}

/// Namespace and the rest of a key.
type Key = (String, String);

struct Known {
    name: Key,
    hash: Option<Key>,
    news: watch::Sender<News>,
}

#[derive(Default)]
struct Index {
    by_uid: HashMap<String, Known>,
    by_hash: HashMap<Key, String>,
    /// UIDs seen since a list began; whoever is missing at its end is gone.
    listing: Option<HashSet<String>>,
}

/// The index. Fed by the reflector, read by the handlers.
#[derive(Default)]
pub struct Announcements(Mutex<Index>);

impl Announcements {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up an event of the watcher behind the store, after the store has.
    pub fn event(&self, event: &Event<MachineInventory>) {
        match event {
            Event::Apply(inventory) | Event::InitApply(inventory) => self.observe(inventory),
            Event::Delete(inventory) => self.forget(inventory),
            Event::Init => self.index().listing = Some(HashSet::new()),
            Event::InitDone => self.index().end_listing(),
        }
    }

    /// Takes up an inventory as it is now.
    pub fn observe(&self, inventory: &MachineInventory) {
        let Some(uid) = inventory.uid() else { return };
        let mut index = self.index();
        if let Some(listing) = &mut index.listing {
            listing.insert(uid.clone());
        }
        let namespace = inventory.namespace().unwrap_or_default();
        let hash = inventory.spec.tpm_hash.clone().map(|hash| (namespace.clone(), hash));
        if let Some(hash) = &hash {
            index.by_hash.insert(hash.clone(), uid.clone());
        }
        let known = index.by_uid.entry(uid).or_insert_with(Known::unseen);
        known.name = (namespace, inventory.name_any());
        known.hash = hash;
        let new = news(inventory);
        known.news.send_if_modified(|old| {
            let changed = *old != new;
            *old = new;
            changed
        });
    }

    /// Takes up that an inventory is gone, and tells its stream.
    pub fn forget(&self, inventory: &MachineInventory) {
        if let Some(uid) = inventory.uid() {
            self.index().remove(&uid);
        }
    }

    /// Namespace and name of the inventory with that `spec.tpmHash`.
    #[must_use]
    pub fn find(&self, namespace: &str, hash: &str) -> Option<Key> {
        let index = self.index();
        let uid = index.by_hash.get(&(namespace.to_owned(), hash.to_owned()))?;
        index.by_uid.get(uid).map(|known| known.name.clone())
    }

    /// News of one inventory from now on, the newest at once.
    #[must_use]
    pub fn subscribe(&self, inventory: &MachineInventory) -> watch::Receiver<News> {
        let uid = inventory.uid().unwrap_or_default();
        let known = || self.index().by_uid.get(&uid).map(|known| known.news.subscribe());
        if let Some(news) = known() {
            return news;
        }
        // Asked for by name before the watch brought it.
        self.observe(inventory);
        known().unwrap_or_else(|| watch::channel(News::default()).1)
    }
}

impl Known {
    fn unseen() -> Self {
        Self { name: Key::default(), hash: None, news: watch::Sender::default() }
    }
}

impl Index {
    fn remove(&mut self, uid: &str) {
        let Some(known) = self.by_uid.remove(uid) else { return };
        if let Some(hash) = known.hash
            && self.by_hash.get(&hash).is_some_and(|owner| owner == uid)
        {
            self.by_hash.remove(&hash);
        }
        known.news.send_modify(|news| news.gone = true);
    }

    fn end_listing(&mut self) {
        let Some(seen) = self.listing.take() else { return };
        let gone: Vec<_> = self.by_uid.keys().filter(|uid| !seen.contains(*uid)).cloned().collect();
        for uid in gone {
            self.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_api::inventory::{MachineInventorySpec, PlanState, PlanStatus};

    fn inventory(uid: &str) -> MachineInventory {
        let spec = MachineInventorySpec { tpm_hash: Some(format!("hash-{uid}")), ..Default::default() };
        let mut inventory = MachineInventory::new(&format!("host-{uid}"), spec);
        inventory.metadata.namespace = Some("fleet".into());
        inventory.metadata.uid = Some(uid.into());
        inventory
    }

    fn with_plan(uid: &str, generation: i64, state: Option<PlanState>) -> MachineInventory {
        let mut inventory = inventory(uid);
        inventory.status.get_or_insert_default().plan =
            Some(PlanStatus { generation: Some(generation), state, ..PlanStatus::default() });
        inventory
    }

    #[test]
    fn an_event_wakes_the_stream_of_its_host_and_no_other() {
        let announcements = Announcements::default();
        let (mut one, mut two) =
            (announcements.subscribe(&inventory("1")), announcements.subscribe(&inventory("2")));
        one.mark_unchanged();
        two.mark_unchanged();
        announcements.observe(&with_plan("1", 4, None));
        assert!(one.has_changed().unwrap() && !two.has_changed().unwrap());
        let plan = one.borrow_and_update().plan.clone().unwrap();
        assert_eq!((plan.generation, plan.secret.as_str()), (Generation(4), "host-1"));
        announcements.observe(&with_plan("1", 4, None));
        assert!(!one.has_changed().unwrap(), "nothing new");
        announcements.observe(&with_plan("1", 4, Some(PlanState::Applied)));
        assert_eq!(one.borrow_and_update().plan, None);
        announcements.forget(&inventory("1"));
        assert!(one.borrow_and_update().gone);
    }

    #[test]
    fn a_host_is_found_by_its_key_in_its_namespace_until_it_is_gone() {
        let announcements = Announcements::default();
        announcements.observe(&inventory("1"));
        let want = Some(("fleet".to_owned(), "host-1".to_owned()));
        assert_eq!(announcements.find("fleet", "hash-1"), want);
        assert_eq!(announcements.find("other", "hash-1"), None);
        announcements.forget(&inventory("1"));
        assert_eq!(announcements.find("fleet", "hash-1"), None);
    }

    #[test]
    fn whoever_is_missing_from_a_new_list_is_gone() {
        let announcements = Announcements::default();
        let (one, two) = (announcements.subscribe(&inventory("1")), announcements.subscribe(&inventory("2")));
        announcements.event(&Event::Init);
        announcements.event(&Event::InitApply(inventory("2")));
        announcements.event(&Event::InitDone);
        assert!(one.borrow().gone && !two.borrow().gone);
        assert_eq!(announcements.find("fleet", "hash-1"), None);
    }
}
