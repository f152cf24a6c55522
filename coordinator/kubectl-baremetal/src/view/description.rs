//! Everything that is known of a host, for reading.

use std::fmt::Write as _;

use coordinator_api::inventory::MachineInventory;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde::Serialize;

use super::host_row::HostRow;
use super::steps::PlanView;
use super::text::{format_age, paint, style_of, with_ends};
use crate::fleet::{Condition, Object};
use crate::why::Chain;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventView {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
    pub(crate) count: i32,
}

impl EventView {
    pub(crate) fn read(event: &Event) -> Self {
        // The coordinator writes Events of the core API, whose fields are the deprecated ones here.
        let first = event.deprecated_first_timestamp.as_ref().map(|time| time.0);
        let last = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
        let series = event.series.as_ref();
        let single = event.event_time.as_ref().map(|time| time.0);
        Self {
            kind: event.type_.clone().unwrap_or_default(),
            reason: event.reason.clone().unwrap_or_default(),
            note: event.note.clone().unwrap_or_default(),
            first: first.or(single).or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0)),
            last: last.or(series.map(|series| series.last_observed_time.0)).or(single),
            count: event.deprecated_count.or(series.map(|series| series.count)).unwrap_or(1),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description {
    #[serde(flatten)]
    pub(crate) row: HostRow,
    pub(crate) why: Chain,
    pub(crate) newest_plan: Option<PlanView>,
    pub(crate) conditions: Vec<Condition>,
    /// The newest last.
    pub(crate) events: Vec<EventView>,
}

pub(crate) fn format_description(description: &Description, object: &Object, now: Timestamp) -> String {
    let mut text = String::new();
    let row = &description.row;
    let state: &str = row.state.into();
    let style = style_of(row.attention);
    let reason = with_ends(" (", Some(&row.reason).filter(|reason| !reason.is_empty()), ")");
    line(&mut text, "Name", &format!("{} in namespace {}", row.name, row.namespace));
    line(&mut text, "State", &paint(style, &format!("{state}{reason}")));
    line(&mut text, "Message", &row.message);
    line(&mut text, "Next action", &row.action);
    line(&mut text, "Pool", &row.pool);
    line(&mut text, "Cluster", &row.cluster);
    line(&mut text, "Machine", &row.machine);
    line(&mut text, "Known for", &format_age(row.created, now));
    if let Some(inventory) = object.inventory() {
        write_host(&mut text, inventory, row, now);
    }
    if let Some(plan) = &description.newest_plan {
        write_plan(&mut text, plan);
    }
    text.push_str("Conditions\n");
    for condition in &description.conditions {
        let Condition { kind, status, reason, message, since } = condition;
        let age = format_age(*since, now);
        let message = with_ends(": ", Some(message).filter(|message| !message.is_empty()), "");
        let _ = writeln!(text, "  {kind}={status} {reason} ({age}){message}");
    }
    if !description.events.is_empty() {
        text.push_str("Events\n");
    }
    for event in &description.events {
        let times = with_ends(", ", Some(event.count).filter(|count| *count > 1), " times");
        let age = format_age(event.last, now);
        let _ = writeln!(text, "  {} {} ({age}{times}): {}", event.kind, event.reason, event.note);
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        let _ = writeln!(text, "{name:<14}{value}");
    }
}

fn write_host(text: &mut String, inventory: &MachineInventory, row: &HostRow, now: Timestamp) {
    line(text, "Identity", inventory.spec.tpm_hash.as_deref().unwrap_or(""));
    line(text, "Key", &row.identity);
    let Some(host) = inventory.status.as_ref().and_then(|status| status.host.as_ref()) else { return };
    line(text, "SMBIOS UUID", host.system_uuid.as_deref().unwrap_or(""));
    line(text, "Hostname", &host.hostname);
    line(text, "Addresses", &row.addresses.join(", "));
    line(text, "Image", &format!("{} {}", row.image, row.boot_mode).trim().replace("  ", " "));
    line(text, "Agent", &host.agent_version);
    for left in &host.left_behind {
        line(text, "Left behind", left);
    }
    if let Some(install) = &host.install {
        line(text, "Install", &format!("{:?} on {}", install.state, install.device));
    }
    if let Some(session) = &host.session {
        let since = format_age(Some(session.since.0), now);
        let session = match &session.ended {
            None => format!("open for {since}, served by {}", session.replica),
            Some(ended) => format!("ended {} ago", format_age(Some(ended.0), now)),
        };
        line(text, "Session", &session);
    }
    if let Some(node) = host.carried.as_ref().and_then(|carried| carried.node.as_ref()) {
        line(text, "Carries", &node.provider_id);
    }
}

fn write_plan(text: &mut String, plan: &PlanView) {
    let reason = with_ends(" (", plan.reason.as_ref(), ")");
    let value = format!("{} {}, generation {}{reason}", plan.id, plan.state, plan.generation);
    line(text, "Plan", &value);
    for step in &plan.steps {
        let state: &str = step.state.into();
        let _ = writeln!(text, "  {:<26}{state}", step.name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_age_counts_from_last_repetition() {
        let at = |second: &str| format!("2026-01-01T00:00:{second}Z");
        for (name, event, count, last) in [
            ("once", json!({ "eventTime": at("01.000000") }), 1, "01"),
            (
                "a series",
                json!({
                    "eventTime": at("01.000000"),
                    "series": { "count": 3, "lastObservedTime": at("03.000000") },
                }),
                3,
                "03",
            ),
            (
                "written as v1",
                json!({
                    "deprecatedFirstTimestamp": at("01"), "deprecatedLastTimestamp": at("04"),
                    "deprecatedCount": 4, "eventTime": null,
                }),
                4,
                "04",
            ),
        ] {
            let mut event = event;
            event["metadata"] = json!({});
            let view = EventView::read(&serde_json::from_value(event).unwrap());
            assert_eq!((view.count, view.last), (count, at(last).parse().ok()), "{name}");
        }
    }
}
