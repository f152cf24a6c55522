//! Sets by key, without empty ones. The sets are hashed, because a look-up in a large ordered set
//! compares many keys, and each key is two strings elsewhere in memory.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

#[derive(Clone, Debug)]
pub(crate) struct Groups<K, V>(HashMap<K, HashSet<V>>);

impl<K, V> Default for Groups<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, V: Clone + Eq + Hash> Groups<K, V> {
    /// Adds a member, and tells whether the set did not contain it before.
    pub(crate) fn insert_member(&mut self, key: &K, value: &V) -> bool {
        self.0.entry(key.clone()).or_default().insert(value.clone())
    }

    pub(crate) fn remove_member(&mut self, key: &K, value: &V) {
        if let Some(members) = self.0.get_mut(key) {
            members.remove(value);
            if members.is_empty() {
                self.0.remove(key);
            }
        }
    }

    pub(crate) fn replace_group(&mut self, old: Option<&K>, new: Option<&K>, value: &V) {
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

    /// The members in no order.
    pub(crate) fn group_members(&self, key: &K) -> impl Iterator<Item = &V> + Clone {
        self.0.get(key).into_iter().flatten()
    }

    pub(crate) fn contains_member(&self, key: &K, value: &V) -> bool {
        self.0.get(key).is_some_and(|members| members.contains(value))
    }
}

/// Members that are in one group each, or in none.
#[derive(Clone, Debug)]
pub(crate) struct Partition<K, V> {
    group_of: HashMap<V, K>,
    groups: Groups<K, V>,
}

impl<K, V> Default for Partition<K, V> {
    fn default() -> Self {
        Self { group_of: HashMap::new(), groups: Groups::default() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone + Eq + Hash> Partition<K, V> {
    /// Moves a member to a group, and gives its former group.
    pub(crate) fn set_group(&mut self, member: &V, group: Option<&K>) -> Option<K> {
        let old = match group {
            Some(group) => self.group_of.insert(member.clone(), group.clone()),
            None => self.group_of.remove(member),
        };
        self.groups.replace_group(old.as_ref(), group, member);
        old
    }

    pub(crate) fn group_of(&self, member: &V) -> Option<&K> {
        self.group_of.get(member)
    }

    /// The members of a group, in no order.
    pub(crate) fn group_members(&self, group: &K) -> impl Iterator<Item = &V> + Clone {
        self.groups.group_members(group)
    }

    /// The members of all groups, in no order.
    pub(crate) fn members(&self) -> impl Iterator<Item = &V> {
        self.group_of.keys()
    }
}

/// Values that count how often they are compared.
#[cfg(test)]
pub(crate) mod counted {
    use std::cell::Cell;
    use std::hash::{Hash, Hasher};

    thread_local!(pub(crate) static COMPARISONS: Cell<usize> = const { Cell::new(0) });

    #[derive(Clone, Debug, Eq)]
    pub(crate) struct Counted(pub(crate) u32);

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0 == other.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::counted::{COMPARISONS, Counted};
    use super::*;

    #[test]
    fn move_between_large_groups_compares_few_members() {
        let mut groups = Groups::default();
        for number in 0..10_000 {
            groups.insert_member(&(number % 2), &Counted(number));
        }
        COMPARISONS.set(0);
        groups.replace_group(Some(&0), Some(&1), &Counted(5_000));
        assert!(groups.contains_member(&1, &Counted(5_000)) && !groups.contains_member(&0, &Counted(5_000)));
        let comparisons = COMPARISONS.get();
        assert!((2..=8).contains(&comparisons), "{comparisons}");
        assert_eq!(groups.group_members(&1).count(), 5_001);
    }
}
