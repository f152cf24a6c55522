//! Machines that wait for a host, or for an entry of the image catalog.

use crate::key::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use coordinator_core::pool::Wish;

/// What a machine waits for; `W` says which hosts it takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait<W> {
    /// It is being decided: whatever changes meanwhile may concern it.
    Decision,
    /// A host that its group held and that comes back. Meanwhile it leaves alone what is free.
    Return(W),
    Host(W),
    /// An entry of the image catalog, or something else that is no host.
    Catalog,
}

/// Which members of its pool a machine takes. Those of one group wait for the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberWish {
    pub failure_domain: Option<String>,
    pub reuse_group: Option<String>,
}

impl MemberWish {
    pub(super) fn as_wish(&self) -> Wish<'_> {
        Wish { failure_domain: self.failure_domain.as_deref(), reuse_group: self.reuse_group.as_deref() }
    }

    /// Whether a member in `domain` may be taken.
    pub(super) fn fits(&self, domain: Option<&str>) -> bool {
        self.failure_domain.is_none() || self.failure_domain.as_deref() == domain
    }
}

/// How many of those that wait for the same a host concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    None,
    First,
    All,
}

/// Each waiting machine, by the pool or the namespace of its hosts. A host that becomes free is for
/// one of those that wait for the same: the cost of an event grows with the number of different
/// wishes, and not with that of machines. Only where no host comes back any more, all that waited
/// for one are called.
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

    /// Whom a host concerns that became free. Of those that wait for the same it is the first one,
    /// which then waits no longer: the next host is for the next one. `returns` says whom of those
    /// that wait for one to come back.
    pub(crate) fn take_for_host(
        &mut self,
        place: &Key,
        fits: impl Fn(&W) -> bool,
        returns: impl Fn(&W) -> Called,
    ) -> BTreeSet<Key> {
        let mut called = BTreeSet::new();
        for (wait, machines) in self.by_place.get(place).into_iter().flatten() {
            let extent = match wait {
                Wait::Decision => Called::All,
                Wait::Return(wish) => returns(wish),
                Wait::Host(wish) if fits(wish) => Called::First,
                Wait::Host(_) | Wait::Catalog => Called::None,
            };
            match extent {
                Called::None => {}
                Called::First => called.extend(machines.first().cloned()),
                Called::All => called.extend(machines.iter().cloned()),
            }
        }
        self.end_waits(&called);
        called
    }

    /// Those that wait for a host to come back, and for whom `is_over`: they may take any.
    pub(crate) fn take_for_return(&mut self, place: &Key, is_over: impl Fn(&W) -> bool) -> BTreeSet<Key> {
        let waits = self.by_place.get(place).into_iter().flatten();
        let returns = waits.filter(|(wait, _)| matches!(wait, Wait::Return(wish) if is_over(wish)));
        let called = returns.flat_map(|(_, machines)| machines.iter().cloned()).collect();
        self.end_waits(&called);
        called
    }

    fn end_waits(&mut self, called: &BTreeSet<Key>) {
        for machine in called {
            if !matches!(self.known.get(machine), Some((_, Wait::Decision))) {
                self.set_wait(machine, None);
            }
        }
    }

    /// Those that an entry of the catalog may concern.
    pub(crate) fn for_catalog(&self) -> BTreeSet<Key> {
        let by_wait = self.by_place.values().flatten();
        let concerned = by_wait.filter(|(wait, _)| matches!(wait, Wait::Decision | Wait::Catalog));
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

    fn member(failure_domain: Option<&str>, reuse_group: Option<&str>) -> Wait<MemberWish> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Wait::Host(MemberWish { failure_domain: owned(failure_domain), reuse_group: owned(reuse_group) })
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
            ("return-1", "p1", Wait::Return(MemberWish::default())),
            ("return-2", "p1", Wait::Return(MemberWish::default())),
            ("return-3", "p1", Wait::Return(MemberWish::default())),
            ("decided", "p1", Wait::Decision),
            ("image", "p1", Wait::Catalog),
            ("other", "p2", member(None, None)),
        ] {
            waiting.set_wait(&key(name), Some((key(pool), wait)));
        }
        let mut take_with =
            |domain, returns| waiting.take_for_host(&key("p1"), |wish| wish.fits(domain), |_| returns);
        let mut take = |domain| take_with(domain, Called::None);
        assert_eq!(take(Some("d1")), keys(["any-1", "d1-1", "decided", "group-1"]));
        assert_eq!(take(Some("d1")), keys(["any-2", "d1-2", "decided"]));
        assert_eq!(take(None), keys(["decided"]), "no member is for the one in d2");
        assert_eq!(take(Some("d2")), keys(["d2-1", "decided"]));
        assert_eq!(take_with(None, Called::First), keys(["decided", "return-1"]));
        assert_eq!(take_with(None, Called::All), keys(["decided", "return-2", "return-3"]));
        assert_eq!(waiting.for_catalog(), keys(["decided", "image"]));
        waiting.set_wait(&key("again"), Some((key("p1"), Wait::Return(MemberWish::default()))));
        assert_eq!(waiting.take_for_return(&key("p1"), |_| true), keys(["again"]));
        for name in ["decided", "image", "other", "unknown"] {
            waiting.set_wait(&key(name), None);
        }
        assert!(waiting.known.is_empty() && waiting.by_place.is_empty());
    }
}
