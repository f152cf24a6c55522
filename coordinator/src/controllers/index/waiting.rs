//! Machines that wait for a member of their pool, or for an entry of the image catalog.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Key;

/// What a machine waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// It is being decided: whatever changes meanwhile may concern it.
    Decision,
    /// A member, where it names one in this failure domain. Those of one group take the same ones.
    Member { failure_domain: Option<String>, reuse_group: Option<String> },
    /// An entry of the image catalog, or something outside of its pool.
    Catalog,
}

/// Each waiting machine, by its pool. A member that becomes available is for one of those that wait
/// for the same: if all were triggered, the cost of an event would grow with their number.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    known: HashMap<Key, (Key, Wait)>,
    by_pool: HashMap<Key, BTreeMap<Wait, BTreeSet<Key>>>,
}

impl Waiting {
    pub(super) fn set_wait(&mut self, machine: &Key, wait: Option<(Key, Wait)>) {
        if let Some((pool, former)) = self.known.remove(machine) {
            self.remove_machine(&pool, &former, machine);
        }
        if let Some((pool, wait)) = wait {
            let of_pool = self.by_pool.entry(pool.clone()).or_default();
            of_pool.entry(wait.clone()).or_default().insert(machine.clone());
            self.known.insert(machine.clone(), (pool, wait));
        }
    }

    fn remove_machine(&mut self, pool: &Key, wait: &Wait, machine: &Key) {
        let Some(of_pool) = self.by_pool.get_mut(pool) else { return };
        if let Some(machines) = of_pool.get_mut(wait) {
            machines.remove(machine);
            if machines.is_empty() {
                of_pool.remove(wait);
            }
        }
        if of_pool.is_empty() {
            self.by_pool.remove(pool);
        }
    }

    /// Whom a member concerns that became available in `domain`. Of those that wait for the
    /// same it is the first one, which then waits no longer: the next member is for the next one.
    pub(super) fn take_for_member(&mut self, pool: &Key, domain: Option<&str>) -> BTreeSet<Key> {
        let mut called = BTreeSet::new();
        for (wait, machines) in self.by_pool.get(pool).into_iter().flatten() {
            match wait {
                Wait::Decision => called.extend(machines.iter().cloned()),
                Wait::Member { failure_domain: Some(wanted), .. } if domain != Some(wanted) => {}
                Wait::Member { .. } => called.extend(machines.first().cloned()),
                Wait::Catalog => {}
            }
        }
        for machine in &called {
            if !matches!(self.known.get(machine), Some((_, Wait::Decision))) {
                self.set_wait(machine, None);
            }
        }
        called
    }

    /// Those that an entry of the catalog may concern.
    pub(super) fn for_catalog(&self) -> BTreeSet<Key> {
        let by_wait = self.by_pool.values().flatten();
        let concerned = by_wait.filter(|(wait, _)| !matches!(wait, Wait::Member { .. }));
        concerned.flat_map(|(_, machines)| machines.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("fleet", name)
    }

    fn keys<const N: usize>(names: [&str; N]) -> BTreeSet<Key> {
        names.map(key).into()
    }

    fn member(failure_domain: Option<&str>, reuse_group: Option<&str>) -> Wait {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Wait::Member { failure_domain: owned(failure_domain), reuse_group: owned(reuse_group) }
    }

    #[test]
    fn member_is_offered_once_for_each_wish() {
        let mut waiting = Waiting::default();
        for (name, pool, wait) in [
            ("any-1", "p1", member(None, None)),
            ("any-2", "p1", member(None, None)),
            ("d1-1", "p1", member(Some("d1"), None)),
            ("d1-2", "p1", member(Some("d1"), None)),
            ("d2-1", "p1", member(Some("d2"), None)),
            ("group-1", "p1", member(None, Some("g"))),
            ("decided", "p1", Wait::Decision),
            ("image", "p1", Wait::Catalog),
            ("other", "p2", member(None, None)),
        ] {
            waiting.set_wait(&key(name), Some((key(pool), wait)));
        }
        let mut take = |domain| waiting.take_for_member(&key("p1"), domain);
        assert_eq!(take(Some("d1")), keys(["any-1", "d1-1", "decided", "group-1"]));
        assert_eq!(take(Some("d1")), keys(["any-2", "d1-2", "decided"]));
        assert_eq!(take(None), keys(["decided"]), "no member is for the one in d2");
        assert_eq!(take(Some("d2")), keys(["d2-1", "decided"]));
        assert_eq!(waiting.for_catalog(), keys(["decided", "image"]));
        for name in ["decided", "image", "other", "unknown"] {
            waiting.set_wait(&key(name), None);
        }
        assert!(waiting.known.is_empty() && waiting.by_pool.is_empty());
    }
}
