//! The hosts of a pool: the choice of a host for a machine, and the counters of the pool.
//!
//! A [`Roster`] is updated host by host, so that the cost of a claim or a count does not grow with
//! the size of the pool.

mod admission;
mod availability;
mod capacity;
mod hostnames;
mod ranked_members;
mod validity;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type};
use coordinator_api::names::label;
use coordinator_api::pool::{MachineInventoryPool, MachineInventoryPoolStatus, PoolMember};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use crate::host::HostRecord;
use crate::host::hardware::Capacity;
use crate::pause::is_paused;
use crate::problem::Problem;
pub use admission::Admission;
use availability::describe_availability;
pub use availability::{Availability, Exclusion, Holder, host_availability, member_availability};
use capacity::CapacityCounts;
pub use capacity::template_status;
use hostnames::Hostnames;
use ranked_members::RankedMembers;
pub use validity::ignored_condition;

/// Rank of a member in the order of the pool: the position of a listed member, then the name of a
/// selected one.
type MemberRank = (usize, String);

const SELECTED: usize = usize::MAX;

/// A machine waits this long for a host of its group, as long as Metal3 keeps hosts by default. The
/// time begins with the deletion of the machine that releases the host.
const RETURN_LIMIT: SignedDuration = SignedDuration::from_mins(30);

/// A pool and the state of each of its members.
#[derive(Clone, Debug)]
pub struct Roster {
    pool: Arc<MachineInventoryPool>,
    /// `None` also for an invalid selector.
    selector: Option<Selector>,
    selected: BTreeMap<String, PoolMember>,
    members: HashMap<String, Member>,
    ranked: RankedMembers,
    hostnames: Hostnames,
    capacities: CapacityCounts,
}

#[derive(Clone, Debug)]
struct Member {
    rank: MemberRank,
    availability: Availability,
    /// The deletion of the machine that holds the host, if it is being deleted.
    releasing_since: Option<Timestamp>,
    traits: Traits,
}

/// Properties of a host on which its choice depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    pub failure_domain: Option<String>,
    /// The control plane or deployment whose machine held the host last.
    pub reuse_group: Option<String>,
    /// Resources of a node on the host.
    pub capacity: Capacity,
}

impl Traits {
    pub fn of_host(host: Option<&HostRecord>) -> Self {
        host.map_or_else(Self::default, |host| Self {
            failure_domain: host.failure_domain().map(str::to_owned),
            reuse_group: host.reuse_group.clone(),
            capacity: host.capacity.clone(),
        })
    }
}

/// Requirements of a machine on its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// The host has to be in this failure domain.
    pub failure_domain: Option<String>,
    /// Hosts that this group held last are preferred, then hosts without a former group.
    pub reuse_group: Option<String>,
}

impl Wish {
    /// Tells whether a member in `domain` may be taken.
    pub fn fits(&self, domain: Option<&str>) -> bool {
        self.failure_domain.is_none() || self.failure_domain.as_deref() == domain
    }
}

fn explain_returning(host: &str) -> Problem {
    let message = "waiting for the clean of a host that this group used last (spec.nodeReuse)";
    let problem =
        Problem::new(Reason::PoolExhausted, message, "set spec.nodeReuse: false to take another host");
    problem.with_detail(host)
}

impl Roster {
    /// A roster whose listed members are all missing, without selected members.
    pub fn new(pool: Arc<MachineInventoryPool>) -> Self {
        let selector = pool.spec.selector.clone().and_then(|selector| Selector::try_from(selector).ok());
        let listed: Vec<_> = pool.spec.machine_inventories.iter().map(|member| member.name.clone()).collect();
        let mut roster = Self {
            selector,
            selected: BTreeMap::new(),
            members: HashMap::new(),
            ranked: RankedMembers::new(pool.spec.node_reuse == Some(true)),
            hostnames: Hostnames::default(),
            capacities: CapacityCounts::default(),
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

    /// Stores a newer version of the pool. Returns false if its members may differ, because a new
    /// roster is needed then.
    pub fn update_pool(&mut self, pool: &Arc<MachineInventoryPool>) -> bool {
        let version = |pool: &MachineInventoryPool| {
            let is_control_plane = pool.labels().contains_key(label::CONTROL_PLANE);
            (pool.metadata.uid.clone(), pool.metadata.generation, is_control_plane, is_paused(pool, None))
        };
        let is_same = pool.metadata.generation.is_some() && version(pool) == version(&self.pool);
        if is_same {
            self.pool = pool.clone();
        }
        is_same
    }

    pub fn member_names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    pub fn member(&self, host: &str) -> Option<&PoolMember> {
        self.find_entry(&self.members.get(host)?.rank)
    }

    fn find_entry(&self, rank: &MemberRank) -> Option<&PoolMember> {
        match rank {
            (SELECTED, name) => self.selected.get(name),
            (index, _) => self.pool.spec.machine_inventories.get(*index),
        }
    }

    /// The pool may have members that it does not list.
    pub fn has_selector(&self) -> bool {
        self.selector.is_some()
    }

    /// The pool selects a host with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Records the selection of a host, and returns true if the members changed. A listed host is a
    /// member in any case.
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

    fn add_member(&mut self, host: &str, rank: MemberRank) {
        // The pool may list the host twice.
        self.remove_member(host);
        let availability = Availability::Unavailable(Exclusion::Missing);
        let member = Member { rank, availability, releasing_since: None, traits: Traits::default() };
        self.ranked.add_member(&member);
        if let Some(entry) = self.find_entry(&member.rank).cloned() {
            self.hostnames.add_member(&entry);
        }
        self.members.insert(host.to_owned(), member);
    }

    fn remove_member(&mut self, host: &str) {
        let Some(member) = self.members.remove(host) else { return };
        self.ranked.remove_member(&member);
        self.capacities.remove(&member.traits.capacity);
        if let Some(entry) = self.find_entry(&member.rank).cloned() {
            self.hostnames.remove_member(&entry);
        }
    }

    pub fn availability(&self, host: &str) -> Option<Availability> {
        self.members.get(host).map(|member| member.availability)
    }

    /// Records the use that a machine makes of a member, on which the wait for the member depends.
    pub fn set_holder(&mut self, host: &str, holder: Holder) {
        if let Some(member) = self.members.get_mut(host) {
            member.releasing_since = if let Holder::Releases(since) = holder { Some(since) } else { None };
        }
    }

    /// Records the availability of a member, and returns true if it changed.
    pub fn set_availability(&mut self, host: &str, availability: Availability) -> bool {
        let Some(member) = self.members.get_mut(host) else { return false };
        if member.availability == availability {
            return false;
        }
        self.ranked.remove_member(member);
        member.availability = availability;
        self.ranked.add_member(member);
        true
    }

    /// Records the traits of a member, and returns true if they changed.
    pub fn set_traits(&mut self, host: &str, traits: Traits) -> bool {
        let Some(member) = self.members.get_mut(host).filter(|member| member.traits != traits) else {
            return false;
        };
        self.capacities.remove(&member.traits.capacity);
        self.capacities.add(&traits.capacity);
        self.ranked.remove_member(member);
        member.traits = traits;
        self.ranked.add_member(member);
        true
    }

    /// Failure domains of the members.
    pub fn failure_domains(&self) -> impl Iterator<Item = &str> {
        self.ranked.domains()
    }

    /// Resources of a node on any member.
    pub fn least_capacity(&self) -> Capacity {
        self.capacities.least()
    }

    /// Chooses the first available member by the order of the pool that is not reserved and fits the
    /// wish. A member of the same group that is being cleaned is waited for, but not for ever,
    /// because its host or the deletion of its machine may hang.
    ///
    /// # Errors
    /// A problem whose text stays the same while the members change, because every machine that waits
    /// shows it.
    pub fn choose_member(
        &self,
        wish: &Wish,
        now: Timestamp,
        is_reserved: impl Fn(&str) -> bool,
    ) -> Result<&PoolMember, Problem> {
        let domain = wish.failure_domain.as_deref();
        let mut preferred = None;
        if let Some(group) = wish.reuse_group.as_deref() {
            let of_group = |group| self.ranked.of_group(Availability::Available, domain, group);
            preferred = self.find_unreserved(of_group(Some(group)), &is_reserved);
            if preferred.is_none()
                && let Some(returning) = self.find_returning(wish, now)
            {
                return Err(explain_returning(&returning.name));
            }
            preferred = preferred.or_else(|| self.find_unreserved(of_group(None), &is_reserved));
        }
        let any = self.ranked.with_availability(Availability::Available, domain);
        preferred
            .or_else(|| self.find_unreserved(any, &is_reserved))
            .ok_or_else(|| self.explain_exhaustion(domain))
    }

    fn find_unreserved<'a>(
        &self,
        mut ranks: impl Iterator<Item = &'a MemberRank>,
        is_reserved: &impl Fn(&str) -> bool,
    ) -> Option<&PoolMember> {
        ranks.find_map(|rank| self.find_entry(rank).filter(|entry| !is_reserved(&entry.name)))
    }

    /// The member of the same group that is being cleaned and is waited for at `now`.
    pub fn find_returning(&self, wish: &Wish, now: Timestamp) -> Option<&PoolMember> {
        let (domain, group) = (wish.failure_domain.as_deref(), wish.reuse_group.as_deref()?);
        let preparing = self.ranked.of_group(Availability::Preparing, domain, Some(group));
        preparing.filter_map(|rank| self.find_entry(rank)).find(|entry| {
            let since = self.members.get(&entry.name).and_then(|member| member.releasing_since);
            since.is_none_or(|since| now.duration_since(since) < RETURN_LIMIT)
        })
    }

    fn explain_exhaustion(&self, domain: Option<&str>) -> Problem {
        if self.members.is_empty() {
            let action = "add machineInventories to it";
            return Problem::new(Reason::PoolExhausted, "it has no members", action);
        }
        let place = domain.map_or_else(String::new, |domain| format!(" in failure domain {domain}"));
        let counts = self.describe_counts(domain);
        if counts.is_empty() {
            let action = "label a host, or correct the Machine's spec.failureDomain";
            return Problem::new(Reason::PoolExhausted, format!("it has no member{place}"), action);
        }
        let message = format!("no member{place} is free, as the condition Ready of the pool explains");
        Problem::new(Reason::PoolExhausted, message, "add a host to it or free one").with_detail(counts)
    }

    /// The members that are not free, by cause.
    fn describe_counts(&self, domain: Option<&str>) -> String {
        let counts = self.ranked.counts(domain);
        let counts =
            counts.map(|(availability, count)| format!("{count} {}", describe_availability(availability)));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Text of the pool's condition `Ready`, which has the counts for all machines that wait.
    fn describe_members(&self, available: i32, total: i32) -> String {
        let held = self.ranked.counts(None).filter(|(of, _)| *of != Availability::Available);
        let held: Vec<_> = held.map(|(of, count)| format!("{count} {}", describe_availability(of))).collect();
        let separator = if held.is_empty() { "" } else { ": " };
        format!("{available} of {total} members available{separator}{}", held.join(", "))
    }

    fn count_members(&self, is_counted: impl Fn(Availability) -> bool) -> i32 {
        let counted = self.ranked.counts(None).filter(|(availability, _)| is_counted(*availability));
        i32::try_from(counted.map(|(_, count)| count).sum::<usize>()).unwrap_or(i32::MAX)
    }

    pub fn project_status(&self, now: Timestamp) -> MachineInventoryPoolStatus {
        let known = self.pool.status.as_ref();
        let mut status = MachineInventoryPoolStatus {
            conditions: known.map_or_else(Vec::new, |status| status.conditions.clone()),
            total: i32::try_from(self.members.len()).unwrap_or(i32::MAX),
            available: self.count_members(|availability| availability == Availability::Available),
            allocated: self.count_members(|availability| availability == Availability::Allocated),
            preparing: self.count_members(|availability| availability == Availability::Preparing),
            reprovisioning: self.count_members(|availability| availability == Availability::Reprovisioning),
            unavailable: self
                .count_members(|availability| matches!(availability, Availability::Unavailable(_))),
        };
        let valid = self.check_members();
        let available = self.describe_members(status.available, status.total);
        let message =
            if valid.message.is_empty() { available } else { format!("{available}; {}", valid.message) };
        let ready = ConditionUpdate { kind: Type::Ready, message, ..valid.clone() };
        let generation = self.pool.metadata.generation;
        conditions::set_conditions(&mut status.conditions, &[valid, ready], generation, now);
        status
    }
}

#[cfg(test)]
mod tests;
