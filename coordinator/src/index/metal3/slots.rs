//! The values of each pool that are in use: addresses of `IPPool`s, indexes of templates.
//!
//! A claim takes a value by creating an object whose name follows from the value, and only this
//! creation decides. Reservations keep claims that are reconciled at once from trying the same
//! value.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::index::groups::Groups;
use crate::key::{Key, Namespace};

#[derive(Debug)]
pub(super) struct Slots<V> {
    pools: HashMap<Key, Pool<V>>,
    claims: HashMap<Key, (Key, Option<V>)>,
    objects: HashMap<Key, (Key, Key, V)>,
    /// Claims that have chosen nothing, by pool and by namespace.
    waiting: Groups<Key, Key>,
    waiting_by_namespace: Groups<Namespace, Key>,
}

/// The holders of the values of one pool.
#[derive(Debug)]
struct Pool<V> {
    /// Values of existing objects, with their claims.
    taken: HashMap<V, (Key, Key)>,
    taken_by: Groups<Key, V>,
    /// Chosen values, one for each claim.
    reserved: HashMap<V, Key>,
    reserved_by: HashMap<Key, V>,
    claims: BTreeSet<Key>,
}

impl<V> Default for Pool<V> {
    fn default() -> Self {
        Self {
            taken: HashMap::new(),
            taken_by: Groups::default(),
            reserved: HashMap::new(),
            reserved_by: HashMap::new(),
            claims: BTreeSet::new(),
        }
    }
}

impl<V> Default for Slots<V> {
    fn default() -> Self {
        Self {
            pools: HashMap::new(),
            claims: HashMap::new(),
            objects: HashMap::new(),
            waiting: Groups::default(),
            waiting_by_namespace: Groups::default(),
        }
    }
}

impl<V: Clone + Eq + Hash> Pool<V> {
    /// Releases the reservation of a claim unless its value is `kept`, and tells whether there was
    /// another value.
    fn release(&mut self, claim: &Key, kept: Option<&V>) -> bool {
        if self.reserved_by.get(claim).is_none_or(|value| Some(value) == kept) {
            return false;
        }
        let value = self.reserved_by.remove(claim);
        value.is_some_and(|value| self.reserved.remove(&value).is_some())
    }

    /// Reserves a value for a claim, unless another claim has the value.
    fn reserve(&mut self, claim: &Key, value: V) {
        self.release(claim, Some(&value));
        if self.reserved.contains_key(&value) {
            return;
        }
        self.reserved.insert(value.clone(), claim.clone());
        self.reserved_by.insert(claim.clone(), value);
    }
}

impl<V: Clone + Eq + Hash> Slots<V> {
    /// Sets the pool and the chosen value of a claim. Gives the claims that may have a value now.
    pub(super) fn update_claim(&mut self, claim: &Key, facts: Option<(Key, Option<V>)>) -> BTreeSet<Key> {
        let old = match &facts {
            Some(facts) => self.claims.insert(claim.clone(), facts.clone()),
            None => self.claims.remove(claim),
        };
        let mut freed = BTreeSet::new();
        if let Some((pool, _)) = old {
            self.set_waiting(&pool, claim, false);
            let now = facts.as_ref().filter(|(now, _)| *now == pool);
            let entry = self.pools.entry(pool.clone()).or_default();
            let has_freed = match now {
                None => {
                    entry.claims.remove(claim);
                    entry.release(claim, None)
                }
                Some((_, Some(chosen))) => entry.release(claim, Some(chosen)),
                // A reservation that is not written yet stays.
                Some((_, None)) => false,
            };
            if has_freed {
                freed = self.waiting_claims(&pool);
            }
        }
        if let Some((pool, chosen)) = facts {
            self.set_waiting(&pool, claim, chosen.is_none());
            let entry = self.pools.entry(pool).or_default();
            entry.claims.insert(claim.clone());
            if let Some(value) = chosen {
                entry.reserve(claim, value);
            }
        }
        freed
    }

    fn set_waiting(&mut self, pool: &Key, claim: &Key, is_waiting: bool) {
        if is_waiting {
            self.waiting.insert_member(pool, claim);
            self.waiting_by_namespace.insert_member(&pool.namespace, claim);
        } else {
            self.waiting.remove_member(pool, claim);
            self.waiting_by_namespace.remove_member(&pool.namespace, claim);
        }
    }

    /// Sets the pool, the claim and the value of an object. Gives the claims that the change
    /// concerns.
    pub(super) fn update_object(&mut self, object: &Key, facts: Option<(Key, Key, V)>) -> BTreeSet<Key> {
        let old = match &facts {
            Some(facts) => self.objects.insert(object.clone(), facts.clone()),
            None => self.objects.remove(object),
        };
        let mut concerned = BTreeSet::new();
        if let Some((pool, claim, value)) = old {
            let entry = self.pools.entry(pool.clone()).or_default();
            if entry.taken.get(&value).is_some_and(|(holder, _)| holder == object) {
                entry.taken.remove(&value);
                entry.taken_by.remove_member(&claim, &value);
            }
            concerned.insert(claim);
            if facts.is_none() {
                concerned.extend(self.waiting_claims(&pool));
            }
        }
        if let Some((pool, claim, value)) = facts {
            concerned.insert(claim.clone());
            let entry = self.pools.entry(pool).or_default();
            entry.taken_by.insert_member(&claim, &value);
            let former = entry.taken.insert(value.clone(), (object.clone(), claim.clone()));
            if let Some((_, former)) = former.filter(|(_, former)| *former != claim) {
                entry.taken_by.remove_member(&former, &value);
            }
        }
        concerned
    }

    pub(super) fn claims_of(&self, pool: &Key) -> BTreeSet<Key> {
        self.pools.get(pool).map_or_else(BTreeSet::new, |pool| pool.claims.clone())
    }

    pub(super) fn has_claim(&self, claim: &Key) -> bool {
        self.claims.contains_key(claim)
    }

    /// Objects that a claim holds in its pool.
    pub(super) fn objects_of_claim(&self, claim: &Key) -> Vec<Key> {
        let pool = self.claims.get(claim).and_then(|(pool, _)| self.pools.get(pool));
        let values = pool
            .into_iter()
            .flat_map(|pool| pool.taken_by.group_members(claim).map(move |value| (pool, value)));
        values.filter_map(|(pool, value)| pool.taken.get(value).map(|(object, _)| object.clone())).collect()
    }

    fn waiting_claims(&self, pool: &Key) -> BTreeSet<Key> {
        self.waiting.group_members(pool).cloned().collect()
    }

    /// Claims in a namespace that have chosen nothing.
    pub(super) fn waiting_in(&self, namespace: &Namespace) -> BTreeSet<Key> {
        self.waiting_by_namespace.group_members(namespace).cloned().collect()
    }

    /// Objects of a pool with their claims, in no order.
    pub(super) fn objects_of(&self, pool: &Key) -> Vec<(V, Key)> {
        let taken = self.pools.get(pool).into_iter().flat_map(|pool| &pool.taken);
        taken.map(|(value, (_, claim))| (value.clone(), claim.clone())).collect()
    }

    /// The value that an object already holds for a claim, or else the value that `choose` finds,
    /// which is reserved.
    pub(super) fn choose<E>(
        &mut self,
        pool: &Key,
        claim: &Key,
        choose: impl FnOnce(&dyn Fn(&V) -> bool) -> Result<V, E>,
    ) -> Result<V, E> {
        let entry = self.pools.entry(pool.clone()).or_default();
        if let Some(value) = entry.taken_by.group_members(claim).next() {
            return Ok(value.clone());
        }
        let is_taken = |value: &V| {
            entry.taken.contains_key(value) || entry.reserved.get(value).is_some_and(|holder| holder != claim)
        };
        let value = choose(&is_taken)?;
        entry.reserve(claim, value.clone());
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::groups::counted::{COMPARISONS, Counted};

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
    fn event_in_large_pool_compares_few_values() {
        let (mut slots, pool) = (Slots::default(), key("pool"));
        let claim = |number: u32| key(&format!("claim-{number}"));
        for number in 0..10_000 {
            slots.update_claim(&claim(number), Some((pool.clone(), Some(Counted(number)))));
            let object = key(&format!("object-{number}"));
            slots.update_object(&object, Some((pool.clone(), claim(number), Counted(number))));
        }
        COMPARISONS.set(0);
        slots.update_claim(&claim(5_000), Some((pool.clone(), Some(Counted(5_000)))));
        assert_eq!(slots.choose(&pool, &claim(5_000), |_| Err(())), Ok(Counted(5_000)));
        assert_eq!(slots.update_claim(&claim(7), None), BTreeSet::new());
        assert_eq!(slots.update_object(&key("object-7"), None), [claim(7)].into());
        let comparisons = COMPARISONS.get();
        assert!((2..=12).contains(&comparisons), "{comparisons}");
    }

    #[test]
    fn claims_that_wait_are_found_by_namespace() {
        let (mut slots, elsewhere) = (Slots::default(), Key::new("other", "pool"));
        slots.update_claim(&key("a"), Some((key("pool"), None)));
        slots.update_claim(&key("b"), Some((key("pool-2"), None::<u32>)));
        slots.update_claim(&Key::new("other", "c"), Some((elsewhere, None)));
        assert_eq!(slots.waiting_in(&"fleet".into()), [key("a"), key("b")].into());
        slots.update_claim(&key("a"), Some((key("pool"), Some(1))));
        slots.update_claim(&key("b"), None);
        assert_eq!(slots.waiting_in(&"fleet".into()), BTreeSet::new());
    }

    #[test]
    fn event_from_before_choice_keeps_reservation() {
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
