//! Traces: the spans of one machine, from its creation to `Running` and back to a
//! free host.
//!
//! The trace is the UID of the infrastructure machine, and the id of a span is the hash of its
//! subject. So replicas add to one trace without a message between them, and a subject that two
//! replicas report is one span.

use std::fmt;

use coordinator_api::inventory::Claim;
use jiff::Timestamp;
use proto::plan::{Plan, Step};
use sha2::{Digest as _, Sha256};

use crate::demand::MachineKey;
use crate::plan::PlanEnd;

/// Id of the trace of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl TraceId {
    /// `None` for a UID that is no UUID: the API server gives none such.
    pub fn of_machine(uid: &str) -> Option<Self> {
        let digits: String = uid.split('-').collect();
        let is_uuid = digits.len() == 32 && uid.len() == 36;
        let number = is_uuid.then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
        number.filter(|&number| number != 0).map(Self)
    }

    /// Id of the trace of the machine that has claimed a host.
    pub fn of_claim(claim: &Claim) -> Option<Self> {
        Self::of_machine(claim.uid.as_deref()?)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// Id of a span, unique in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub u64);

impl SpanId {
    fn of(what: &str) -> Self {
        let digest = Sha256::digest(what.as_bytes());
        let number = digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte));
        // Zero is no id.
        Self(number.max(1))
    }

    fn of_machine() -> Self {
        Self::of("machine")
    }

    fn of_plan(plan: &Plan) -> Self {
        Self::of(&format!("plan {} {}", plan.id, plan.generation))
    }
}

/// A period of work that a trace shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: &'static str,
    pub start: Timestamp,
    pub end: Timestamp,
    /// The reason of the failure.
    pub failure: Option<&'static str>,
    pub attributes: Vec<(&'static str, String)>,
}

/// From when until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub start: Timestamp,
    pub end: Timestamp,
}

/// The whole: from the creation of the machine to its providerID.
pub fn machine_span(machine: &MachineKey, host: &str, provider_id: &str, period: Period) -> Option<Span> {
    let mut attributes = name_machine(machine);
    attributes.push(("baremetal.host", host.to_owned()));
    attributes.push(("baremetal.provider_id", provider_id.to_owned()));
    let span = new_span(trace_of(machine)?, SpanId::of_machine(), "machine", period);
    Some(Span { parent: None, attributes, ..span })
}

/// From the creation of the machine to the claim of its host.
pub fn claim_span(machine: &MachineKey, host: &str, period: Period) -> Option<Span> {
    let mut attributes = name_machine(machine);
    attributes.push(("baremetal.host", host.to_owned()));
    let span = new_span(trace_of(machine)?, SpanId::of("claim"), "claim", period);
    Some(Span { attributes, ..span })
}

/// From the announcement of a plan to the report of its end.
pub fn plan_span(claim: &Claim, host: &str, plan: &Plan, end: &PlanEnd, period: Period) -> Option<Span> {
    let failure = match end {
        PlanEnd::Applied => None,
        PlanEnd::Failed(problem) => Some(problem.reason.as_str()),
    };
    let trace = TraceId::of_claim(claim)?;
    let span = new_span(trace, SpanId::of_plan(plan), plan.kind.as_str(), period);
    Some(Span { failure, attributes: name_plan(host, plan), ..span })
}

/// The span of a step of a plan; steps are counted from zero.
pub fn step_span(
    claim: &Claim,
    host: &str,
    plan: &Plan,
    (index, step): (u32, &Step),
    failure: Option<&'static str>,
    period: Period,
) -> Option<Span> {
    let parent = SpanId::of_plan(plan);
    let id = SpanId::of(&format!("step {} {} {index}", plan.id, plan.generation));
    let mut attributes = name_plan(host, plan);
    attributes.push(("baremetal.step", index.saturating_add(1).to_string()));
    let span = new_span(TraceId::of_claim(claim)?, id, step.name(), period);
    Some(Span { parent: Some(parent), failure, attributes, ..span })
}

fn trace_of(machine: &MachineKey) -> Option<TraceId> {
    TraceId::of_machine(machine.uid.as_ref()?.as_str())
}

/// A child of the machine. A clock that was set back makes no negative time.
fn new_span(trace: TraceId, id: SpanId, name: &'static str, period: Period) -> Span {
    Span {
        trace,
        id,
        parent: Some(SpanId::of_machine()),
        name,
        start: period.start.min(period.end),
        end: period.end,
        failure: None,
        attributes: vec![],
    }
}

fn name_machine(machine: &MachineKey) -> Vec<(&'static str, String)> {
    vec![
        ("baremetal.machine.kind", machine.kind.to_owned()),
        ("k8s.namespace.name", machine.namespace.clone()),
        ("baremetal.machine", machine.name.clone()),
    ]
}

fn name_plan(host: &str, plan: &Plan) -> Vec<(&'static str, String)> {
    vec![
        ("baremetal.host", host.to_owned()),
        ("baremetal.plan", plan.id.to_string()),
        ("baremetal.generation", plan.generation.to_string()),
    ]
}

#[cfg(test)]
mod tests;
