//! What was seen of a host while the page was served: the status of an inventory has the
//! newest plan and session alone.

use std::collections::VecDeque;

use coordinator_api::inventory::{MachineInventory, PlanState, PlanStatus, SessionStatus};
use jiff::Timestamp;

/// Sessions and plans that are kept of one host.
const KEPT: usize = 16;

/// What was seen of a host, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) sessions: VecDeque<SessionStatus>,
    pub(super) plans: VecDeque<PlanTrace>,
}

/// What was seen of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanTrace {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) state: Option<PlanState>,
    pub(super) reason: Option<String>,
    /// When the coordinator announced it.
    pub(super) announced: Option<Timestamp>,
    /// When it appeared; `None` where it was there before.
    pub(super) seen: Option<Timestamp>,
    pub(super) ended: Option<Timestamp>,
    /// Steps in the order in which they were reported to run.
    pub(super) steps: Vec<(String, Timestamp)>,
}

impl Trace {
    /// Takes up what an inventory shows now.
    pub(super) fn note(&mut self, inventory: &MachineInventory, now: Timestamp) {
        let is_first = self.sessions.is_empty() && self.plans.is_empty();
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        if let Some(session) = host.and_then(|host| host.session.as_ref()) {
            self.note_session(session);
        }
        if let Some(plan) = inventory.plan() {
            self.note_plan(plan, now, is_first);
        }
    }

    fn note_session(&mut self, session: &SessionStatus) {
        let is_same = |last: &SessionStatus| last.boot_id == session.boot_id && last.since == session.since;
        match self.sessions.back_mut().filter(|last| is_same(last)) {
            Some(last) => last.clone_from(session),
            None => push(&mut self.sessions, session.clone()),
        }
    }

    fn note_plan(&mut self, plan: &PlanStatus, now: Timestamp, is_first: bool) {
        let (Some(id), Some(kind)) = (&plan.id, plan.kind) else { return };
        if self.plans.back().is_none_or(|last| last.id != *id) {
            let seen = (!is_first).then_some(now);
            let kind = kind.into();
            let new = PlanTrace {
                id: id.clone(),
                kind,
                state: None,
                reason: None,
                announced: None,
                seen,
                ended: None,
                steps: vec![],
            };
            push(&mut self.plans, new);
        }
        let Some(last) = self.plans.back_mut() else { return };
        last.state = plan.state;
        last.reason.clone_from(&plan.reason);
        last.announced = plan.announced.as_ref().map(|announced| announced.0);
        last.ended = plan.ended.as_ref().map(|ended| ended.0).filter(|_| plan.state.is_some());
        let running = plan.step.as_ref().filter(|_| plan.state.is_none());
        if let Some(step) = running
            && last.steps.last().is_none_or(|(name, _)| *name != step.name)
            && last.steps.len() < KEPT
        {
            last.steps.push((step.name.clone(), now));
        }
    }
}

fn push<T>(queue: &mut VecDeque<T>, new: T) {
    if queue.len() == KEPT {
        queue.pop_front();
    }
    queue.push_back(new);
}
