//! The hosts of a pool: which can be claimed, and the pool in numbers.
//!
//! A [`Roster`] is kept up to date host by host, so that neither a claim nor a
//! count depends on the size of the pool.

mod counts;
mod hostnames;
mod places;
mod standing;
mod template;
mod validity;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coordinator_api::conditions::{self, ConditionUpdate, Type};
use coordinator_api::names::label;
use coordinator_api::pool::{MachineInventoryPool, MachineInventoryPoolStatus, PoolMember};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use crate::host::HostRecord;
use crate::host::hardware::Capacity;
use counts::Counts;
use hostnames::Hostnames;
use places::Places;
use standing::describe_standing;
pub use standing::{Exclusion, Holder, Standing, host_standing, member_standing};
pub use template::template_status;
pub use validity::ignored_condition;

/// Where a member stands in the order of the pool: listed ones by their position,
/// then selected ones by name.
type Place = (usize, String);

const SELECTED: usize = usize::MAX;

/// A pool and the state of each of its members.
#[derive(Clone, Debug)]
pub struct Roster {
    pool: Arc<MachineInventoryPool>,
    /// `None` also where it cannot be used.
    selector: Option<Selector>,
    selected: BTreeMap<String, PoolMember>,
    members: HashMap<String, Member>,
    places: Places,
    hostnames: Hostnames,
    tallies: Tallies,
}

/// How many members have each value, so that none of it is asked of every member.
#[derive(Clone, Debug, Default)]
struct Tallies {
    cpu_threads: Counts<i64>,
    memory_bytes: Counts<i64>,
    architectures: Counts<&'static str>,
}

impl Tallies {
    fn count(&mut self, traits: &Traits) {
        self.cpu_threads.count(traits.capacity.cpu_threads);
        self.memory_bytes.count(traits.capacity.memory_bytes);
        self.architectures.count(traits.capacity.architecture);
    }

    fn discount(&mut self, traits: &Traits) {
        self.cpu_threads.discount(traits.capacity.cpu_threads.as_ref());
        self.memory_bytes.discount(traits.capacity.memory_bytes.as_ref());
        self.architectures.discount(traits.capacity.architecture.as_ref());
    }
}

#[derive(Clone, Debug)]
struct Member {
    place: Place,
    standing: Standing,
    traits: Traits,
}

/// What a machine may ask of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    pub failure_domain: Option<String>,
    /// The control plane or deployment whose machine held it last.
    pub reuse_group: Option<String>,
    /// What a node on it can use.
    pub capacity: Capacity,
}

impl Traits {
    pub fn of_host(host: Option<&HostRecord>) -> Self {
        Self {
            failure_domain: host.and_then(HostRecord::failure_domain).map(str::to_owned),
            reuse_group: host.and_then(|host| host.reuse_group.clone()),
            capacity: host.map(|host| host.capacity.clone()).unwrap_or_default(),
        }
    }
}

/// What a machine asks of its host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// The host has to be in this failure domain.
    pub failure_domain: Option<&'a str>,
    /// A host that this group held before goes first, then those that none held.
    pub reuse_group: Option<&'a str>,
}

fn explain_returning(host: &str) -> String {
    format!(
        "{host}, which its group held, is being cleaned and is waited for (spec.nodeReuse); see that host, or set spec.nodeReuse: false to take another one"
    )
}

impl Roster {
    /// A roster on which every listed member is missing and none is selected.
    pub fn new(pool: Arc<MachineInventoryPool>) -> Self {
        let selector = pool.spec.selector.clone().and_then(|selector| Selector::try_from(selector).ok());
        let listed: Vec<_> = pool.spec.machine_inventories.iter().map(|member| member.name.clone()).collect();
        let mut roster = Self {
            selector,
            selected: BTreeMap::new(),
            members: HashMap::new(),
            places: Places::new(pool.spec.node_reuse == Some(true)),
            hostnames: Hostnames::default(),
            tallies: Tallies::default(),
            pool,
        };
        for (index, name) in listed.iter().enumerate() {
            roster.add_member(name, (index, String::new()));
        }
        roster
    }

    pub fn pool(&self) -> &Arc<MachineInventoryPool> {
        &self.pool
    }

    /// Takes a newer version of the pool; `false` when its members may differ:
    /// then a new roster is needed.
    pub fn update_pool(&mut self, pool: &Arc<MachineInventoryPool>) -> bool {
        let version = |pool: &MachineInventoryPool| {
            let is_control_plane = pool.labels().contains_key(label::CONTROL_PLANE);
            (pool.metadata.uid.clone(), pool.metadata.generation, is_control_plane)
        };
        let is_same = pool.metadata.generation.is_some() && version(pool) == version(&self.pool);
        if is_same {
            self.pool = pool.clone();
        }
        is_same
    }

    /// Names of all members.
    pub fn member_names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// The entry of a host.
    pub fn member(&self, host: &str) -> Option<&PoolMember> {
        self.find_entry(&self.members.get(host)?.place)
    }

    fn find_entry(&self, place: &Place) -> Option<&PoolMember> {
        match place {
            (SELECTED, name) => self.selected.get(name),
            (index, _) => self.pool.spec.machine_inventories.get(*index),
        }
    }

    /// Whether the pool may have members that it does not list.
    pub fn has_selector(&self) -> bool {
        self.selector.is_some()
    }

    /// Whether the pool selects a host with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Records whether a host is selected; whether that changed. A listed one is a
    /// member either way.
    pub fn set_selected(&mut self, host: &str, is_selected: bool) -> bool {
        let is_known = self.selected.contains_key(host);
        if is_known == is_selected || (!is_known && self.members.contains_key(host)) {
            return false;
        }
        if is_selected {
            let member = PoolMember { name: host.to_owned(), ..PoolMember::default() };
            self.selected.insert(host.to_owned(), member);
            self.add_member(host, (SELECTED, host.to_owned()));
        } else {
            self.remove_member(host);
            self.selected.remove(host);
        }
        true
    }

    fn add_member(&mut self, host: &str, place: Place) {
        // The list may have it twice.
        self.remove_member(host);
        let standing = Standing::Unavailable(Exclusion::Missing);
        let member = Member { place, standing, traits: Traits::default() };
        self.places.add_member(&member);
        if let Some(entry) = self.find_entry(&member.place).cloned() {
            self.hostnames.add_member(&entry);
        }
        self.members.insert(host.to_owned(), member);
    }

    fn remove_member(&mut self, host: &str) {
        let Some(member) = self.members.remove(host) else { return };
        self.places.remove_member(&member);
        self.tallies.discount(&member.traits);
        if let Some(entry) = self.find_entry(&member.place).cloned() {
            self.hostnames.remove_member(&entry);
        }
    }

    /// The state of a member.
    pub fn standing(&self, host: &str) -> Option<Standing> {
        self.members.get(host).map(|member| member.standing)
    }

    /// Records the state of a member; whether it changed.
    pub fn set_standing(&mut self, host: &str, standing: Standing) -> bool {
        let Some(member) = self.members.get_mut(host) else { return false };
        if member.standing == standing {
            return false;
        }
        self.places.remove_member(member);
        member.standing = standing;
        self.places.add_member(member);
        true
    }

    /// Records what machines may ask of a member; whether it changed.
    pub fn set_traits(&mut self, host: &str, traits: Traits) -> bool {
        let Some(member) = self.members.get_mut(host).filter(|member| member.traits != traits) else {
            return false;
        };
        self.tallies.discount(&member.traits);
        self.tallies.count(&traits);
        self.places.remove_member(member);
        member.traits = traits;
        self.places.add_member(member);
        true
    }

    /// Failure domains of the members.
    pub fn failure_domains(&self) -> impl Iterator<Item = &str> {
        self.places.domains()
    }

    /// What a node on any member can use: the least of each, and the architecture where
    /// all have one.
    pub fn least_capacity(&self) -> Capacity {
        let mut architectures = self.tallies.architectures.values();
        let architecture = architectures.next().copied().filter(|_| architectures.next().is_none());
        Capacity {
            cpu_threads: self.tallies.cpu_threads.values().next().copied(),
            memory_bytes: self.tallies.memory_bytes.values().next().copied(),
            architecture,
        }
    }

    /// The first available member that is not reserved and as wished, in the pool's
    /// order. One that the group held and that is being cleaned is waited for: it comes back.
    ///
    /// # Errors
    /// How many members are excluded by what, as a sentence; or which one is waited for.
    pub fn choose_member(
        &self,
        wish: &Wish<'_>,
        is_reserved: impl Fn(&str) -> bool,
    ) -> Result<&PoolMember, String> {
        let domain = wish.failure_domain;
        let find = |places: &mut dyn Iterator<Item = &Place>| {
            places.filter_map(|place| self.find_entry(place)).find(|entry| !is_reserved(&entry.name))
        };
        let available_of = |group| find(&mut self.places.of_group(Standing::Available, domain, group));
        let mut preferred = None;
        if let Some(group) = wish.reuse_group {
            preferred = available_of(Some(group));
            if preferred.is_none()
                && let Some(returning) = self.find_returning(wish)
            {
                return Err(explain_returning(&returning.name));
            }
            preferred = preferred.or_else(|| available_of(None));
        }
        let any = || find(&mut self.places.with_standing(Standing::Available, domain));
        preferred.or_else(any).ok_or_else(|| self.explain_exhaustion(domain))
    }

    /// A member that the group held and that is being cleaned: where none can be chosen, it is waited
    /// for.
    pub fn find_returning(&self, wish: &Wish<'_>) -> Option<&PoolMember> {
        let group = wish.reuse_group?;
        let mut preparing = self.places.of_group(Standing::Preparing, wish.failure_domain, Some(group));
        preparing.find_map(|place| self.find_entry(place))
    }

    fn explain_exhaustion(&self, domain: Option<&str>) -> String {
        if self.members.is_empty() {
            return "it has no members: add machineInventories to it".to_owned();
        }
        let place = domain.map(|domain| format!(" in failure domain {domain}")).unwrap_or_default();
        let total: usize = self.places.counts(domain).map(|(_, count)| count).sum();
        let counts: Vec<_> = self
            .places
            .counts(domain)
            .map(|(standing, count)| format!("{count} {}", describe_standing(standing)))
            .collect();
        if counts.is_empty() {
            return format!(
                "none of its members is{place}: label a host so, or correct the Machine's spec.failureDomain"
            );
        }
        format!("of {total} members{place}: {}; add a host to it or free one", counts.join(", "))
    }

    fn count_members(&self, is_counted: impl Fn(Standing) -> bool) -> i32 {
        let counted = self.places.counts(None).filter(|(standing, _)| is_counted(*standing));
        i32::try_from(counted.map(|(_, count)| count).sum::<usize>()).unwrap_or(i32::MAX)
    }

    pub fn project_status(&self, now: Timestamp) -> MachineInventoryPoolStatus {
        let known = self.pool.status.as_ref();
        let mut status = MachineInventoryPoolStatus {
            conditions: known.map(|status| status.conditions.clone()).unwrap_or_default(),
            total: i32::try_from(self.members.len()).unwrap_or(i32::MAX),
            available: self.count_members(|standing| standing == Standing::Available),
            allocated: self.count_members(|standing| standing == Standing::Allocated),
            preparing: self.count_members(|standing| standing == Standing::Preparing),
            reprovisioning: self.count_members(|standing| standing == Standing::Reprovisioning),
            unavailable: self.count_members(|standing| matches!(standing, Standing::Unavailable(_))),
        };
        let valid = self.check_members();
        let available = format!("{} of {} members available", status.available, status.total);
        let message = if valid.message.is_empty() { available } else { valid.message.clone() };
        let ready = ConditionUpdate { kind: Type::Ready, message, ..valid.clone() };
        let generation = self.pool.metadata.generation;
        conditions::set_conditions(&mut status.conditions, &[valid, ready], generation, now);
        status
    }
}

#[cfg(test)]
mod tests;
