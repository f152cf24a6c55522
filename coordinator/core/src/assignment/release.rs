//! From a node back to a free host.

use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::AllocationState;
use coordinator_api::machine::Phase;
use coordinator_api::names::annotation;

use super::provision::{clean_failed, executing, grace_wake, in_flight};
use super::{Effect, Host, Outcome, SecretRef, Situation, State, Wake, foreign_node, link};
use crate::host::{AnnouncedPlan, HostRecord};
use crate::problem::{Blocker, Problem};
use crate::release::Release;

/// The machine in deletion holds `host`.
pub(super) fn release_host(situation: &Situation<'_>, host: Host<'_>) -> Outcome {
    let record = host.record;
    // Its node is another one's: a clean would take that one.
    if foreign_node(situation, record).is_some() {
        return Outcome::from_effect(Effect::Release);
    }
    let demand = situation.demand;
    match Release::of(record, was_used(situation, record)) {
        Release::Cleaned(clean) => link::remove_node(situation, record, clean),
        // An operator may have given the host up by its annotation alone.
        _ if demand.release_without_clean || record.is_abandoned || is_overdue(situation, record) => {
            link::abandon_host(situation, record)
        }
        Release::Foreign | Release::Unused => Outcome::from_effect(Effect::Release),
        // The clean that was asked for is announced, so that the request does not repeat the next one.
        Release::Cleaning(_) if demand.retry_clean => Outcome::from_effect(Effect::ForgetRetry),
        Release::Cleaning(plan) => follow_clean(situation, record, plan),
        Release::CleanFailed(plan) if !demand.retry_clean => {
            let state = State::new(Phase::Preparing, Some(record));
            Outcome::from_blocker(state.with_allocation(AllocationState::Unavailable), clean_failed(plan))
        }
        Release::Unstated => await_statement(situation, record),
        Release::CleanFailed(_) | Release::CleanDue => assign_clean(situation, host),
    }
}

/// A plan of the claim, a providerID, or the node on the host: what the host states is not all.
fn was_used(situation: &Situation<'_>, host: &HostRecord) -> bool {
    host.claimed_plan().is_some() || situation.demand.provider_id.is_some() || host.carried_node().is_some()
}

fn advise_dead_host() -> String {
    format!(
        "if it is dead, power it off for good, then set the annotation {} on this object",
        annotation::RELEASE_WITHOUT_CLEAN
    )
}

fn await_statement(situation: &Situation<'_>, host: &HostRecord) -> Outcome {
    let message = "the host is not attached and has not stated that it carries nothing";
    let problem = Problem::new(Reason::HostStatementMissing, message, advise_dead_host());
    let blocker = Blocker::waiting_for(Type::PlanApplied, problem);
    Outcome::from_blocker(State::new(Phase::Preparing, Some(host)), blocker)
        .with_wake(release_wake(situation, host))
}

fn follow_clean(situation: &Situation<'_>, host: &HostRecord, plan: &AnnouncedPlan) -> Outcome {
    let mut problem = in_flight(situation, host, plan, Reason::Cleaning);
    if problem.reason != Reason::Cleaning {
        problem = problem.or_do(&advise_dead_host());
    }
    let blocker = Blocker::waiting_for(Type::PlanApplied, problem);
    let state = State::new(Phase::Preparing, Some(host)).with_allocation(AllocationState::Preparing);
    Outcome::from_blocker(state, blocker).with_wake(release_wake(situation, host))
}

fn assign_clean(situation: &Situation<'_>, host: Host<'_>) -> Outcome {
    let Some(stored) = &situation.secrets.plan else {
        return Outcome::from_effect(Effect::ReadSecret(SecretRef::Plan));
    };
    let state = State::new(Phase::Preparing, Some(host.record));
    let assignment = match super::assign_clean(host.record, host.spec, stored) {
        Ok(assignment) => assignment,
        Err(blocker) => {
            return Outcome::from_blocker(state, blocker).with_wake(release_wake(situation, host.record));
        }
    };
    let plan = &assignment.plan;
    let blocker = Blocker::waiting_for(Type::PlanApplied, executing(&plan.id, Reason::Cleaning));
    let state = State { is_applied: false, plan_checksum: Some(plan.checksum.to_string()), ..state };
    Outcome::from_blocker(state, blocker)
        .with_effect(Some(Effect::Assign(assignment)))
        .with_wake(release_wake(situation, host.record))
}

/// True if the pool gives unreachable hosts up after a time that has passed.
fn is_overdue(situation: &Situation<'_>, host: &HostRecord) -> bool {
    overdue_at(situation, host).is_some_and(|at| situation.now >= at)
}

fn overdue_at(situation: &Situation<'_>, host: &HostRecord) -> Option<jiff::Timestamp> {
    let after = situation.demand.abandon_after?;
    // A lost status does not tell since when.
    host.session.as_ref()?;
    let since = host.unreachable_since(situation.now)?;
    since.saturating_add(after).ok()
}

fn release_wake(situation: &Situation<'_>, host: &HostRecord) -> Wake {
    overdue_at(situation, host).map_or_else(|| grace_wake(situation, host), Wake::At)
}
