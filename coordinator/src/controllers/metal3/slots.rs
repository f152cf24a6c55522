//! What of each pool is in use: addresses of `IPPool`s, indexes of templates.
//!
//! A claim takes a value by creating an object whose name follows from it; that
//! is what decides. Reservations only keep claims that are reconciled at once
//! from trying the same value.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::controllers::index::Key;

/// Values by pool.
#[derive(Debug)]
pub(super) struct Slots<V> {
    pools: HashMap<Key, Pool<V>>,
    claims: HashMap<Key, (Key, Option<V>)>,
    objects: HashMap<Key, (Key, Key, V)>,
}

/// One pool: who holds what.
#[derive(Debug)]
struct Pool<V> {
    /// Objects that exist, with their claims.
    taken: HashMap<V, (Key, Key)>,
    /// What claims have chosen.
    reserved: HashMap<V, Key>,
    claims: BTreeSet<Key>,
}

impl<V> Default for Pool<V> {
    fn default() -> Self {
        Self { taken: HashMap::new(), reserved: HashMap::new(), claims: BTreeSet::new() }
    }
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self { pools: HashMap::new(), claims: HashMap::new(), objects: HashMap::new() }
    }
}

impl<V: Clone + Eq + Hash> Slots<V> {
    /// A claim, its pool and what it has chosen. Gives the claims that may have a
    /// value now.
    pub(super) fn update_claim(&mut self, claim: &Key, facts: Option<(Key, Option<V>)>) -> BTreeSet<Key> {
        let new = facts.as_ref().and_then(|(_, chosen)| chosen.clone());
        let old = match facts {
            Some(facts) => self.claims.insert(claim.clone(), facts),
            None => self.claims.remove(claim),
        };
        let mut freed = BTreeSet::new();
        if let Some((pool, _)) = old {
            let is_kept = self.claims.get(claim).is_some_and(|(now, _)| *now == pool);
            let entry = self.pools.entry(pool.clone()).or_default();
            // What was reserved and is not written yet stays while the claim does.
            let before = entry.reserved.len();
            entry.reserved.retain(|value, holder| {
                holder != claim || (is_kept && new.as_ref().is_none_or(|new| new == value))
            });
            if !is_kept {
                entry.claims.remove(claim);
            }
            if entry.reserved.len() < before {
                freed = self.waiting_claims(&pool);
            }
        }
        if let Some((pool, chosen)) = self.claims.get(claim).cloned() {
            let entry = self.pools.entry(pool).or_default();
            entry.claims.insert(claim.clone());
            if let Some(value) = chosen {
                entry.reserved.entry(value).or_insert_with(|| claim.clone());
            }
        }
        freed
    }

    /// An object that holds a value: its pool, its claim, the value. Gives the
    /// claims that it concerns.
    pub(super) fn update_object(&mut self, object: &Key, facts: Option<(Key, Key, V)>) -> BTreeSet<Key> {
        let old = match &facts {
            Some(facts) => self.objects.insert(object.clone(), facts.clone()),
            None => self.objects.remove(object),
        };
        let mut concerned = BTreeSet::new();
        if let Some((pool, claim, value)) = old {
            concerned.insert(claim);
            let entry = self.pools.entry(pool.clone()).or_default();
            if entry.taken.get(&value).is_some_and(|(holder, _)| holder == object) {
                entry.taken.remove(&value);
            }
            if facts.is_none() {
                concerned.extend(self.waiting_claims(&pool));
            }
        }
        if let Some((pool, claim, value)) = facts {
            concerned.insert(claim.clone());
            self.pools.entry(pool).or_default().taken.insert(value, (object.clone(), claim));
        }
        concerned
    }

    /// Claims of a pool.
    pub(super) fn claims_of(&self, pool: &Key) -> BTreeSet<Key> {
        self.pools.get(pool).map(|pool| pool.claims.clone()).unwrap_or_default()
    }

    fn waiting_claims(&self, pool: &Key) -> BTreeSet<Key> {
        let claims = self.pools.get(pool).into_iter().flat_map(|pool| &pool.claims);
        let waits = |claim: &&Key| self.claims.get(*claim).is_some_and(|(_, chosen)| chosen.is_none());
        claims.filter(waits).cloned().collect()
    }

    /// Claims in a namespace that have chosen nothing.
    pub(super) fn waiting_in(&self, namespace: &str) -> BTreeSet<Key> {
        let pools = self.pools.keys().filter(|pool| pool.namespace == namespace);
        pools.flat_map(|pool| self.waiting_claims(pool)).collect()
    }

    /// Objects of a pool with their claims, in no order.
    pub(super) fn objects_of(&self, pool: &Key) -> Vec<(V, Key)> {
        let taken = self.pools.get(pool).into_iter().flat_map(|pool| &pool.taken);
        taken.map(|(value, (_, claim))| (value.clone(), claim.clone())).collect()
    }

    /// The value that an object already holds for a claim, else the one that
    /// `choose` finds, which is reserved.
    pub(super) fn choose<E>(
        &mut self,
        pool: &Key,
        claim: &Key,
        choose: impl FnOnce(&dyn Fn(&V) -> bool) -> Result<V, E>,
    ) -> Result<V, E> {
        let entry = self.pools.entry(pool.clone()).or_default();
        let own = entry.taken.iter().find(|(_, (_, holder))| holder == claim);
        if let Some((value, _)) = own {
            return Ok(value.clone());
        }
        let is_taken = |value: &V| {
            entry.taken.contains_key(value) || entry.reserved.get(value).is_some_and(|holder| holder != claim)
        };
        let value = choose(&is_taken)?;
        entry.reserved.retain(|_, holder| holder != claim);
        entry.reserved.insert(value.clone(), claim.clone());
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("fleet", name)
    }

    fn lowest(is_taken: &dyn Fn(&u32) -> bool) -> Result<u32, ()> {
        (0..3).find(|value| !is_taken(value)).ok_or(())
    }

    #[test]
    fn claims_at_once_choose_different_values() {
        let mut slots = Slots::default();
        let pool = key("pool");
        for (claim, want) in [("a", Ok(0)), ("b", Ok(1)), ("a", Ok(0)), ("c", Ok(2)), ("d", Err(()))] {
            assert_eq!(slots.choose(&pool, &key(claim), lowest), want, "{claim}");
        }
    }

    #[test]
    fn a_claim_keeps_the_object_that_it_has() {
        let mut slots = Slots::default();
        slots.update_object(&key("o-7"), Some((key("pool"), key("a"), 7)));
        assert_eq!(slots.choose(&key("pool"), &key("a"), lowest), Ok(7));
        assert_eq!(slots.choose(&key("pool"), &key("b"), lowest), Ok(0));
    }

    #[test]
    fn freed_values_wake_the_claims_that_wait() {
        let mut slots = Slots::default();
        let pool = key("pool");
        slots.update_claim(&key("a"), Some((pool.clone(), Some(0))));
        slots.update_claim(&key("b"), Some((pool.clone(), None)));
        slots.update_object(&key("o-0"), Some((pool.clone(), key("a"), 0)));
        assert_eq!(slots.objects_of(&pool), [(0, key("a"))]);
        assert_eq!(slots.update_object(&key("o-0"), None), [key("a"), key("b")].into());
        assert_eq!(slots.update_claim(&key("a"), None), [key("b")].into());
        assert_eq!(slots.choose(&pool, &key("b"), lowest), Ok(0));
        assert_eq!(slots.claims_of(&pool), [key("b")].into());
    }

    #[test]
    fn an_event_from_before_the_choice_keeps_the_reservation() {
        let mut slots = Slots::default();
        let pool = key("pool");
        slots.update_claim(&key("a"), Some((pool.clone(), None)));
        assert_eq!(slots.choose(&pool, &key("a"), lowest), Ok(0));
        slots.update_claim(&key("a"), Some((pool.clone(), None)));
        assert_eq!(slots.choose(&pool, &key("b"), lowest), Ok(1));
        // Another leader chose for it meanwhile.
        slots.update_claim(&key("a"), Some((pool.clone(), Some(2))));
        assert_eq!(slots.choose(&pool, &key("c"), lowest), Ok(0));
    }
}
