//! The lines of the page, and the lines that a change concerns. Indexes find these, because the
//! work for a change must not grow with the fleet.

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
use crate::fleet::{Fleet, Id, Kind, Object, holders_of};
use crate::view::{Branch, Description, describe_host, draw_plan, draw_tree, outline_plan};
use crate::why::follow_causes;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    /// New and changed lines, as JSON.
    pub(super) changed: Vec<Arc<str>>,
    /// Keys of lines that were removed.
    pub(super) gone: Vec<String>,
    /// Keys of hosts and Clusters whose views may have changed.
    pub(super) touched: BTreeSet<String>,
    /// An object changed, possibly one without a line.
    pub(super) has_news: bool,
}

/// The view of a host.
#[derive(Serialize)]
pub(super) struct HostView {
    #[serde(flatten)]
    description: Description,
    timeline: Vec<Moment>,
}

/// A line that was sent.
#[derive(Debug)]
struct Shown {
    text: Arc<str>,
    attention: Attention,
}

#[derive(Debug, Default)]
struct Host {
    holders: Vec<Id>,
    /// The time at which the line changes without a change of the object.
    wake: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    lines: BTreeMap<Id, Shown>,
    hosts: HashMap<Id, Host>,
    /// Hosts by the objects that hold them.
    held: HashMap<Id, BTreeSet<Id>>,
    /// The Clusters of objects.
    clusters: HashMap<Id, Id>,
    wakes: BTreeSet<(Timestamp, Id)>,
    events: EventLog,
}

impl Model {
    /// All lines, as JSON.
    pub(super) fn lines(&self) -> Vec<Arc<str>> {
        self.lines.values().map(|shown| shown.text.clone()).collect()
    }

    /// The time at which the next line changes without a change of its object.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes.first().map(|(time, _)| *time)
    }

    /// The hosts whose lines have changed since, without a change of the object.
    pub(super) fn take_due(&self, now: Timestamp) -> BTreeSet<Id> {
        self.wakes.iter().take_while(|(time, _)| *time <= now).map(|(_, id)| id.clone()).collect()
    }

    /// Makes the lines again that the changed objects concern.
    pub(super) fn refresh(&mut self, fleet: &Fleet, changed: &BTreeSet<Id>, now: Timestamp) -> Delta {
        let mut delta = Delta { has_news: !changed.is_empty(), ..Delta::default() };
        let (mut hosts, mut others) = (BTreeSet::new(), BTreeSet::new());
        for id in changed {
            let ids = if id.kind == Kind::MachineInventory { &mut hosts } else { &mut others };
            ids.insert(id.clone());
            hosts.extend(self.held.get(id).into_iter().flatten().cloned());
            let before = self.clusters.remove(id);
            let after = fleet.get(id).and_then(cluster_of);
            delta.touched.extend(before.iter().chain(&after).map(key_of));
            self.clusters.extend(after.map(|cluster| (id.clone(), cluster)));
        }
        for id in hosts {
            others.extend(self.refresh_host(fleet, &id, now, &mut delta));
        }
        for id in others {
            let is_shown = self.held.get(&id).into_iter().flatten().any(|host| self.asks_to_act(host));
            let line = fleet.get(&id).and_then(|object| describe_other(fleet, object, is_shown, now));
            self.replace_line(&id, line, &mut delta);
        }
        delta
    }

    /// Makes the line of a host again, and returns the objects whose lines depend on the host.
    fn refresh_host(&mut self, fleet: &Fleet, id: &Id, now: Timestamp, delta: &mut Delta) -> Vec<Id> {
        let mut affected = self.forget_host(id);
        delta.touched.insert(key_of(id));
        let object = fleet.get(id);
        self.replace_line(id, object.and_then(|host| describe_line(fleet, host, now)), delta);
        if let Some(record) = object.and_then(Object::host) {
            let host = Host { holders: holders_of(&record), wake: record.grace_ends(now) };
            for holder in &host.holders {
                self.held.entry(holder.clone()).or_default().insert(id.clone());
            }
            self.wakes.extend(host.wake.map(|time| (time, id.clone())));
            affected.extend(host.holders.iter().cloned());
            self.hosts.insert(id.clone(), host);
        }
        affected
    }

    /// Takes a host out of the indexes, and returns its former holders.
    fn forget_host(&mut self, id: &Id) -> Vec<Id> {
        let Some(host) = self.hosts.remove(id) else { return vec![] };
        if let Some(time) = host.wake {
            self.wakes.remove(&(time, id.clone()));
        }
        for holder in &host.holders {
            if let Some(hosts) = self.held.get_mut(holder) {
                hosts.remove(id);
                if hosts.is_empty() {
                    self.held.remove(holder);
                }
            }
        }
        host.holders
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

    pub(super) fn insert_event(&mut self, event: &Event) -> Delta {
        let about = self.events.insert(event).into_iter();
        let hosts = about.filter(|id| id.kind == Kind::MachineInventory);
        Delta { touched: hosts.map(|id| key_of(&id)).collect(), ..Delta::default() }
    }

    pub(super) fn remove_event(&mut self, event: &Event) {
        self.events.remove(event);
    }

    pub(super) fn clear_events(&mut self) {
        self.events.clear();
    }

    pub(super) fn show_host(&self, fleet: &Fleet, id: &Id, now: Timestamp) -> Option<HostView> {
        let object = fleet.get(id)?;
        let row = describe_host(fleet, object, now)?;
        let events = self.events.of(id);
        let timeline = draw_timeline(object, &events);
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
    Some(draw_tree(fleet, fleet.get(id)?, &|host| outline_plan(host).as_ref().map(draw_plan), now))
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
