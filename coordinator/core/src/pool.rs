//! Who of a pool can be claimed, and the pool in numbers.

use std::collections::BTreeMap;

use coordinator_api::conditions::{self, Finding, Reason, Type};
use coordinator_api::inventory::{AllocationState, MachineInventory, PlanState};
use coordinator_api::names::annotation;
use coordinator_api::pool::{MachineInventoryPool, MachineInventoryPoolStatus, PoolMember};
use jiff::Timestamp;
use kube::ResourceExt;

/// Where a member of a pool stands. Each is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Can be claimed.
    Available,
    /// Has a machine.
    Allocated,
    /// Works on a clean plan.
    Preparing,
    /// Works on a reprovision plan.
    Reprovisioning,
    /// Cannot be claimed.
    Unavailable(Unavailable),
}

/// Why a member cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Unavailable {
    /// No such inventory.
    Missing,
    /// The inventory is being deleted.
    #[strum(serialize = "being deleted")]
    Deleting,
    /// Two hosts claim its identity.
    Quarantined,
    /// An older pool lists it too.
    #[strum(serialize = "in an older pool")]
    OtherPool,
    /// Its installed system has not attached.
    #[strum(serialize = "not ready")]
    NotReady,
    /// It has no plan Secret.
    #[strum(serialize = "without plan Secret")]
    NoPlanSecret,
    /// Its last plan failed.
    #[strum(serialize = "with a failed plan")]
    PlanFailed,
    /// Somebody wrote `Unavailable` on it.
    #[strum(serialize = "marked Unavailable")]
    Marked,
}

/// A member with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// As the pool lists it.
    pub listed: &'a PoolMember,
    /// The inventory, when there is one.
    pub inventory: Option<&'a MachineInventory>,
    /// The older pool that lists it too.
    pub older_pool: Option<&'a str>,
    /// Whether another machine has chosen it and will claim it.
    pub is_promised: bool,
}

/// Judges one member.
#[must_use]
pub fn standing(member: &Member<'_>) -> Standing {
    use Standing::Unavailable as No;
    let Some(inventory) = member.inventory else {
        return No(Unavailable::Missing);
    };
    let failed = inventory.plan().is_some_and(|plan| plan.state == Some(PlanState::Failed));
    if inventory.annotations().contains_key(annotation::QUARANTINED) {
        return No(Unavailable::Quarantined);
    }
    if inventory.claim().is_some() {
        return if failed { No(Unavailable::PlanFailed) } else { claimed(inventory) };
    }
    let ready = conditions::is_true(inventory.conditions(), Type::Ready);
    let secret = inventory.plan().is_some_and(|plan| plan.secret_ref.is_some());
    let marked = inventory.allocation_state() == AllocationState::Unavailable;
    for (excluded, why) in [
        (inventory.metadata.deletion_timestamp.is_some(), Unavailable::Deleting),
        (member.older_pool.is_some(), Unavailable::OtherPool),
        (marked, Unavailable::Marked),
        (failed, Unavailable::PlanFailed),
        (!ready, Unavailable::NotReady),
        (!secret, Unavailable::NoPlanSecret),
    ] {
        if excluded {
            return No(why);
        }
    }
    Standing::Available
}

fn claimed(inventory: &MachineInventory) -> Standing {
    match inventory.allocation_state() {
        AllocationState::Available | AllocationState::Allocated => Standing::Allocated,
        AllocationState::Preparing => Standing::Preparing,
        AllocationState::Reprovisioning => Standing::Reprovisioning,
        AllocationState::Unavailable => Standing::Unavailable(Unavailable::Marked),
    }
}

/// The first member that can be claimed, or how many are excluded by what.
///
/// # Errors
/// The sentence for the machine's condition.
pub fn choose<'a>(members: &[Member<'a>]) -> Result<&'a MachineInventory, String> {
    members
        .iter()
        .find(|member| is_free(member))
        .and_then(|member| member.inventory)
        .ok_or_else(|| excluded(members))
}

/// Whether a machine may choose it.
#[must_use]
pub fn is_free(member: &Member<'_>) -> bool {
    standing(member) == Standing::Available && !member.is_promised
}

fn excluded(members: &[Member<'_>]) -> String {
    if members.is_empty() {
        return "it has no members: add machineInventories to it".to_owned();
    }
    let mut counts = BTreeMap::<&'static str, usize>::new();
    for member in members {
        let name = match standing(member) {
            Standing::Available => "chosen by another machine",
            Standing::Allocated => "allocated",
            Standing::Preparing => "being cleaned",
            Standing::Reprovisioning => "reprovisioning",
            Standing::Unavailable(why) => why.into(),
        };
        *counts.entry(name).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("of {} members: {}; add a host to it or free one", members.len(), counts.join(", "))
}

/// Whether `rival` is an older claim on a shared member than `pool`: the pool
/// that was there first keeps it, the name decides between twins.
#[must_use]
pub fn is_older(rival: &MachineInventoryPool, pool: &MachineInventoryPool) -> bool {
    let age = |pool: &MachineInventoryPool| (pool.creation_timestamp(), pool.name_any());
    rival.uid() != pool.uid() && age(rival) < age(pool)
}

/// The pool's status.
#[must_use]
pub fn status(
    pool: &MachineInventoryPool,
    members: &[Member<'_>],
    now: Timestamp,
) -> MachineInventoryPoolStatus {
    let mut status = MachineInventoryPoolStatus {
        conditions: pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
        total: i32::try_from(members.len()).unwrap_or(i32::MAX),
        ..Default::default()
    };
    for member in members {
        let counter = match standing(member) {
            Standing::Available => &mut status.available,
            Standing::Allocated => &mut status.allocated,
            Standing::Preparing => &mut status.preparing,
            Standing::Reprovisioning => &mut status.reprovisioning,
            Standing::Unavailable(_) => &mut status.unavailable,
        };
        *counter += 1;
    }
    let valid = validity(members);
    let ready = Finding { kind: Type::Ready, ..valid.clone() };
    conditions::apply(&mut status.conditions, &[valid, ready], pool.metadata.generation, now);
    status
}

fn validity(members: &[Member<'_>]) -> Finding {
    let stand = |wanted: Unavailable| {
        let matching = move |member: &&Member<'_>| standing(member) == Standing::Unavailable(wanted);
        members.iter().filter(matching).take(8)
    };
    let missing: Vec<_> = stand(Unavailable::Missing).map(|member| member.listed.name.as_str()).collect();
    if !missing.is_empty() {
        let message =
            format!("no MachineInventory {}: register the host or remove the entry", missing.join(", "));
        return Finding::fails(Type::MembersValid, Reason::MemberMissing, message);
    }
    let shared: Vec<_> = stand(Unavailable::OtherPool)
        .map(|member| format!("{} (in {})", member.listed.name, member.older_pool.unwrap_or_default()))
        .collect();
    if !shared.is_empty() {
        let message =
            format!("belongs to an older pool: {}; remove it from one of the two", shared.join(", "));
        return Finding::fails(Type::MembersValid, Reason::MemberInAnotherPool, message);
    }
    Finding::holds(Type::MembersValid, Reason::MembersFound, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_member_stands_where_its_inventory_says() {
        type Change = fn(&mut MachineInventory);
        let cases: [(&str, Change, Standing); 9] = [
            ("ready and free", |_| {}, Standing::Available),
            (
                "not ready",
                |i| i.status.as_mut().unwrap().conditions.clear(),
                Standing::Unavailable(Unavailable::NotReady),
            ),
            (
                "no Secret",
                |i| i.status.as_mut().unwrap().plan.as_mut().unwrap().secret_ref = None,
                Standing::Unavailable(Unavailable::NoPlanSecret),
            ),
            (
                "failed",
                |i| i.status.as_mut().unwrap().plan.as_mut().unwrap().state = Some(PlanState::Failed),
                Standing::Unavailable(Unavailable::PlanFailed),
            ),
            (
                "quarantined",
                |i| samples::annotate(i, annotation::QUARANTINED, "x"),
                Standing::Unavailable(Unavailable::Quarantined),
            ),
            (
                "marked",
                |i| samples::annotate(i, annotation::ALLOCATION_STATE, "Unavailable"),
                Standing::Unavailable(Unavailable::Marked),
            ),
            ("claimed", |i| samples::claim(i, AllocationState::Allocated), Standing::Allocated),
            ("cleaning", |i| samples::claim(i, AllocationState::Preparing), Standing::Preparing),
            (
                "reprovisioning",
                |i| samples::claim(i, AllocationState::Reprovisioning),
                Standing::Reprovisioning,
            ),
        ];
        for (name, change, want) in cases {
            let mut inventory = samples::inventory("host-1");
            change(&mut inventory);
            let listed = PoolMember { name: "host-1".into(), ..Default::default() };
            let member =
                Member { listed: &listed, inventory: Some(&inventory), older_pool: None, is_promised: false };
            assert_eq!(standing(&member), want, "{name}");
        }
    }

    #[test]
    fn an_exhausted_pool_says_what_excludes_how_many() {
        let listed = PoolMember { name: "a".into(), ..Default::default() };
        let mut taken = samples::inventory("a");
        samples::claim(&mut taken, AllocationState::Allocated);
        let members = [
            Member { listed: &listed, inventory: None, older_pool: None, is_promised: false },
            Member { listed: &listed, inventory: Some(&taken), older_pool: None, is_promised: false },
            Member { listed: &listed, inventory: None, older_pool: None, is_promised: false },
        ];
        assert_eq!(
            choose(&members).unwrap_err(),
            "of 3 members: 1 allocated, 2 missing; add a host to it or free one"
        );
    }

    #[test]
    fn the_first_available_member_is_taken_in_the_pools_order() {
        let listed = PoolMember::default();
        let (mut first, second) = (samples::inventory("z"), samples::inventory("a"));
        let name = |first: &MachineInventory| {
            let members = [first, &second].map(|i| Member {
                listed: &listed,
                inventory: Some(i),
                older_pool: None,
                is_promised: false,
            });
            choose(&members).unwrap().name_any()
        };
        assert_eq!(name(&first), "z");
        samples::claim(&mut first, AllocationState::Allocated);
        assert_eq!(name(&first), "a");
    }

    #[test]
    fn every_member_is_counted_once_and_a_missing_one_makes_the_pool_invalid() {
        let pool = samples::pool(&["a", "b"]);
        let free = samples::inventory("a");
        let members = [
            Member {
                listed: &pool.spec.machine_inventories[0],
                inventory: Some(&free),
                older_pool: None,
                is_promised: false,
            },
            Member {
                listed: &pool.spec.machine_inventories[1],
                inventory: None,
                older_pool: None,
                is_promised: false,
            },
        ];
        let status = status(&pool, &members, Timestamp::UNIX_EPOCH);
        assert_eq!((status.total, status.available, status.unavailable), (2, 1, 1));
        assert!(!conditions::is_true(&status.conditions, Type::Ready));
        assert_eq!(
            status.conditions[0].message,
            "no MachineInventory b: register the host or remove the entry"
        );
    }
}
