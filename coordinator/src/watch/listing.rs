//! Objects that are deleted while a watch is interrupted, found because the next list does not name
//! them, and kinds whose first list is not complete.

use std::collections::HashSet;
use std::hash::Hash;

use tokio::sync::watch;

/// The number of kinds that are not listed yet. The readiness of a store of kube-runtime is not
/// used, because it needs a list of its own, which would copy each object once more.
#[derive(Clone, Debug)]
pub(super) struct Unlisted(watch::Sender<usize>);

impl Default for Unlisted {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Unlisted {
    pub(super) fn add_kind(&self) {
        self.0.send_modify(|kinds| *kinds += 1);
    }

    /// Every namespace of a kind was listed.
    pub(super) fn remove_kind(&self) {
        self.0.send_modify(|kinds| *kinds -= 1);
    }

    /// Waits until every kind was listed.
    pub(super) async fn wait_none(&self) {
        // The wait cannot fail, because this object has a sender.
        let _ = self.0.subscribe().wait_for(|kinds| *kinds == 0).await;
    }
}

/// Keys of the list that a watcher receives between `Init` and `InitDone`.
pub(super) struct Listing<K>(Option<HashSet<K>>);

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Hash + Eq + Clone> Listing<K> {
    pub(super) fn begin(&mut self) {
        self.0 = Some(HashSet::new());
    }

    pub(super) fn note_key(&mut self, key: &K) {
        if let Some(listed) = &mut self.0 {
            listed.insert(key.clone());
        }
    }

    /// Ends the list, and gives the keys of `known` that it did not name.
    pub(super) fn end<'a>(&mut self, known: impl Iterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let Some(listed) = self.0.take() else { return Vec::new() };
        known.filter(|key| !listed.contains(*key)).cloned().collect()
    }
}
