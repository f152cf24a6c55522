//! What is deleted while a watch is interrupted: the list that follows does not
//! name it.

use std::collections::HashSet;
use std::hash::Hash;

/// Keys of the list that a watcher is giving, between its `Init` and `InitDone`.
pub(super) struct Listing<K>(Option<HashSet<K>>);

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Hash + Eq + Clone> Listing<K> {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.0 = Some(HashSet::new());
    }

    /// An object exists.
    pub(super) fn note_key(&mut self, key: &K) {
        if let Some(listed) = &mut self.0 {
            listed.insert(key.clone());
        }
    }

    /// The list ends; those of `known` that it did not name.
    pub(super) fn end<'a>(&mut self, known: impl Iterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let Some(listed) = self.0.take() else { return Vec::new() };
        known.filter(|key| !listed.contains(*key)).cloned().collect()
    }
}
