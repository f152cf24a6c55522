//! Host-level decisions independent of any machine: claims whose machine is deleted,
//! sessions whose replica has ended, reboots, plans of operators, and moves.

mod custom;

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{AllocationState, Claim, MachineInventorySpec};
use coordinator_api::names::kind;
use jiff::Timestamp;

use crate::assignment::{self, Assignment, Wake};
use crate::holding::{Holder, compare_names};
use crate::host::{HostRecord, grace_end};
use crate::ids::HostName;
use crate::plan::StoredPlan;
use crate::plan::custom::{CustomPlan, CustomPlanError};
use crate::problem::Problem;
use crate::reboot::{self, RebootStep};
use crate::release::Release;

/// The machine that a claim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimingMachine {
    /// The host that the machine names.
    pub host: Option<HostName>,
    pub is_paused: bool,
}

/// Inputs of a decision about a host.
#[derive(Clone, Copy, Debug)]
pub struct HostSituation<'a> {
    pub host: &'a HostRecord,
    pub spec: &'a MachineInventorySpec,
    /// The machine that the claim names, when it exists.
    pub machine: Option<&'a ClaimingMachine>,
    /// The inventory, its machine or its cluster is paused.
    pub is_paused: bool,
    /// The Cluster that the claim names is not found: it may be a paused one.
    pub is_cluster_missing: bool,
    /// When the replica of its session was found dead.
    pub replica_died: Option<Timestamp>,
    /// `None` until it was read.
    pub plan: Option<&'a StoredPlan>,
    /// True if the API server itself was asked for the machine.
    pub is_verified: bool,
    /// The plan of an operator; `None` until it was read.
    pub custom: Option<&'a Result<CustomPlan, CustomPlanError>>,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HostDecision {
    pub effect: Option<HostEffect>,
    /// Why nothing is done about a claim that does not hold.
    pub hold: Option<Problem>,
    /// Allocation state of a host that no machine holds. The front door shows that of the others.
    pub allocation: Option<AllocationState>,
    /// Why the plan of an operator is not run.
    pub custom: Option<Problem>,
    /// Why the host has not rebooted as it is asked to.
    pub reboot: Option<Problem>,
    pub wake: Wake,
}

/// The one change that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEffect {
    /// Look the machine of the claim up in the API server itself and decide again, because the
    /// cache may be stale.
    Verify,
    /// Read the plan Secret and decide again.
    ReadPlan,
    /// The claim holds nothing: remove it.
    Release,
    /// An operator deletes the inventory, and its machine does not exist or it has none: remove the
    /// finalizer.
    RemoveFinalizer,
    /// The host of an abandoned claim attached: it is cleaned.
    Assign(Assignment),
    /// The clean that an operator asked for is announced: remove the request.
    ForgetRetry,
    /// The replica that served the session is dead.
    EndSession { ended: Timestamp },
    /// Its plan ended: `clusterctl move` may go on.
    AllowMove,
    /// Read the Secret of that name, a plan of an operator, and decide again.
    ReadCustom(String),
    /// Store and announce the plan of an operator.
    AssignCustom(Assignment),
    /// It was announced: remove the request.
    ForgetCustom,
    /// Record that a reboot ends this boot: the host is asked to.
    BeginReboot(String),
    /// The host runs another boot: remove the request.
    FinishReboot,
}

impl HostEffect {
    /// The condition of the request that the effect is a part of, or `Ready`.
    pub fn request(&self) -> Type {
        match self {
            Self::ReadCustom(_) | Self::AssignCustom(_) | Self::ForgetCustom => Type::CustomPlanAccepted,
            Self::BeginReboot(_) | Self::FinishReboot => Type::Rebooted,
            _ => Type::Ready,
        }
    }
}

pub fn decide_host(situation: &HostSituation<'_>) -> HostDecision {
    let (session, session_wake) = check_session(situation);
    let mut hold = None;
    let effect =
        session.or_else(|| check_deletion(situation)).or_else(|| check_move(situation)).or_else(|| {
            check_claim(situation).unwrap_or_else(|problem| {
                hold = Some(problem);
                None
            })
        });
    let (due, reboot) = check_reboot(situation);
    let (effect, problem) = match effect.or(due) {
        Some(effect) => (Some(effect), None),
        None => custom::check_request(situation),
    };
    let grace = situation.host.grace_ends(situation.now).map_or(Wake::OnChange, Wake::At);
    let wake = match (session_wake, grace) {
        (Wake::OnChange, Wake::OnChange) if problem.is_some() => custom::next_look(situation.now),
        (Wake::OnChange, grace) => grace,
        (session, _) => session,
    };
    let allocation = find_allocation(situation, hold.as_ref());
    HostDecision { effect, hold, allocation, custom: problem, reboot, wake }
}

/// The allocation state of a host that no machine holds, which is shown if no effect is due.
fn find_allocation(situation: &HostSituation<'_>, hold: Option<&Problem>) -> Option<AllocationState> {
    let host = situation.host;
    if situation.is_paused {
        return None;
    }
    if host.claim.is_none() {
        let is_preparing = host.needs_fresh_kernel();
        let state = if is_preparing { AllocationState::Preparing } else { AllocationState::Available };
        return (!host.is_deleting).then_some(state);
    }
    if host.is_abandoned {
        // A plan that was announced before the host was lost runs only after the host attaches.
        let is_cleaning = host.is_attached() && matches!(Release::of(host, true), Release::Cleaning(_));
        return Some(if is_cleaning { AllocationState::Preparing } else { AllocationState::Unavailable });
    }
    let is_orphan = hold.is_some() && !is_held_for_cluster(situation);
    is_orphan.then_some(AllocationState::Unavailable)
}

fn check_reboot(situation: &HostSituation<'_>) -> (Option<HostEffect>, Option<Problem>) {
    if situation.is_paused {
        return (None, None);
    }
    match reboot::decide_reboot(situation.host, situation.now) {
        None => (None, None),
        Some(RebootStep::Begin(boot)) => (Some(HostEffect::BeginReboot(boot)), None),
        Some(RebootStep::Finish) => (Some(HostEffect::FinishReboot), None),
        Some(RebootStep::Wait(problem)) => (None, Some(problem)),
    }
}

/// After its replica failed, a host has the grace period to attach to another one.
fn check_session(situation: &HostSituation<'_>) -> (Option<HostEffect>, Wake) {
    let Some(died) = situation.replica_died.filter(|_| situation.host.is_attached()) else {
        return (None, Wake::OnChange);
    };
    let end = grace_end(died);
    if situation.now >= end {
        return (Some(HostEffect::EndSession { ended: died }), Wake::OnChange);
    }
    (None, Wake::At(end))
}

/// A deleted inventory that no machine claims goes. The finalizer has the name of the upstream operator's
/// too, so that an imported inventory has it without a claim.
fn check_deletion(situation: &HostSituation<'_>) -> Option<HostEffect> {
    let host = situation.host;
    let is_due = host.is_deleting && host.has_finalizer && host.claim.is_none() && !situation.is_paused;
    is_due.then_some(HostEffect::RemoveFinalizer)
}

fn check_move(situation: &HostSituation<'_>) -> Option<HostEffect> {
    let host = situation.host;
    let in_flight = has_plan_in_flight(host) || host.running_custom_plan().is_some();
    // A free host belongs to no Cluster that would be paused for the move; a request of a plan comes first.
    let is_free = host.claim.is_none() && host.custom_plan.is_none();
    let is_due = situation.is_paused || is_free;
    (host.blocks_move && is_due && !in_flight).then_some(HostEffect::AllowMove)
}

/// The effect that is due for the claim, or why the clean of an abandoned host cannot be assigned.
fn check_claim(situation: &HostSituation<'_>) -> Result<Option<HostEffect>, Problem> {
    let host = situation.host;
    let Some(claim) = host.claim.as_ref().filter(|_| !situation.is_paused) else { return Ok(None) };
    if host.is_abandoned {
        return match (clean_abandoned(situation), remove_abandoned(situation)) {
            (Ok(None) | Err(_), Some(removal)) => Ok(Some(removal)),
            (clean, _) => clean,
        };
    }
    if is_claim_valid(situation) {
        return Ok(None);
    }
    if is_held_for_cluster(situation) {
        let state = format!("the host is not touched while Cluster {} is not found", claim.cluster);
        return Err(owner_missing(situation.host, claim, &state, "restore both"));
    }
    check_orphan(situation, claim)
}

fn is_claim_valid(situation: &HostSituation<'_>) -> bool {
    let Some((machine, claim)) = situation.machine.zip(situation.host.claim.as_ref()) else { return false };
    let holder = Holder { kind: &claim.kind, name: &claim.baremetal_machine, host: machine.host.as_ref() };
    compare_names(holder, &situation.host.name, Some(claim)).keeps_claim()
}

/// A claim is neither released nor given up without its Cluster, because both may be restored. An
/// operator may still delete the inventory, and an abandoned claim needs no Cluster.
fn is_held_for_cluster(situation: &HostSituation<'_>) -> bool {
    let host = situation.host;
    situation.is_cluster_missing && !host.is_deleting && !host.is_abandoned
}

fn owner_missing(host: &HostRecord, claim: &Claim, state: &str, restore: &str) -> Problem {
    let message = format!(
        "{} {} held this host and does not exist or names another host; {state}",
        claim.kind, claim.baremetal_machine
    );
    // The command takes a name alone for a BaremetalMachine.
    let owner = if claim.kind == kind::BAREMETAL_MACHINE {
        claim.baremetal_machine.clone()
    } else {
        host.claim_text()
    };
    let action = format!(
        "{restore}, or have the host cleaned by `kubectl baremetal clean {} --owner {owner}`",
        host.name
    );
    Problem::new(Reason::OwnerMissing, message, action)
}

/// The machine does not exist, or names another host. A claim is released only after a statement of
/// the host, or after its clean.
fn check_orphan(situation: &HostSituation<'_>, claim: &Claim) -> Result<Option<HostEffect>, Problem> {
    let host = situation.host;
    if !situation.is_verified {
        return Ok(Some(HostEffect::Verify));
    }
    // A host that states another owner is taken again by that one.
    if Release::of(host, host.claimed_plan().is_some()).is_over() {
        return Ok(Some(HostEffect::Release));
    }
    if host.is_deleting {
        return Ok(Some(HostEffect::RemoveFinalizer));
    }
    Err(owner_missing(host, claim, "the host was not cleaned, and no machine gets it", "restore the machine"))
}

/// A plan of the claim was announced and has not ended.
fn has_plan_in_flight(host: &HostRecord) -> bool {
    host.claimed_plan().is_some_and(|plan| plan.state.is_none())
}

/// The machine went without a clean: the host is cleaned when it attaches.
fn clean_abandoned(situation: &HostSituation<'_>) -> Result<Option<HostEffect>, Problem> {
    let host = situation.host;
    // A plan that the host has not received yet would make it a node after its statement: the clean
    // plan replaces it.
    match Release::of(host, has_plan_in_flight(host)) {
        Release::Foreign | Release::Unused => Ok(Some(HostEffect::Release)),
        Release::Unstated => Ok(None),
        _ if !host.is_known() => Ok(None),
        Release::Cleaned(_) => Ok(Some(HostEffect::Release)),
        Release::Cleaning(_) => Ok(host.retries_clean.then_some(HostEffect::ForgetRetry)),
        Release::CleanFailed(_) if !host.retries_clean => Ok(None),
        Release::CleanFailed(_) | Release::CleanDue => {
            let Some(stored) = situation.plan else { return Ok(Some(HostEffect::ReadPlan)) };
            let assigned = assignment::assign_clean(host, situation.spec, stored);
            assigned.map(|assignment| Some(HostEffect::Assign(assignment))).map_err(|blocker| blocker.problem)
        }
    }
}

/// An operator deletes the inventory of an abandoned host, which is not cleaned now.
fn remove_abandoned(situation: &HostSituation<'_>) -> Option<HostEffect> {
    let host = situation.host;
    let is_cleaned = host.is_attached() && has_plan_in_flight(host);
    let is_due = host.is_deleting && !is_cleaned;
    is_due.then_some(if situation.is_verified { HostEffect::RemoveFinalizer } else { HostEffect::Verify })
}

#[cfg(test)]
mod tests;
