//! The hosts of a namespace, indexed by the requirements of machines, so that a choice does not read
//! all hosts. Only a selector without equalities reads all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use coordinator_api::capi::Machine;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::super::host::kept_until;
use super::super::selector::Selector;
use super::choice::{find_exclusion, is_reusable, owner_domain, reuse_value};
use super::holding::recorded_machine;
use super::{consumer_machine, is_available};
use crate::problem::{Blocker, Problem};

/// The chosen host, or the blocker of the choice.
pub type Choice = Result<String, Blocker>;

const KEPT: &str = "kept for other machines";
const NOT_SELECTED: &str = "not selected by spec.hostSelector";
const RESERVED: &str = "about to be claimed";

/// Properties of a host on which its choice depends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostFacts {
    labels: BTreeMap<String, String>,
    exclusion: Option<&'static str>,
    is_available: bool,
    /// Name of the machine that the host belongs to by its consumer, or by its recorded providerID.
    machine: Option<String>,
    /// Time until which the host is kept for successors.
    kept_until: Option<Timestamp>,
}

impl HostFacts {
    fn of_host(host: &BareMetalHost) -> Self {
        Self {
            labels: host.labels().clone(),
            exclusion: find_exclusion(host),
            is_available: is_available(host),
            machine: consumer_machine(host).map(str::to_owned).or_else(|| recorded_machine(host)),
            kept_until: kept_until(host),
        }
    }

    fn kept_for(&self) -> Option<&str> {
        self.labels.get(names::NODE_REUSE).map(String::as_str)
    }
}

/// A relevant change of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostChange {
    /// Machine that the host belonged to.
    pub was_of_machine: Option<String>,
    /// Group for which the host was kept.
    pub was_kept_for: Option<String>,
}

/// A host that a machine can claim.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    pub labels: &'a BTreeMap<String, String>,
    /// Group for which the host is kept.
    pub kept_for: Option<&'a str>,
}

/// The hosts with a label, unordered, so that the cost of a change does not depend on their number.
#[derive(Clone, Debug, Default)]
struct Labelled {
    all: HashSet<String>,
    candidates: HashSet<String>,
}

/// The hosts of one namespace.
#[derive(Clone, Debug, Default)]
pub struct HostRoster {
    hosts: HashMap<String, HostFacts>,
    by_label: HashMap<(String, String), Labelled>,
    by_machine: HashMap<String, BTreeSet<String>>,
    /// Candidates that are kept for no group.
    candidates: BTreeSet<String>,
    /// Numbers of kept hosts by group.
    kept: HashMap<String, usize>,
    /// Numbers of the other hosts by the cause of their exclusion.
    excluded: BTreeMap<&'static str, usize>,
}

/// Requirements of a machine.
struct Wish<'a> {
    selector: Selector,
    reuse: Option<&'a str>,
    is_reserved: &'a dyn Fn(&str) -> bool,
    now: Timestamp,
}

impl HostRoster {
    /// Records the state of a host, `None` for a deleted one. Returns a change on which a choice
    /// depends.
    pub fn set_host(&mut self, name: &str, host: Option<&BareMetalHost>) -> Option<HostChange> {
        let new = host.map(HostFacts::of_host);
        if self.hosts.get(name) == new.as_ref() {
            return None;
        }
        let old = self.hosts.remove(name);
        self.set_labels(name, old.as_ref(), new.as_ref());
        if let Some(old) = &old {
            self.count(name, old, false);
        }
        if let Some(new) = &new {
            self.count(name, new, true);
        }
        if let Some(new) = new {
            self.hosts.insert(name.to_owned(), new);
        }
        let was_kept_for = old.as_ref().and_then(|old| old.kept_for().map(str::to_owned));
        Some(HostChange { was_of_machine: old.and_then(|old| old.machine), was_kept_for })
    }

    /// Names of the hosts that belong to a machine, sorted.
    pub fn hosts_of_machine(&self, machine: &str) -> impl Iterator<Item = &String> {
        self.by_machine.get(machine).into_iter().flatten()
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The host, if a machine can claim it now.
    pub fn find_offered(&self, name: &str) -> Option<Offered<'_>> {
        let facts = self.hosts.get(name)?;
        let is_free = facts.exclusion.is_none() && facts.is_available;
        is_free.then(|| Offered { labels: &facts.labels, kept_for: facts.kept_for() })
    }

    /// Updates the index of labels, unless they are unchanged, as by most events.
    fn set_labels(&mut self, name: &str, old: Option<&HostFacts>, new: Option<&HostFacts>) {
        let is_candidate = new.is_some_and(|facts| facts.exclusion.is_none());
        let was_candidate = old.is_some_and(|facts| facts.exclusion.is_none());
        let has_same = old.is_some() && old.map(|facts| &facts.labels) == new.map(|facts| &facts.labels);
        if has_same && is_candidate == was_candidate {
            return;
        }
        for label in old.into_iter().flat_map(|facts| &facts.labels).filter(|_| !has_same) {
            let label = (label.0.clone(), label.1.clone());
            let Some(labelled) = self.by_label.get_mut(&label) else { continue };
            labelled.all.remove(name);
            labelled.candidates.remove(name);
            if labelled.all.is_empty() {
                self.by_label.remove(&label);
            }
        }
        for (key, value) in new.into_iter().flat_map(|facts| &facts.labels) {
            let labelled = self.by_label.entry((key.clone(), value.clone())).or_default();
            if !has_same {
                labelled.all.insert(name.to_owned());
            }
            if is_candidate {
                labelled.candidates.insert(name.to_owned());
            } else {
                labelled.candidates.remove(name);
            }
        }
    }

    /// Adds or removes the host in all indexes but the index of labels.
    fn count(&mut self, name: &str, facts: &HostFacts, is_added: bool) {
        if let Some(machine) = &facts.machine {
            let hosts = self.by_machine.entry(machine.clone()).or_default();
            if is_added {
                hosts.insert(name.to_owned());
            } else {
                hosts.remove(name);
            }
            if hosts.is_empty() {
                self.by_machine.remove(machine);
            }
        }
        match (facts.kept_for(), facts.exclusion) {
            (Some(kept), _) => count_entry(&mut self.kept, kept, is_added),
            (None, None) if is_added => drop(self.candidates.insert(name.to_owned())),
            (None, None) => drop(self.candidates.remove(name)),
            (None, Some(exclusion)) => {
                let count = self.excluded.entry(exclusion).or_default();
                *count = if is_added { *count + 1 } else { *count - 1 };
            }
        }
    }

    /// Chooses a host in this order: the host that names the machine, hosts that are kept for it, free
    /// hosts of its failure domain, other free hosts. Without a required label the first host by name
    /// is chosen.
    pub fn choose_host(
        &self,
        machine: &Metal3Machine,
        owner: &Machine,
        is_reserved: &dyn Fn(&str) -> bool,
        now: Timestamp,
    ) -> Choice {
        let selector = Selector::parse(&machine.spec.host_selector);
        let selector = selector.map_err(|error| needs_operator(error.problem()))?;
        if let Some(own) = self.hosts_of_machine(&machine.name_any()).next() {
            return Ok(own.clone());
        }
        let reuse = reuse_value(owner);
        let wish = Wish { selector, reuse: reuse.as_deref(), is_reserved, now };
        if let Some(choice) = self.choose_kept(&wish) {
            return choice;
        }
        let domain = owner_domain(machine, owner).map(|domain| (names::FAILURE_DOMAIN, domain));
        let preferred = domain.and_then(|domain| self.find_first(&wish, Some(domain)));
        let chosen = preferred.or_else(|| self.find_first(&wish, None));
        chosen.map(str::to_owned).ok_or_else(|| needs_operator(self.explain(&wish)))
    }

    fn fits(&self, name: &str, wish: &Wish<'_>) -> bool {
        self.hosts.get(name).is_some_and(|facts| {
            facts.exclusion.is_none()
                && is_reusable(&facts.labels, wish.reuse)
                && wish.selector.matches(&facts.labels)
                && !(wish.is_reserved)(name)
        })
    }

    /// A host that is kept for the machine. While such a host may become available, no other host is
    /// chosen.
    fn choose_kept(&self, wish: &Wish<'_>) -> Option<Choice> {
        let kept = self.labelled((names::NODE_REUSE, wish.reuse?))?;
        let kept = kept.candidates.iter().filter(|name| self.fits(name, wish));
        let kept: BTreeMap<_, _> = kept.filter_map(|name| Some((name, self.hosts.get(name)?))).collect();
        if let Some((ready, _)) = kept.iter().find(|(_, facts)| facts.is_available) {
            return Some(Ok((*ready).clone()));
        }
        let ends = kept.into_values().map(|facts| facts.kept_until);
        let ends: Vec<_> = ends.filter(|end| end.is_none_or(|end| wish.now < end)).collect();
        let reason = Reason::NoHostAvailable;
        let count = format!("{} hosts", ends.len());
        let problem = if let Some(ends) = ends.into_iter().collect::<Option<Vec<_>>>() {
            let end = ends.into_iter().max()?;
            let message = format!(
                "hosts are kept for this machine and not available yet, until the time in their annotation {}; after that another host is chosen",
                names::KEPT_UNTIL
            );
            Problem::of_cause(reason, message).with_detail(format!("{count}, until {end}"))
        } else {
            let message = "hosts are kept for this machine and not available yet";
            let action = format!(
                "see the state of the host, or remove its label {} to choose another host",
                names::NODE_REUSE
            );
            Problem::new(reason, message, action).with_detail(count)
        };
        Some(Err(Blocker::waiting_for(Type::AssociateBareMetalHost, problem)))
    }

    fn labelled(&self, (key, value): (&str, &str)) -> Option<&Labelled> {
        self.by_label.get(&(key.to_owned(), value.to_owned()))
    }

    fn find_first<'a>(&'a self, wish: &Wish<'_>, more: Option<(&str, &str)>) -> Option<&'a str> {
        let fits = |name: &&String| {
            self.fits(name, wish)
                && self.hosts.get(*name).is_some_and(|facts| {
                    facts.is_available
                        && more
                            .is_none_or(|(key, value)| facts.labels.get(key).is_some_and(|own| own == value))
                })
        };
        let labels = wish.selector.equalities().chain(more);
        let sets = labels.map(|label| self.labelled(label).map(|set| &set.candidates));
        let found = match sets.min_by_key(|set| set.map_or(0, HashSet::len)) {
            Some(smallest) => smallest?.iter().find(fits),
            None => self.candidates.iter().find(fits),
        };
        found.map(String::as_str)
    }

    /// Counts the hosts by the cause of their exclusion. The counts are for the Event alone.
    fn explain(&self, wish: &Wish<'_>) -> Problem {
        let counts = if wish.selector.is_empty() { self.count_all(wish) } else { self.count_selected(wish) };
        let counts: Vec<_> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(why, count)| format!("{count} {why}"))
            .collect();
        if counts.is_empty() {
            let message = "there is no BareMetalHost in this namespace";
            return Problem::new(
                Reason::NoHostAvailable,
                message,
                "create one that names a MachineInventory",
            );
        }
        let message = "no BareMetalHost can be chosen";
        let problem = Problem::new(Reason::NoHostAvailable, message, "free one, or create another");
        problem.with_detail(counts.join(", "))
    }

    fn count_all(&self, wish: &Wish<'_>) -> BTreeMap<&'static str, usize> {
        let mut counts = self.excluded.clone();
        counts.insert(RESERVED, self.candidates.len());
        let all_kept: usize = self.kept.values().sum();
        let own = wish.reuse.and_then(|reuse| self.kept.get(reuse)).copied().unwrap_or(0);
        counts.insert(KEPT, all_kept - own);
        if own > 0
            && let Some(kept) = wish.reuse.and_then(|reuse| self.labelled((names::NODE_REUSE, reuse)))
        {
            for name in &kept.all {
                *counts.entry(self.explain_host(name, wish)).or_default() += 1;
            }
        }
        counts
    }

    fn count_selected(&self, wish: &Wish<'_>) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        let labels = wish.selector.equalities();
        let sets = labels.map(|label| self.labelled(label).map(|set| &set.all));
        let names: Box<dyn Iterator<Item = &String>> =
            match sets.min_by_key(|set| set.map_or(0, HashSet::len)) {
                Some(smallest) => Box::new(smallest.into_iter().flatten()),
                None => Box::new(self.hosts.keys()),
            };
        let mut left = self.hosts.len();
        for name in names {
            *counts.entry(self.explain_host(name, wish)).or_default() += 1;
            left -= 1;
        }
        *counts.entry(NOT_SELECTED).or_default() += left;
        counts
    }

    fn explain_host(&self, name: &str, wish: &Wish<'_>) -> &'static str {
        let Some(facts) = self.hosts.get(name) else { return NOT_SELECTED };
        if !wish.selector.matches(&facts.labels) {
            NOT_SELECTED
        } else if !is_reusable(&facts.labels, wish.reuse) {
            KEPT
        } else {
            facts.exclusion.unwrap_or(RESERVED)
        }
    }
}

fn needs_operator(problem: Problem) -> Blocker {
    Blocker::needs_operator(Type::AssociateBareMetalHost, problem)
}

fn count_entry(counts: &mut HashMap<String, usize>, key: &str, is_added: bool) {
    let count = counts.entry(key.to_owned()).or_default();
    *count = if is_added { *count + 1 } else { *count - 1 };
    if *count == 0 {
        counts.remove(key);
    }
}
