//! The life of a host as its inventory and the Events of the last hour have it: registered,
//! installed, booted, the newest plan.

use coordinator_api::conditions::Type;
use coordinator_api::explain::Attention;
use coordinator_api::inventory::{MachineInventory, PlanState, PlanStatus};
use jiff::Timestamp;
use serde::Serialize;

use crate::fleet::{Object, text_of};
use crate::view::{EventView, with_ends};

/// The subject of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Topic {
    Registered,
    Installed,
    Boot,
    Plan,
    Event,
}

/// An occurrence, or a state that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Moment {
    pub(super) topic: Topic,
    pub(super) title: String,
    pub(super) detail: String,
    pub(super) attention: Attention,
    /// `None` if the time is not known.
    pub(super) since: Option<Timestamp>,
    /// The end of a state; absent as long as the state lasts.
    pub(super) until: Option<Timestamp>,
    /// A state, so that a missing end means that it lasts.
    pub(super) lasts: bool,
}

impl Moment {
    fn at(topic: Topic, title: &str, since: Option<Timestamp>) -> Self {
        Self {
            topic,
            title: title.to_owned(),
            detail: String::new(),
            attention: Attention::None,
            since,
            until: None,
            lasts: false,
        }
    }
}

/// The life of a host, the newest moment first. `events` are about the host, or about a machine
/// and name the host.
pub(super) fn draw_timeline(host: &Object, events: &[EventView]) -> Vec<Moment> {
    let registered = Moment::at(Topic::Registered, "Registered", host.created());
    let mut moments = vec![Moment { detail: with_ends("by ", host.registration(), ""), ..registered }];
    moments.extend(draw_install(host));
    if let Some(inventory) = host.inventory() {
        moments.extend(draw_boot(inventory));
        moments.extend(inventory.plan().and_then(draw_plan));
    }
    moments.extend(events.iter().map(draw_event));
    moments.sort_by_key(|moment| std::cmp::Reverse(moment.since.or(moment.until)));
    moments
}

fn draw_install(host: &Object) -> Option<Moment> {
    let installed =
        host.condition(Type::Installed.as_str()).filter(|condition| condition.status == "True")?;
    let status = &host.status()["host"];
    let parts = [
        ("on ", &status["install"]["device"]),
        ("image ", &status["image"]),
        ("agent ", &status["agentVersion"]),
    ];
    let parts = parts.map(|(word, value)| (word, text_of(value))).into_iter();
    let parts: Vec<_> =
        parts.filter(|(_, value)| !value.is_empty()).map(|(word, value)| format!("{word}{value}")).collect();
    let moment = Moment::at(Topic::Installed, "Installed", installed.since);
    Some(Moment { detail: parts.join(", "), ..moment })
}

fn draw_boot(inventory: &MachineInventory) -> Option<Moment> {
    let session = inventory.status.as_ref()?.host.as_ref()?.session.as_ref()?;
    let id = session.boot_id.get(..8).unwrap_or(&session.boot_id);
    Some(Moment {
        detail: format!("boot {id}, served by {}", session.replica),
        until: session.ended.as_ref().map(|ended| ended.0),
        lasts: true,
        ..Moment::at(Topic::Boot, "Booted and attached", Some(session.since.0))
    })
}

fn draw_plan(plan: &PlanStatus) -> Option<Moment> {
    let kind: &str = plan.kind?.into();
    let (outcome, attention) = match plan.state {
        None => ("runs", Attention::Wait),
        Some(PlanState::Applied) => ("is done", Attention::None),
        Some(PlanState::Failed) => ("failed", Attention::Act),
    };
    let title = format!("Plan {kind} {outcome}{}", with_ends(": ", plan.reason.as_ref(), ""));
    Some(Moment {
        detail: plan.id.clone()?,
        attention,
        until: plan.ended.as_ref().map(|ended| ended.0),
        lasts: plan.state.is_none() || plan.ended.is_some(),
        ..Moment::at(Topic::Plan, &title, plan.announced.as_ref().map(|announced| announced.0))
    })
}

fn draw_event(event: &EventView) -> Moment {
    let times = with_ends(" (", Some(event.count).filter(|count| *count > 1), " times)");
    let attention = if event.kind == "Warning" { Attention::Wait } else { Attention::None };
    let title = format!("{}{times}", event.reason);
    let moment = Moment::at(Topic::Event, &title, event.last.or(event.first));
    Moment { detail: event.note.clone(), attention, ..moment }
}

#[cfg(test)]
mod tests;
