//! The hosts of a pool: which can be claimed, and the pool in numbers.
//!
//! A [`Roster`] is kept up to date host by host, so that neither a claim nor a
//! count depends on the size of the pool.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::inventory::{AllocationState, PlanState, PlanType};
use coordinator_api::pool::{MachineInventoryPool, MachineInventoryPoolStatus, PoolMember};
use jiff::Timestamp;

use crate::host::HostRecord;

/// Members named in one message.
const NAMED: usize = 8;

/// State of a member in a pool. Each is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Can be claimed.
    Available,
    /// A machine holds it.
    Allocated,
    /// Executes a clean plan.
    Preparing,
    /// Executes a reprovision plan.
    Reprovisioning,
    /// Cannot be claimed.
    Unavailable(Exclusion),
}

/// Why a member cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Exclusion {
    Missing,
    #[strum(serialize = "being deleted")]
    Deleting,
    Quarantined,
    #[strum(serialize = "not approved")]
    NotApproved,
    #[strum(serialize = "with managed disks")]
    ManagedDisks,
    #[strum(serialize = "held by another pool")]
    OtherPool,
    #[strum(serialize = "named by a BareMetalHost")]
    BareMetalHost,
    #[strum(serialize = "not attached")]
    NotAttached,
    #[strum(serialize = "carrying a node")]
    CarriesNode,
    #[strum(serialize = "without plan Secret")]
    NoPlanSecret,
    #[strum(serialize = "with a failed plan")]
    PlanFailed,
    #[strum(serialize = "marked Unavailable")]
    Marked,
}

/// State of `host` in the pool called `pool`.
#[must_use]
pub fn host_standing(pool: &str, host: Option<&HostRecord>) -> Standing {
    use Standing::Unavailable;
    let Some(host) = host else {
        return Unavailable(Exclusion::Missing);
    };
    if host.pool.as_deref().is_some_and(|holder| holder != pool) {
        return Unavailable(Exclusion::OtherPool);
    }
    if host.bare_metal_host.is_some() && !pool.is_empty() {
        return Unavailable(Exclusion::BareMetalHost);
    }
    if let Some(plan) = host.claimed_plan().filter(|plan| plan.state.is_none()) {
        return match plan.kind {
            PlanType::Clean => Standing::Preparing,
            PlanType::Reprovision | PlanType::Custom => Standing::Reprovisioning,
        };
    }
    let is_claimed = host.claim.is_some();
    let is_failed = host.plan.as_ref().is_some_and(|plan| plan.state == Some(PlanState::Failed));
    for (is_excluded, exclusion) in [
        (host.is_quarantined, Exclusion::Quarantined),
        (host.refusal().is_some(), Exclusion::NotApproved),
        (host.is_deleting && !is_claimed, Exclusion::Deleting),
        (host.has_storage && !is_claimed, Exclusion::ManagedDisks),
        (is_failed, Exclusion::PlanFailed),
        (host.allocation == AllocationState::Unavailable, Exclusion::Marked),
        (!host.is_attached(), Exclusion::NotAttached),
        (host.plan_secret.is_none(), Exclusion::NoPlanSecret),
        (!is_claimed && !host.carries_nothing(), Exclusion::CarriesNode),
    ] {
        if is_excluded {
            return Unavailable(exclusion);
        }
    }
    if is_claimed { Standing::Allocated } else { Standing::Available }
}

/// A pool and the state of each of its members.
#[derive(Clone, Debug)]
pub struct Roster {
    pool: Arc<MachineInventoryPool>,
    positions: HashMap<String, usize>,
    standings: Vec<Standing>,
    /// Positions by standing.
    members: BTreeMap<Standing, BTreeSet<usize>>,
}

impl Roster {
    /// A roster on which every member is missing.
    #[must_use]
    pub fn new(pool: Arc<MachineInventoryPool>) -> Self {
        let missing = Standing::Unavailable(Exclusion::Missing);
        let listed = &pool.spec.machine_inventories;
        let positions = listed.iter().enumerate().map(|(index, member)| (member.name.clone(), index));
        Self {
            positions: positions.collect(),
            standings: vec![missing; listed.len()],
            members: BTreeMap::from([(missing, (0..listed.len()).collect())]),
            pool,
        }
    }

    #[must_use]
    pub fn pool(&self) -> &Arc<MachineInventoryPool> {
        &self.pool
    }

    /// Takes a newer version of the pool; `false` when its members may differ:
    /// then a new roster is needed.
    #[must_use]
    pub fn update_pool(&mut self, pool: &Arc<MachineInventoryPool>) -> bool {
        let version = |pool: &MachineInventoryPool| (pool.metadata.uid.clone(), pool.metadata.generation);
        let is_same = pool.metadata.generation.is_some() && version(pool) == version(&self.pool);
        if is_same {
            self.pool = pool.clone();
        }
        is_same
    }

    /// The entry of a host.
    #[must_use]
    pub fn member(&self, host: &str) -> Option<&PoolMember> {
        self.pool.spec.machine_inventories.get(*self.positions.get(host)?)
    }

    /// Records the state of a member; whether it changed.
    pub fn set_standing(&mut self, host: &str, standing: Standing) -> bool {
        let Some(position) = self.positions.get(host).copied() else { return false };
        let old = std::mem::replace(&mut self.standings[position], standing);
        if old == standing {
            return false;
        }
        if let Some(members) = self.members.get_mut(&old) {
            members.remove(&position);
        }
        self.members.entry(standing).or_default().insert(position);
        true
    }

    /// The first available member that is not reserved, in the pool's order.
    ///
    /// # Errors
    /// How many members are excluded by what, as a sentence.
    pub fn choose_member(&self, is_reserved: impl Fn(&str) -> bool) -> Result<&PoolMember, String> {
        let available = self.members.get(&Standing::Available).into_iter().flatten();
        let mut entries = available.filter_map(|position| self.pool.spec.machine_inventories.get(*position));
        entries.find(|member| !is_reserved(&member.name)).ok_or_else(|| self.explain_exhaustion())
    }

    fn explain_exhaustion(&self) -> String {
        let total = self.standings.len();
        if total == 0 {
            return "it has no members: add machineInventories to it".to_owned();
        }
        let counts: Vec<_> = self
            .members
            .iter()
            .filter(|(_, members)| !members.is_empty())
            .map(|(standing, members)| format!("{} {}", members.len(), describe_standing(*standing)))
            .collect();
        format!("of {total} members: {}; add a host to it or free one", counts.join(", "))
    }

    fn count_members(&self, is_counted: impl Fn(Standing) -> bool) -> i32 {
        let counted = self.members.iter().filter(|(standing, _)| is_counted(**standing));
        i32::try_from(counted.map(|(_, members)| members.len()).sum::<usize>()).unwrap_or(i32::MAX)
    }

    /// Names of the first members with that standing.
    fn name_members(&self, exclusion: Exclusion) -> Vec<&str> {
        let members = self.members.get(&Standing::Unavailable(exclusion)).into_iter().flatten();
        let listed = |position: &usize| self.pool.spec.machine_inventories.get(*position);
        members.take(NAMED).filter_map(listed).map(|member| member.name.as_str()).collect()
    }

    /// The pool's status.
    #[must_use]
    pub fn project_status(&self, now: Timestamp) -> MachineInventoryPoolStatus {
        let known = self.pool.status.as_ref();
        let mut status = MachineInventoryPoolStatus {
            conditions: known.map(|status| status.conditions.clone()).unwrap_or_default(),
            total: i32::try_from(self.standings.len()).unwrap_or(i32::MAX),
            available: self.count_members(|standing| standing == Standing::Available),
            allocated: self.count_members(|standing| standing == Standing::Allocated),
            preparing: self.count_members(|standing| standing == Standing::Preparing),
            reprovisioning: self.count_members(|standing| standing == Standing::Reprovisioning),
            unavailable: self.count_members(|standing| matches!(standing, Standing::Unavailable(_))),
        };
        let valid = self.check_members();
        let ready = ConditionUpdate { kind: Type::Ready, ..valid.clone() };
        let generation = self.pool.metadata.generation;
        conditions::set_conditions(&mut status.conditions, &[valid, ready], generation, now);
        status
    }

    fn check_members(&self) -> ConditionUpdate {
        let rules = [
            (Exclusion::Missing, Reason::MemberMissing, "register the host or remove the entry"),
            (
                Exclusion::OtherPool,
                Reason::MemberInAnotherPool,
                "another pool holds it: remove the entry from one of the two",
            ),
            (
                Exclusion::NoPlanSecret,
                Reason::PlanSecretMissing,
                "it has no plan Secret: boot the seed ISO on the host to have it created",
            ),
            (
                Exclusion::BareMetalHost,
                Reason::InventoryTaken,
                "a BareMetalHost names it: remove the entry, or the annotation of that",
            ),
            (Exclusion::Deleting, Reason::MemberNotReady, "it is being deleted: remove the entry"),
            (
                Exclusion::Quarantined,
                Reason::MemberNotReady,
                "two systems claim its identity: see its condition Ready",
            ),
            (
                Exclusion::PlanFailed,
                Reason::MemberNotReady,
                "its plan failed: see the machine that holds it, or its condition Ready",
            ),
            (
                Exclusion::Marked,
                Reason::MemberNotReady,
                "it is marked Unavailable: see its Events and its condition Ready",
            ),
            (Exclusion::NotAttached, Reason::MemberNotReady, "it is not attached: check the host"),
            (
                Exclusion::CarriesNode,
                Reason::MemberNotReady,
                "it carries a node that no machine holds: see its condition Ready",
            ),
        ];
        for (exclusion, reason, action) in rules {
            let named = self.name_members(exclusion);
            if !named.is_empty() {
                let message = format!("MachineInventory {}: {action}", named.join(", "));
                return condition_false(Type::MembersValid, reason, message);
            }
        }
        condition_true(Type::MembersValid, Reason::MembersFound, "")
    }
}

fn describe_standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Available => "reserved for other machines",
        Standing::Allocated => "allocated",
        Standing::Preparing => "being cleaned",
        Standing::Reprovisioning => "reprovisioning",
        Standing::Unavailable(exclusion) => exclusion.into(),
    }
}

#[cfg(test)]
mod tests;
