//! The objects that an event concerns, and their queues, which only the leader has.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::key::{Key, Kind};

/// The objects that are to be reconciled after an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triggers(BTreeSet<(Kind, Key)>);

impl Triggers {
    pub fn of(kind: Kind, keys: impl IntoIterator<Item = Key>) -> Self {
        keys.into_iter().map(|key| (kind, key)).collect()
    }

    pub(crate) fn add(&mut self, kind: Kind, keys: impl IntoIterator<Item = Key>) {
        self.0.extend(keys.into_iter().map(|key| (kind, key)));
    }

    pub fn keys_of(&self, kind: Kind) -> BTreeSet<Key> {
        self.0.iter().filter(|(other, _)| *other == kind).map(|(_, key)| key.clone()).collect()
    }
}

impl<const N: usize> From<[(Kind, Key); N]> for Triggers {
    fn from(subjects: [(Kind, Key); N]) -> Self {
        Self(subjects.into())
    }
}

impl FromIterator<(Kind, Key)> for Triggers {
    fn from_iter<T: IntoIterator<Item = (Kind, Key)>>(subjects: T) -> Self {
        Self(subjects.into_iter().collect())
    }
}

impl Extend<(Kind, Key)> for Triggers {
    fn extend<T: IntoIterator<Item = (Kind, Key)>>(&mut self, subjects: T) {
        self.0.extend(subjects);
    }
}

impl IntoIterator for Triggers {
    type Item = (Kind, Key);
    type IntoIter = std::collections::btree_set::IntoIter<(Kind, Key)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The queues of the controllers while this replica leads. Without a queue keys are dropped,
/// because a new leader reconciles every object. The controllers take every key at once and drop
/// repeats, so that no queue grows beyond a burst.
#[derive(Clone, Debug, Default)]
pub struct Router(Arc<RwLock<HashMap<Kind, UnboundedSender<Key>>>>);

impl Router {
    pub(crate) fn open_queue(&self, kind: Kind) -> UnboundedReceiver<Key> {
        let (queue, keys) = unbounded_channel();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(kind, queue);
        keys
    }

    pub(crate) fn close_queues(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub fn send_keys(&self, triggers: Triggers) {
        let queues = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (kind, key) in triggers {
            if let Some(queue) = queues.get(&kind) {
                // A closed queue is a leadership that has just ended.
                let _ = queue.send(key);
            }
        }
    }
}
