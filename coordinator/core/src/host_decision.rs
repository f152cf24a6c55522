//! Host-level decisions independent of any machine: claims whose machine is deleted,
//! sessions whose replica has ended, reboots, plans of operators, and moves.

mod custom;

use coordinator_api::conditions::Reason;
use coordinator_api::inventory::{AllocationState, MachineInventorySpec, PlanType};
use jiff::Timestamp;

use crate::assignment::{self, Assignment, Wake};
use crate::host::{AnnouncedPlan, HostRecord, grace_end};
use crate::ids::HostName;
use crate::plan::StoredPlan;
use crate::plan::custom::{CustomPlan, CustomPlanError};
use crate::problem::Problem;
use crate::reboot::{self, RebootStep};

/// How an operator frees a host whose machine is lost.
const INSTALL_AGAIN: &str = "install the host as a new one (\"Wipe a disk\" in docs/operations.md)";

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
    /// The plan of an operator; `None` until it was read.
    pub custom: Option<&'a Result<CustomPlan, CustomPlanError>>,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HostDecision {
    pub effect: Option<HostEffect>,
    /// Why nothing is done about a claim that does not hold.
    pub hold: Option<Problem>,
    /// Why the plan of an operator is not run.
    pub custom: Option<Problem>,
    /// Why the host has not rebooted as it is asked to.
    pub reboot: Option<Problem>,
    pub wake: Wake,
}

/// The one change that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEffect {
    /// The machine that the claim names is looked up in the API server itself
    /// before anything is done about its absence.
    Verify(Box<HostEffect>),
    /// Read the plan Secret and decide again.
    ReadPlan,
    /// The claim holds nothing: remove it.
    Release,
    /// An operator deletes the inventory, and its machine does not exist: remove the
    /// finalizer.
    RemoveFinalizer,
    /// The machine does not exist and the host was not cleaned.
    MarkOrphaned(Problem),
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

pub fn decide_host(situation: &HostSituation<'_>) -> HostDecision {
    let (session, session_wake) = check_session(situation);
    let mut hold = find_hold(situation);
    let effect = session.or_else(|| check_move(situation)).or_else(|| {
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
    HostDecision { effect, hold, custom: problem, reboot, wake }
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

fn check_move(situation: &HostSituation<'_>) -> Option<HostEffect> {
    let host = situation.host;
    let in_flight = has_plan_in_flight(host) || host.running_custom_plan().is_some();
    // A free host belongs to no Cluster that would be paused for the move; a request of a plan comes first.
    let is_free = host.claim.is_none() && host.custom_plan.is_none();
    let is_due = situation.is_paused || is_free;
    (host.blocks_move && is_due && !in_flight).then_some(HostEffect::AllowMove)
}

/// What is due for the claim, or why the clean of an abandoned host cannot be assigned.
fn check_claim(situation: &HostSituation<'_>) -> Result<Option<HostEffect>, Problem> {
    let host = situation.host;
    if host.claim.is_none() || situation.is_paused {
        return Ok(None);
    }
    if host.is_abandoned {
        return match (clean_abandoned(situation), remove_abandoned(host)) {
            (Ok(None) | Err(_), Some(removal)) => Ok(Some(removal)),
            (clean, _) => clean,
        };
    }
    let is_held = is_claim_valid(situation) || find_hold(situation).is_some();
    Ok(if is_held { None } else { check_orphan(situation) })
}

/// Whether the machine of the claim names the host. One that names none yet
/// chooses this one.
fn is_claim_valid(situation: &HostSituation<'_>) -> bool {
    let named = situation.machine.map(|machine| machine.host.as_ref());
    named.is_some_and(|named| named.is_none_or(|named| *named == situation.host.name))
}

/// Without its Cluster a claim is neither released nor given up: both may be
/// restored. An operator may still delete the inventory; an abandoned claim
/// needs no Cluster.
fn find_hold(situation: &HostSituation<'_>) -> Option<Problem> {
    let host = situation.host;
    let claim = host.claim.as_ref()?;
    let is_held = situation.is_cluster_missing
        && !(situation.is_paused || host.is_deleting || host.is_abandoned)
        && !is_claim_valid(situation);
    is_held.then(|| {
        let message = format!(
            "{} {} held this host and does not exist or names another host; the host is not touched while Cluster {} is not found",
            claim.kind, claim.baremetal_machine, claim.cluster
        );
        Problem::new(Reason::OwnerMissing, message, format!("restore both, or {INSTALL_AGAIN}"))
    })
}

/// The machine does not exist, or names another host. A claim is released only on the
/// host's own statement, or by its clean.
fn check_orphan(situation: &HostSituation<'_>) -> Option<HostEffect> {
    let host = situation.host;
    let verified = |effect| Some(HostEffect::Verify(Box::new(effect)));
    // The machine of its node takes it again.
    if host.foreign_owner().is_some() {
        return verified(HostEffect::Release);
    }
    if host.claimed_plan().is_some_and(AnnouncedPlan::is_applied_clean) || carries_no_claim(host) {
        return verified(HostEffect::Release);
    }
    if host.is_deleting {
        return verified(HostEffect::RemoveFinalizer);
    }
    if host.allocation == AllocationState::Unavailable {
        return None;
    }
    let claim = host.claim.as_ref()?;
    let message = format!(
        "{} {} held this host and does not exist or names another host; the host was not cleaned, and no machine gets it",
        claim.kind, claim.baremetal_machine
    );
    let action = format!("restore the machine, or {INSTALL_AGAIN}");
    verified(HostEffect::MarkOrphaned(Problem::new(Reason::OwnerMissing, message, action)))
}

/// No plan of the claim was assigned, and the host reports none.
fn carries_no_claim(host: &HostRecord) -> bool {
    host.claimed_plan().is_none() && host.carries_nothing()
}

/// A plan of the claim was announced and has not ended.
fn has_plan_in_flight(host: &HostRecord) -> bool {
    host.claimed_plan().is_some_and(|plan| plan.state.is_none())
}

/// The machine went without a clean: the host is cleaned when it attaches.
fn clean_abandoned(situation: &HostSituation<'_>) -> Result<Option<HostEffect>, Problem> {
    let host = situation.host;
    // The claim was restored, and the node is of the one that got the host after it.
    if host.foreign_owner().is_some() {
        return Ok(Some(HostEffect::Release));
    }
    // A plan that the host has not received yet would make it a node after its statement: the clean
    // plan replaces it.
    if host.carries_nothing() && !has_plan_in_flight(host) {
        return Ok(Some(HostEffect::Release));
    }
    if !host.is_known() {
        return Ok(None);
    }
    let clean = claimed_clean(host);
    if clean.is_some_and(AnnouncedPlan::is_applied_clean) {
        return Ok(Some(HostEffect::Release));
    }
    if is_clean_due(host) {
        let Some(stored) = situation.plan else { return Ok(Some(HostEffect::ReadPlan)) };
        return match assignment::assign_clean(host, situation.spec, stored) {
            Ok(assignment) => Ok(Some(HostEffect::Assign(assignment))),
            Err(blocker) => Err(blocker.problem),
        };
    }
    let is_running = clean.is_some_and(|plan| plan.state.is_none());
    Ok((is_running && host.retries_clean).then_some(HostEffect::ForgetRetry))
}

/// The clean plan of the claim, where there is one.
fn claimed_clean(host: &HostRecord) -> Option<&AnnouncedPlan> {
    host.claimed_plan().filter(|plan| plan.kind == PlanType::Clean)
}

/// Whether an abandoned host that states a node gets a clean plan, or another one.
fn is_clean_due(host: &HostRecord) -> bool {
    match claimed_clean(host) {
        None => true,
        Some(plan) => plan.is_failed_clean() && host.retries_clean,
    }
}

/// An operator deletes the inventory of an abandoned host, which is not cleaned now.
fn remove_abandoned(host: &HostRecord) -> Option<HostEffect> {
    let is_cleaned = host.is_attached() && has_plan_in_flight(host);
    (host.is_deleting && !is_cleaned).then(|| HostEffect::Verify(Box::new(HostEffect::RemoveFinalizer)))
}

#[cfg(test)]
mod tests;
