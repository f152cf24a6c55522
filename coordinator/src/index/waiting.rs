//! Machines that wait for a host, or for an entry of the image catalog.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::key::Key;

/// The wait of a machine; `W` is its wish for a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait<W> {
    /// The machine is being decided, so that any change may concern it.
    Decision,
    /// A host of the machine's group that is being cleaned. Meanwhile the machine takes no free
    /// host.
    Return(W),
    Host(W),
    /// An entry of the image catalog, or anything else that is no host.
    Catalog,
}

/// The number of machines with one wish that are woken for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    None,
    One,
    All,
}

/// Waiting machines, by the pool or the namespace of their hosts. A free host is for one of the
/// machines with the same wish, so that the cost of an event grows with the number of different
/// wishes and not with that of machines. All machines that wait for the return of a host are woken
/// once no host returns any more.
#[derive(Debug)]
pub(crate) struct Waiting<W> {
    known: HashMap<Key, (Key, Wait<W>)>,
    by_place: HashMap<Key, BTreeMap<Wait<W>, BTreeSet<Key>>>,
}

impl<W> Default for Waiting<W> {
    fn default() -> Self {
        Self { known: HashMap::new(), by_place: HashMap::new() }
    }
}

impl<W: Clone + Ord> Waiting<W> {
    pub(crate) fn set_wait(&mut self, machine: &Key, wait: Option<(Key, Wait<W>)>) {
        if let Some((place, former)) = self.known.remove(machine) {
            self.remove_machine(&place, &former, machine);
        }
        if let Some((place, wait)) = wait {
            let of_place = self.by_place.entry(place.clone()).or_default();
            of_place.entry(wait.clone()).or_default().insert(machine.clone());
            self.known.insert(machine.clone(), (place, wait));
        }
    }

    fn remove_machine(&mut self, place: &Key, wait: &Wait<W>, machine: &Key) {
        let Some(of_place) = self.by_place.get_mut(place) else { return };
        if let Some(machines) = of_place.get_mut(wait) {
            machines.remove(machine);
            if machines.is_empty() {
                of_place.remove(wait);
            }
        }
        if of_place.is_empty() {
            self.by_place.remove(place);
        }
    }

    /// Wakes machines for a host that became free: the first machine with each wish that the host
    /// fits. A woken machine waits no longer, so that the next host wakes the next machine.
    /// `returns` tells how many machines are woken that wait for the return of a host.
    pub(crate) fn wake_waiters(
        &mut self,
        place: &Key,
        fits: impl Fn(&W) -> bool,
        returns: impl Fn(&W) -> Wake,
    ) -> BTreeSet<Key> {
        let mut woken = BTreeSet::new();
        for (wait, machines) in self.by_place.get(place).into_iter().flatten() {
            let wake = match wait {
                Wait::Decision => Wake::All,
                Wait::Return(wish) => returns(wish),
                Wait::Host(wish) if fits(wish) => Wake::One,
                Wait::Host(_) | Wait::Catalog => Wake::None,
            };
            match wake {
                Wake::None => {}
                Wake::One => woken.extend(machines.first().cloned()),
                Wake::All => woken.extend(machines.iter().cloned()),
            }
        }
        self.end_waits(&woken);
        woken
    }

    /// Wakes the machines that wait for the return of a host and for which `is_over` is true; they
    /// may take any host.
    pub(crate) fn wake_returns(&mut self, place: &Key, is_over: impl Fn(&W) -> bool) -> BTreeSet<Key> {
        let waits = self.by_place.get(place).into_iter().flatten();
        let returns = waits.filter(|(wait, _)| matches!(wait, Wait::Return(wish) if is_over(wish)));
        let woken = returns.flat_map(|(_, machines)| machines.iter().cloned()).collect();
        self.end_waits(&woken);
        woken
    }

    fn end_waits(&mut self, woken: &BTreeSet<Key>) {
        for machine in woken {
            if !matches!(self.known.get(machine), Some((_, Wait::Decision))) {
                self.set_wait(machine, None);
            }
        }
    }

    /// The machines that an entry of the catalog may concern.
    pub(crate) fn find_catalog_waiters(&self) -> BTreeSet<Key> {
        let by_wait = self.by_place.values().flatten();
        let concerned = by_wait.filter(|(wait, _)| matches!(wait, Wait::Decision | Wait::Catalog));
        concerned.flat_map(|(_, machines)| machines.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use coordinator_core::pool::Wish;

    use super::*;

    fn key(name: &str) -> Key {
        Key::new("fleet", name)
    }

    fn keys<const N: usize>(names: [&str; N]) -> BTreeSet<Key> {
        names.map(key).into()
    }

    fn member(failure_domain: Option<&str>, reuse_group: Option<&str>) -> Wait<Wish> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Wait::Host(Wish { failure_domain: owned(failure_domain), reuse_group: owned(reuse_group) })
    }

    #[test]
    fn host_is_offered_once_for_each_wish() {
        let mut waiting = Waiting::default();
        for (name, pool, wait) in [
            ("any-1", "p1", member(None, None)),
            ("any-2", "p1", member(None, None)),
            ("d1-1", "p1", member(Some("d1"), None)),
            ("d1-2", "p1", member(Some("d1"), None)),
            ("d2-1", "p1", member(Some("d2"), None)),
            ("group-1", "p1", member(None, Some("g"))),
            ("return-1", "p1", Wait::Return(Wish::default())),
            ("return-2", "p1", Wait::Return(Wish::default())),
            ("return-3", "p1", Wait::Return(Wish::default())),
            ("decided", "p1", Wait::Decision),
            ("image", "p1", Wait::Catalog),
            ("other", "p2", member(None, None)),
        ] {
            waiting.set_wait(&key(name), Some((key(pool), wait)));
        }
        let mut take_with =
            |domain, returns| waiting.wake_waiters(&key("p1"), |wish| wish.fits(domain), |_| returns);
        let mut take = |domain| take_with(domain, Wake::None);
        assert_eq!(take(Some("d1")), keys(["any-1", "d1-1", "decided", "group-1"]));
        assert_eq!(take(Some("d1")), keys(["any-2", "d1-2", "decided"]));
        assert_eq!(take(None), keys(["decided"]), "no member is for the one in d2");
        assert_eq!(take(Some("d2")), keys(["d2-1", "decided"]));
        assert_eq!(take_with(None, Wake::One), keys(["decided", "return-1"]));
        assert_eq!(take_with(None, Wake::All), keys(["decided", "return-2", "return-3"]));
        assert_eq!(waiting.find_catalog_waiters(), keys(["decided", "image"]));
        waiting.set_wait(&key("again"), Some((key("p1"), Wait::Return(Wish::default()))));
        assert_eq!(waiting.wake_returns(&key("p1"), |_| true), keys(["again"]));
        for name in ["decided", "image", "other", "unknown"] {
            waiting.set_wait(&key(name), None);
        }
        assert!(waiting.known.is_empty() && waiting.by_place.is_empty());
    }
}
