//! The facts of objects on which others depend, at their last event. Most events change the status
//! alone, which concerns no other object.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use kube::Resource;

use crate::key::{Key, Presence};

/// The objects of one kind, with a hash of their facts.
#[derive(Debug, Default)]
pub(super) struct Seen(HashMap<Key, u64>);

impl Seen {
    /// Tells whether spec, metadata or `more` of the object changed since its last event.
    pub(super) fn note_change(
        &mut self,
        object: &impl Resource,
        presence: Presence,
        more: impl Hash,
    ) -> bool {
        let key = Key::of(object);
        if presence != Presence::Exists {
            return self.0.remove(&key).is_some();
        }
        let meta = object.meta();
        let mut hasher = DefaultHasher::new();
        (&meta.uid, meta.generation, meta.deletion_timestamp.is_some()).hash(&mut hasher);
        (&meta.labels, &meta.annotations, more).hash(&mut hasher);
        let hash = hasher.finish();
        self.0.insert(key, hash) != Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use coordinator_api::metal3::ipam::{IPPool, IPPoolSpec, IPPoolStatus};

    use super::*;

    #[test]
    fn a_status_alone_is_no_change() {
        let mut seen = Seen::default();
        let mut pool = IPPool::new("net", IPPoolSpec::default());
        pool.metadata.namespace = Some("fleet".into());
        pool.metadata.generation = Some(1);
        let mut note = |pool: &IPPool, presence| seen.note_change(pool, presence, ());
        assert!(note(&pool, Presence::Exists));
        pool.status = Some(IPPoolStatus::default());
        assert!(!note(&pool, Presence::Exists));
        pool.metadata.generation = Some(2);
        assert!(note(&pool, Presence::Exists));
        pool.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        assert!(note(&pool, Presence::Exists));
        assert!(note(&pool, Presence::Deleted) && note(&pool, Presence::Exists), "it is made again");
    }
}
