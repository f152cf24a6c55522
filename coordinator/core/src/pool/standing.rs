//! Whether a member can be claimed, and why not.

use coordinator_api::inventory::{AllocationState, PlanState, PlanType};

use crate::host::HostRecord;

/// State of a member in a pool. Each is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Available,
    /// A machine holds it.
    Allocated,
    /// Executes a clean plan, or gets one next: its machine is being deleted.
    Preparing,
    /// Executes a reprovision plan.
    Reprovisioning,
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
    #[strum(serialize = "executing a plan of an operator")]
    CustomPlan,
    #[strum(serialize = "with a failed plan")]
    PlanFailed,
    #[strum(serialize = "marked Unavailable")]
    Marked,
}

/// What the machine that holds a host does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It keeps the host, or none holds it.
    Keeps,
    /// It is being deleted: from then to its release the host is on its way back, whether or not a
    /// clean plan is announced or applied.
    Releases,
    /// It is being deleted, and something holds its deletion: the host may never come back.
    Stuck,
}

/// State of `host` in the pool called `pool`.
pub fn host_standing(pool: &str, host: Option<&HostRecord>) -> Standing {
    member_standing(pool, host, Holder::Keeps)
}

/// State of `host` in the pool called `pool`, where it is known what its holder does.
pub fn member_standing(pool: &str, host: Option<&HostRecord>, holder: Holder) -> Standing {
    use Standing::Unavailable;
    let Some(host) = host else {
        return Unavailable(Exclusion::Missing);
    };
    // Without a pool it is for the `BareMetalHost` that names it.
    if !pool.is_empty() && host.pool.as_deref().is_some_and(|holder| holder != pool) {
        return Unavailable(Exclusion::OtherPool);
    }
    if host.bare_metal_host.is_some() && !pool.is_empty() {
        return Unavailable(Exclusion::BareMetalHost);
    }
    let is_releasing = holder == Holder::Releases && host.claim.is_some();
    let may_never_return = holder == Holder::Stuck || (host.is_abandoned && !host.is_attached());
    if let Some(plan) = host.claimed_plan().filter(|plan| plan.state.is_none() && !may_never_return) {
        return match plan.kind {
            PlanType::Reprovision | PlanType::Custom if !is_releasing => Standing::Reprovisioning,
            _ => Standing::Preparing,
        };
    }
    match find_exclusion(host) {
        Some(Exclusion::NotAttached) | None if is_releasing => Standing::Preparing,
        Some(exclusion) => Unavailable(exclusion),
        None if host.claim.is_some() => Standing::Allocated,
        None => Standing::Available,
    }
}

fn find_exclusion(host: &HostRecord) -> Option<Exclusion> {
    let is_claimed = host.claim.is_some();
    let is_failed = host.plan.as_ref().is_some_and(|plan| plan.state == Some(PlanState::Failed));
    let is_running_plan = host.plan.as_ref().is_some_and(|plan| plan.state.is_none());
    let exclusions = [
        (host.is_quarantined, Exclusion::Quarantined),
        (host.refusal().is_some(), Exclusion::NotApproved),
        (host.is_deleting && !is_claimed, Exclusion::Deleting),
        (host.has_storage && !is_claimed, Exclusion::ManagedDisks),
        (host.running_custom_plan().is_some() && !is_claimed, Exclusion::CustomPlan),
        (is_failed, Exclusion::PlanFailed),
        (host.allocation == AllocationState::Unavailable, Exclusion::Marked),
        (!host.is_attached(), Exclusion::NotAttached),
        (host.plan_secret.is_none(), Exclusion::NoPlanSecret),
        (!is_claimed && (!host.carries_nothing() || is_running_plan), Exclusion::CarriesNode),
    ];
    exclusions.into_iter().find_map(|(is_excluded, exclusion)| is_excluded.then_some(exclusion))
}

/// As messages say it of members that were not chosen.
pub(super) fn describe_standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Available => "reserved for other machines",
        Standing::Allocated => "allocated",
        Standing::Preparing => "being cleaned",
        Standing::Reprovisioning => "reprovisioning",
        Standing::Unavailable(exclusion) => exclusion.into(),
    }
}
