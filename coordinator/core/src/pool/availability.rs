//! Availability of a pool's member, and the reason why it cannot be claimed.

use coordinator_api::inventory::{PlanState, PlanType};
use jiff::Timestamp;

use crate::host::HostRecord;

/// Availability of a member. Each member is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    Available,
    /// A machine holds the host.
    Allocated,
    /// The host executes a clean plan, gets one next because its machine is being deleted, or is
    /// rebooted after one because of its kernel.
    Preparing,
    /// The host executes a reprovision plan.
    Reprovisioning,
    Unavailable(Exclusion),
}

/// Why a member cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Exclusion {
    Missing,
    Paused,
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
    #[strum(serialize = "executing a plan of an operator")]
    CustomPlan,
    #[strum(serialize = "with a failed plan")]
    PlanFailed,
    #[strum(serialize = "released without a clean")]
    Abandoned,
    #[strum(serialize = "of a missing machine")]
    OwnerMissing,
}

/// State of the machine that holds a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The machine keeps the host, or no machine holds it.
    Keeps,
    /// The machine is being deleted since that time. Until its release the host counts as
    /// `Preparing`, even before a clean plan is announced and after it was applied.
    Releases(Timestamp),
    /// The machine that the claim names does not exist, or names another host.
    Missing,
}

/// Availability of `host` in the pool with the name `pool`.
pub fn host_availability(pool: &str, host: Option<&HostRecord>) -> Availability {
    member_availability(pool, host, Holder::Keeps)
}

/// Availability of `host` in the pool with the name `pool`, with the state of its holder.
pub fn member_availability(pool: &str, host: Option<&HostRecord>, holder: Holder) -> Availability {
    use Availability::Unavailable;
    let Some(host) = host else {
        return Unavailable(Exclusion::Missing);
    };
    // An empty name stands for the `BareMetalHost` that names the inventory.
    if !pool.is_empty() && host.pool.as_deref().is_some_and(|holder| holder != pool) {
        return Unavailable(Exclusion::OtherPool);
    }
    if host.bare_metal_host.is_some() && !pool.is_empty() {
        return Unavailable(Exclusion::BareMetalHost);
    }
    let is_releasing = matches!(holder, Holder::Releases(_)) && host.claim.is_some();
    let may_never_return = host.is_abandoned && !host.is_attached();
    if let Some(plan) = host.claimed_plan().filter(|plan| plan.state.is_none() && !may_never_return) {
        return match plan.kind {
            PlanType::Reprovision | PlanType::Custom if !is_releasing => Availability::Reprovisioning,
            _ => Availability::Preparing,
        };
    }
    match find_exclusion(host, holder) {
        Some(Exclusion::NotAttached) | None if is_releasing => Availability::Preparing,
        Some(exclusion) => Unavailable(exclusion),
        None if host.claim.is_some() => Availability::Allocated,
        None if host.needs_fresh_kernel() => Availability::Preparing,
        None => Availability::Available,
    }
}

fn find_exclusion(host: &HostRecord, holder: Holder) -> Option<Exclusion> {
    let is_claimed = host.claim.is_some();
    let is_failed = host.plan.as_ref().is_some_and(|plan| plan.state == Some(PlanState::Failed));
    let is_running_plan = host.plan.as_ref().is_some_and(|plan| plan.state.is_none());
    let exclusions = [
        (host.is_paused && !is_claimed, Exclusion::Paused),
        (host.is_quarantined, Exclusion::Quarantined),
        (host.refusal().is_some(), Exclusion::NotApproved),
        (host.is_deleting && !is_claimed, Exclusion::Deleting),
        (host.has_storage && !is_claimed, Exclusion::ManagedDisks),
        (host.running_custom_plan().is_some() && !is_claimed, Exclusion::CustomPlan),
        (is_failed, Exclusion::PlanFailed),
        (host.is_abandoned, Exclusion::Abandoned),
        (is_claimed && holder == Holder::Missing, Exclusion::OwnerMissing),
        (!host.is_attached(), Exclusion::NotAttached),
        (host.plan_secret.is_none(), Exclusion::NoPlanSecret),
        (!is_claimed && (!host.carries_nothing() || is_running_plan), Exclusion::CarriesNode),
    ];
    exclusions.into_iter().find_map(|(is_excluded, exclusion)| is_excluded.then_some(exclusion))
}

/// Text for members that were not chosen.
pub(super) fn describe_availability(availability: Availability) -> &'static str {
    match availability {
        Availability::Available => "reserved for other machines",
        Availability::Allocated => "allocated",
        Availability::Preparing => "being cleaned",
        Availability::Reprovisioning => "reprovisioning",
        Availability::Unavailable(exclusion) => exclusion.into(),
    }
}
