//! The lines of the page, and which of them a change concerns. The work for a change does
//! not grow with the fleet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use coordinator_api::explain::Attention;
use coordinator_api::names::annotation;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde::Serialize;

use super::events::EventLog;
use super::line::{Line, describe_line, describe_other, key_of};
use super::timeline::{Moment, draw_timeline};
use super::trace::Trace;
use crate::fleet::{Fleet, Id, Kind, Object, holders_of};
use crate::view::{Branch, Description, describe_host, draw_plan, draw_tree, outline_plan};
use crate::why::follow_causes;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    /// Lines that are new or other ones, as JSON.
    pub(super) changed: Vec<Arc<str>>,
    /// Keys of lines that are no more.
    pub(super) gone: Vec<String>,
    /// Keys of hosts and Clusters of whom more than the line may have changed.
    pub(super) touched: BTreeSet<String>,
    /// Whether any object changed, also one without a line.
    pub(super) has_news: bool,
}

/// A host or a Cluster, by what else it takes to show it.
#[derive(Serialize)]
pub(super) struct HostView {
    #[serde(flatten)]
    description: Description,
    timeline: Vec<Moment>,
}

/// A line as it was sent last.
#[derive(Debug)]
struct Shown {
    text: Arc<str>,
    attention: Attention,
}

/// What is remembered of a host.
#[derive(Debug, Default)]
struct Memory {
    trace: Trace,
    holders: Vec<Id>,
    /// When time alone changes its line.
    wake: Option<Timestamp>,
}

/// The lines of the page.
#[derive(Debug, Default)]
pub(super) struct Model {
    lines: BTreeMap<Id, Shown>,
    hosts: HashMap<Id, Memory>,
    /// Hosts by the objects that hold them.
    held: HashMap<Id, BTreeSet<Id>>,
    /// The Clusters that objects are of.
    clusters: HashMap<Id, Id>,
    wakes: BTreeSet<(Timestamp, Id)>,
    events: EventLog,
}

impl Model {
    /// All lines, as JSON.
    pub(super) fn lines(&self) -> Vec<Arc<str>> {
        self.lines.values().map(|shown| shown.text.clone()).collect()
    }

    /// When time alone changes a line.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(time, _)| *time)
    }

    /// The hosts whose lines time alone has changed.
    pub(super) fn take_due(&self, now: Timestamp) -> BTreeSet<Id> {
        self.wakes.iter().take_while(|(time, _)| *time <= now).map(|(_, id)| id.clone()).collect()
    }

    /// Takes up objects that changed.
    pub(super) fn refresh(&mut self, fleet: &Fleet, changed: &BTreeSet<Id>, now: Timestamp) -> Delta {
        let mut delta = Delta { has_news: !changed.is_empty(), ..Delta::default() };
        let (mut hosts, mut others) = (BTreeSet::new(), BTreeSet::new());
        for id in changed {
            let of_kind = if id.kind == Kind::MachineInventory { &mut hosts } else { &mut others };
            of_kind.insert(id.clone());
            hosts.extend(self.held.get(id).into_iter().flatten().cloned());
            let before = self.clusters.remove(id);
            let now_of = fleet.get(id).and_then(cluster_of);
            delta.touched.extend(before.iter().chain(&now_of).map(key_of));
            self.clusters.extend(now_of.map(|cluster| (id.clone(), cluster)));
        }
        for id in hosts {
            others.extend(self.refresh_host(fleet, &id, now, &mut delta));
        }
        for id in others {
            let is_told = self.held.get(&id).into_iter().flatten().any(|host| self.asks_to_act(host));
            let line = fleet.get(&id).and_then(|object| describe_other(fleet, object, is_told, now));
            self.replace_line(&id, line, &mut delta);
        }
        delta
    }

    /// Takes up a host; the answer is the objects whose lines depend on it.
    fn refresh_host(&mut self, fleet: &Fleet, id: &Id, now: Timestamp, delta: &mut Delta) -> Vec<Id> {
        let before = self.hosts.remove(id).unwrap_or_default();
        if let Some(time) = before.wake {
            self.wakes.remove(&(time, id.clone()));
        }
        for holder in &before.holders {
            if let Some(hosts) = self.held.get_mut(holder) {
                hosts.remove(id);
                if hosts.is_empty() {
                    self.held.remove(holder);
                }
            }
        }
        delta.touched.insert(key_of(id));
        let mut affected = before.holders;
        let object = fleet.get(id);
        self.replace_line(id, object.and_then(|host| describe_line(fleet, host, now)), delta);
        if let Some(memory) = object.and_then(|host| remember_host(host, before.trace, now)) {
            for holder in &memory.holders {
                self.held.entry(holder.clone()).or_default().insert(id.clone());
            }
            self.wakes.extend(memory.wake.map(|time| (time, id.clone())));
            affected.extend(memory.holders.iter().cloned());
            self.hosts.insert(id.clone(), memory);
        }
        affected
    }

    fn asks_to_act(&self, host: &Id) -> bool {
        self.lines.get(host).is_some_and(|shown| shown.attention == Attention::Act)
    }

    fn replace_line(&mut self, id: &Id, line: Option<Line>, delta: &mut Delta) {
        let text = line.and_then(|line| Some((serde_json::to_string(&line).ok()?, line.attention())));
        let Some((text, attention)) = text else {
            if self.lines.remove(id).is_some() {
                delta.gone.push(key_of(id));
            }
            return;
        };
        if self.lines.get(id).is_some_and(|shown| *shown.text == *text) {
            return;
        }
        let text: Arc<str> = text.into();
        delta.changed.push(text.clone());
        self.lines.insert(id.clone(), Shown { text, attention });
    }

    /// Takes up an Event.
    pub(super) fn insert_event(&mut self, event: &Event) -> Delta {
        let about = self.events.insert(event).into_iter();
        let hosts = about.filter(|id| id.kind == Kind::MachineInventory);
        Delta { touched: hosts.map(|id| key_of(&id)).collect(), ..Delta::default() }
    }

    /// The API server keeps it no longer.
    pub(super) fn remove_event(&mut self, event: &Event) {
        self.events.remove(event);
    }

    /// Events are listed again.
    pub(super) fn clear_events(&mut self) {
        self.events.clear();
    }

    /// Everything that is known of a host.
    pub(super) fn show_host(&self, fleet: &Fleet, id: &Id, now: Timestamp) -> Option<HostView> {
        let object = fleet.get(id)?;
        let row = describe_host(fleet, object, now)?;
        let events = self.events.of(id);
        let trace = self.hosts.get(id).map(|memory| &memory.trace);
        let timeline = draw_timeline(object, &events, trace.unwrap_or(&Trace::default()));
        let description = Description {
            why: follow_causes(fleet, object, now),
            newest_plan: outline_plan(object),
            conditions: object.conditions(),
            events,
            row,
        };
        Some(HostView { description, timeline })
    }
}

/// The tree of a Cluster.
pub(super) fn show_cluster(fleet: &Fleet, id: &Id, now: Timestamp) -> Option<Branch> {
    let plan = |host: &Object| outline_plan(host).as_ref().map(draw_plan);
    Some(draw_tree(fleet, fleet.get(id)?, &plan, now))
}

fn remember_host(host: &Object, mut trace: Trace, now: Timestamp) -> Option<Memory> {
    let record = host.host()?;
    trace.note(host.inventory()?, now);
    Some(Memory { trace, holders: holders_of(&record), wake: record.grace_ends(now) })
}

fn cluster_of(object: &Object) -> Option<Id> {
    match object.id.kind {
        Kind::Cluster => Some(object.id.clone()),
        Kind::MachineInventory => {
            let name = object.annotation(annotation::OWNER_CLUSTER)?;
            Some(Id::new(Kind::Cluster, &object.id.namespace, name))
        }
        _ => object.cluster(),
    }
}

#[cfg(test)]
mod tests;
