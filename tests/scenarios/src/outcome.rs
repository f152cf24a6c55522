//! The final state of a scenario without the values that differ between two runs: times, UIDs, and
//! names that are derived from UIDs.

use std::collections::BTreeMap;
use std::sync::{LazyLock, PoisonError};

use coordinator_api::conditions::Type;
use regex::Regex;
use serde_json::Value;

use crate::dump::text;
use crate::world::World;

const MACHINES: &str = "baremetalmachines.infrastructure.cluster.x-k8s.io";
/// Resources that hold no result of a scenario: a crash adds Events, and each replica renews its Lease.
const TRANSIENT: [&str; 2] = ["events", "leases.coordination.k8s.io"];
/// Fields that differ from run to run. A coordinator that starts again may send the duty of a load balancer
/// again, with a higher generation.
const VARIABLE: [&str; 10] = [
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "lastTransitionTime",
    "loadBalancerGeneration",
    "managedFields",
    "observedGeneration",
    "resourceVersion",
    "since",
    "uid",
];

/// Everything that two runs of one scenario must have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub hosts: BTreeMap<String, HostOutcome>,
    /// Host, kind and generation of each plan that was written.
    pub plans: Vec<String>,
    /// Machines in the state in which they ran.
    pub ran: Vec<String>,
    /// Every object that is left, of both clusters: metadata, spec, status; the keys of Secrets.
    pub objects: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOutcome {
    /// What was done to the host, in order.
    pub effects: Vec<String>,
    /// Boots of the host, that of the medium included.
    pub boots: u32,
}

impl Outcome {
    pub fn host(&self, name: &str) -> &HostOutcome {
        &self.hosts[name]
    }

    pub fn host_mut(&mut self, name: &str) -> &mut HostOutcome {
        self.hosts.get_mut(name).unwrap()
    }

    /// Lines that only one of both has, for a failed assertion.
    pub fn list_differences(&self, other: &Self) -> String {
        let [ours, theirs] = [self, other].map(|outcome| format!("{outcome:#?}"));
        let missing = ours.lines().filter(|line| !theirs.contains(*line)).map(|line| format!("- {line}"));
        let added = theirs.lines().filter(|line| !ours.contains(*line)).map(|line| format!("+ {line}"));
        missing.chain(added).collect::<Vec<_>>().join("\n")
    }
}

/// Replaces times, identifiers and numbers of boots.
fn replace_variable(text: &str) -> String {
    static PATTERNS: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
        [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (r"\b[0-9a-f]{8,}(-[0-9a-f]{4,})*\b", "ID"),
            (r"\b(boot|live)-\d+\b", "$1"),
        ]
        .map(|(pattern, by)| (Regex::new(pattern).unwrap(), by))
    });
    PATTERNS.iter().fold(text.to_owned(), |text, (pattern, by)| pattern.replace_all(&text, *by).into_owned())
}

fn normalise(value: &mut Value) {
    match value {
        Value::String(text) => *text = replace_variable(text),
        Value::Array(items) => {
            items.iter_mut().for_each(normalise);
            if items.iter().all(|item| item["type"].is_string() && item["status"].is_string()) {
                items.sort_by_key(|item| text(item, "/type").to_owned());
            }
        }
        Value::Object(fields) => {
            fields.retain(|name, _| !VARIABLE.contains(&name.as_str()));
            fields.values_mut().for_each(normalise);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// One line for each field of an object.
fn describe_object(resource: &str, object: &Value) -> Vec<String> {
    let mut object = object.clone();
    if resource == "secrets"
        && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut)
    {
        data.values_mut().for_each(|value| *value = Value::Null);
    }
    normalise(&mut object);
    let mut fields = vec![];
    list_fields(&format!("{resource}/{}", text(&object, "/metadata/name")), &object, &mut fields);
    fields
}

fn list_fields(path: &str, value: &Value, fields: &mut Vec<String>) {
    match value {
        Value::Object(items) if !items.is_empty() => {
            items.iter().for_each(|(name, item)| list_fields(&format!("{path}.{name}"), item, fields));
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let name = item["type"].as_str().map_or_else(|| index.to_string(), str::to_owned);
                list_fields(&format!("{path}[{name}]"), item, fields);
            }
        }
        leaf => fields.push(format!("{path} = {leaf}")),
    }
}

/// `reprovision-0123…` is `reprovision`.
fn kind(text: &str) -> String {
    let word = |word: &str| {
        let kind = word.split_once('-').map_or(word, |(kind, _)| kind);
        if ["reprovision", "clean", "install"].contains(&kind) { kind.to_owned() } else { word.to_owned() }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

impl World {
    /// Waits until a machine runs and is linked to its Node, and keeps that state for the outcome.
    pub async fn wait_linked(&self, machine: &str) {
        let is_linked = |world: &Self| {
            [Type::Ready, Type::NodeLinked].into_iter().all(|kind| {
                let condition = world.machine_condition(machine, kind);
                condition.is_some_and(|condition| condition.status == "True")
            })
        };
        self.wait_until(&format!("{machine} runs with its Node"), is_linked).await;
        self.note_state(MACHINES, machine);
    }

    /// Keeps the present state of an object for the outcome.
    pub fn note_state(&self, resource: &str, name: &str) {
        let shown = describe_object(resource, &self.get_object(resource, name).unwrap());
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).extend(shown);
    }

    /// The outcome so far.
    pub fn outcome(&self) -> Outcome {
        let hosts = self.hosts.iter().map(|(name, host)| {
            let effects = host.system().effects().iter().map(|effect| kind(effect)).collect();
            (name.clone(), HostOutcome { effects, boots: host.boots() })
        });
        let plans =
            self.plans().into_iter().map(|(host, generation, kind)| format!("{host} {kind} {generation}"));
        let objects =
            [&self.fake, &self.workload].into_iter().flat_map(fake_apiserver::FakeApi::look_everywhere);
        let lasting = objects.filter(|((resource, ..), _)| !TRANSIENT.contains(&resource.as_str()));
        let mut objects: Vec<_> =
            lasting.flat_map(|((resource, ..), object)| describe_object(&resource, &object)).collect();
        objects.sort();
        Outcome {
            hosts: hosts.collect(),
            plans: plans.collect(),
            ran: self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            objects,
        }
    }
}
