//! The life of a host: registered, installed, booted, its plans and their steps, Events.

use std::collections::BTreeMap;

use coordinator_api::conditions::Type;
use coordinator_api::explain::Attention;
use coordinator_api::inventory::{PlanState, SessionStatus};
use coordinator_api::notes::HostNote;
use jiff::Timestamp;
use serde::Serialize;

use super::trace::{PlanTrace, Trace};
use crate::fleet::Object;
use crate::view::{EventView, StepState, outline_plan};

/// What a moment is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Topic {
    Registered,
    Installed,
    Boot,
    Plan,
    Event,
}

/// Something that happened, or goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Moment {
    pub(super) topic: Topic,
    pub(super) title: String,
    pub(super) detail: String,
    pub(super) attention: Attention,
    /// `None` where it is not known.
    pub(super) since: Option<Timestamp>,
    /// Of what lasts: when it ended; absent while it goes on.
    pub(super) until: Option<Timestamp>,
    /// Whether it lasts, so that a missing end means that it goes on.
    pub(super) lasts: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) steps: Vec<StepMoment>,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct StepMoment {
    pub(super) name: String,
    /// Empty where it is not known.
    pub(super) state: &'static str,
    /// What is known beside the state.
    pub(super) detail: String,
    /// When it was reported to run, by a page that saw it.
    pub(super) since: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

impl Moment {
    fn at(topic: Topic, title: String, since: Option<Timestamp>) -> Self {
        Self {
            topic,
            title,
            detail: String::new(),
            attention: Attention::None,
            since,
            until: None,
            lasts: false,
            steps: vec![],
        }
    }
}

/// What is known of the life of a host, the newest first. `events` are those about the host
/// and those of machines that name it.
pub(super) fn draw_timeline(host: &Object, events: &[EventView], trace: &Trace) -> Vec<Moment> {
    let mut moments = vec![];
    let registration = host.registration().map(|name| format!("by {name}")).unwrap_or_default();
    let registered = Moment::at(Topic::Registered, "Registered".to_owned(), host.created());
    moments.push(Moment { detail: registration, ..registered });
    moments.extend(draw_install(host));
    moments.extend(draw_boots(trace));
    let assigned: BTreeMap<&str, Timestamp> = events.iter().filter_map(read_assignment).collect();
    moments.extend(trace.plans.iter().map(|plan| draw_plan(host, plan, assigned.get(&*plan.id).copied())));
    let is_shown = |event: &&EventView| {
        // It is where the plan begins.
        read_assignment(event).is_none_or(|(id, _)| trace.plans.iter().all(|plan| plan.id != id))
    };
    moments.extend(events.iter().filter(is_shown).map(draw_event));
    moments.sort_by_key(|moment| std::cmp::Reverse(moment.since.or(moment.until)));
    moments
}

/// Id of the plan that an Event announces, and when.
fn read_assignment(event: &EventView) -> Option<(&str, Timestamp)> {
    Some((HostNote::parse(&event.note)?.plan()?, event.first?))
}

fn draw_install(host: &Object) -> Option<Moment> {
    let installed =
        host.condition(Type::Installed.as_str()).filter(|condition| condition.status == "True")?;
    let status = &host.status()["host"];
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    let device = status["install"]["device"].as_str().unwrap_or_default();
    let parts = [("on ", device), ("image ", text("image")), ("agent ", text("agentVersion"))];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<_> = parts.map(|(word, value)| format!("{word}{value}")).collect();
    let moment = Moment::at(Topic::Installed, "Installed".to_owned(), installed.since);
    Some(Moment { detail: parts.join(", "), ..moment })
}

/// Sessions of one boot are one moment.
fn draw_boots(trace: &Trace) -> Vec<Moment> {
    let mut boots: Vec<Vec<&SessionStatus>> = vec![];
    for session in &trace.sessions {
        match boots.last_mut().filter(|boot| boot.iter().all(|one| one.boot_id == session.boot_id)) {
            Some(boot) => boot.push(session),
            None => boots.push(vec![session]),
        }
    }
    // A session of another boot ends those of the one before.
    let next: Vec<_> = boots.iter().skip(1).map(|boot| boot.first().map(|one| one.since.0)).collect();
    let next = next.into_iter().chain([None]);
    let draw = |(boot, next): (Vec<&SessionStatus>, Option<Timestamp>)| {
        let (first, last) = (boot.first()?, boot.last()?);
        let id = first.boot_id.get(..8).unwrap_or(&first.boot_id);
        let times = if boot.len() > 1 { format!(", attached {} times", boot.len()) } else { String::new() };
        Some(Moment {
            detail: format!("boot {id}, served by {}{times}", last.replica),
            until: last.ended.as_ref().map(|ended| ended.0).or(next),
            lasts: true,
            ..Moment::at(Topic::Boot, "Booted and attached".to_owned(), Some(first.since.0))
        })
    };
    boots.into_iter().zip(next).filter_map(draw).collect()
}

fn draw_plan(host: &Object, plan: &PlanTrace, assigned: Option<Timestamp>) -> Moment {
    let outcome = match plan.state {
        None => "runs",
        Some(PlanState::Applied) => "is done",
        Some(PlanState::Failed) => "failed",
    };
    let reason = plan.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let attention = match plan.state {
        None => Attention::Wait,
        Some(PlanState::Applied) => Attention::None,
        Some(PlanState::Failed) => Attention::Act,
    };
    let since = plan.announced.or(assigned).or(plan.seen);
    Moment {
        detail: plan.id.clone(),
        attention,
        until: plan.ended,
        lasts: plan.state.is_none() || plan.ended.is_some(),
        steps: draw_steps(host, plan),
        ..Moment::at(Topic::Plan, format!("Plan {} {outcome}{reason}", plan.kind), since)
    }
}

/// The steps of the newest plan with their states; of a former one those that were seen.
fn draw_steps(host: &Object, plan: &PlanTrace) -> Vec<StepMoment> {
    let times = |name: &str| {
        let index = plan.steps.iter().position(|(step, _)| step == name)?;
        let next = plan.steps.get(index + 1).map(|(_, time)| *time);
        Some((plan.steps[index].1, next.or(plan.ended)))
    };
    let outline = outline_plan(host).filter(|outline| outline.id == plan.id && !outline.steps.is_empty());
    let step = |name: String, state: &'static str, detail: String| {
        let (since, until) = times(&name).unzip();
        StepMoment { name, state, detail, since, until: until.flatten() }
    };
    match outline {
        Some(outline) => outline
            .steps
            .into_iter()
            .map(|view| {
                let detail =
                    if view.state == StepState::Running { view.describe_state() } else { String::new() };
                step(view.name, view.state.into(), detail)
            })
            .collect(),
        None => plan.steps.iter().map(|(name, _)| step(name.clone(), "", String::new())).collect(),
    }
}

fn draw_event(event: &EventView) -> Moment {
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    let attention = if event.kind == "Warning" { Attention::Wait } else { Attention::None };
    let moment = Moment::at(Topic::Event, format!("{}{times}", event.reason), event.last.or(event.first));
    Moment { detail: event.note.clone(), attention, ..moment }
}

#[cfg(test)]
mod tests;
