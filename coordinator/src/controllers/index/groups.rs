//! Sets by key, without empty ones.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

#[derive(Clone, Debug)]
pub(super) struct Groups<K, V>(HashMap<K, BTreeSet<V>>);

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, V: Clone + Ord> Groups<K, V> {
    /// Whether it was not a member before.
    pub(super) fn insert_member(&mut self, key: &K, value: &V) -> bool {
        self.0.entry(key.clone()).or_default().insert(value.clone())
    }

    pub(super) fn remove_member(&mut self, key: &K, value: &V) {
        if let Some(members) = self.0.get_mut(key) {
            members.remove(value);
            if members.is_empty() {
                self.0.remove(key);
            }
        }
    }

    /// Moves `value` from the group `old` to the group `new`.
    pub(super) fn replace_group(&mut self, old: Option<&K>, new: Option<&K>, value: &V) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.remove_member(old, value);
        }
        if let Some(new) = new {
            self.insert_member(new, value);
        }
    }

    pub(super) fn group_members(&self, key: &K) -> impl Iterator<Item = &V> {
        self.0.get(key).into_iter().flatten()
    }

    pub(super) fn contains_member(&self, key: &K, value: &V) -> bool {
        self.0.get(key).is_some_and(|members| members.contains(value))
    }
}
