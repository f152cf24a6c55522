//! Labels of a host on its Node, as CAPM3 synchronises them: where the `Metal3Cluster` asks for it.

use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::capi::Machine;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::names;
use kube::ResourceExt as _;
use serde_json::Value;

use super::{Outcome, Situation, Step, is_consumer};
use crate::assignment::{NodeRef, NodesRead};
use crate::host::facts::is_dns_name;
use crate::node_link::{NodeFacts, NodeSearch};
use crate::problem::{Blocker, Problem};

type Labels = BTreeMap<String, String>;

/// Prefixes of labels, each as it stands before the slash.
fn parse_prefixes(text: &str) -> Result<BTreeSet<&str>, &str> {
    let prefixes = text.split(',').map(str::trim).filter(|prefix| !prefix.is_empty());
    let is_valid =
        |prefix: &str| is_dns_name(prefix) && !prefix.contains(|letter: char| letter.is_uppercase());
    prefixes.map(|prefix| if is_valid(prefix) { Ok(prefix) } else { Err(prefix) }).collect()
}

/// Others write labels with these prefixes too: what the host lacks is not removed.
fn is_shared(prefix: &str) -> bool {
    prefix == "metal3.io"
        || ["kubernetes.io", "k8s.io"].into_iter().any(|domain| {
            prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

/// What changes on the Node: values to write, and null for labels to remove.
fn diff_labels(prefixes: &BTreeSet<&str>, host: &Labels, node: &Labels) -> BTreeMap<String, Option<String>> {
    let prefix_of = |key: &str| key.split_once('/').map(|(prefix, _)| prefix.to_owned());
    let is_named = |key: &str| prefix_of(key).is_some_and(|prefix| prefixes.contains(prefix.as_str()));
    let missing = host.iter().filter(|(key, value)| is_named(key) && node.get(*key) != Some(value));
    let is_removed = |key: &str| {
        is_named(key) && !host.contains_key(key) && !prefix_of(key).is_some_and(|prefix| is_shared(&prefix))
    };
    let removed = node.keys().filter(|key| is_removed(key)).map(|key| (key.clone(), None));
    missing.map(|(key, value)| (key.clone(), Some(value.clone()))).chain(removed).collect()
}

/// The annotation that asks for it.
pub(super) fn asked_prefixes(infrastructure: Option<&Metal3Cluster>) -> Option<&String> {
    infrastructure?.annotations().get(names::LABEL_SYNC_PREFIXES)
}

/// Cluster API has found the Node: it is read by its name, and compared with the host.
pub(super) fn sync_labels(situation: &Situation<'_>, owner: &Machine) -> Outcome {
    let host = situation.host.filter(|host| is_consumer(host, situation.machine));
    let node = owner.status.as_ref().and_then(|status| status.node_ref.as_ref());
    let (Some(host), Some(node), Some(text)) = (host, node, asked_prefixes(situation.infrastructure)) else {
        return Outcome::of_step(Step::Rest);
    };
    let wait = |reason, message| {
        Outcome::of_blocker(Blocker::waiting_for(Type::LabelsSynced, Problem::of_cause(reason, message)))
    };
    let prefixes = match parse_prefixes(text) {
        Ok(prefixes) => prefixes,
        Err(prefix) => {
            let message = format!(
                "{prefix:?} in the annotation {} of the Metal3Cluster is no prefix of labels: write prefixes as rack.example.com, separated by commas",
                names::LABEL_SYNC_PREFIXES
            );
            return wait(Reason::LabelPrefixInvalid, message);
        }
    };
    let cluster = &owner.spec.cluster_name;
    let outcome = match situation.nodes {
        NodesRead::NotRead => {
            return Outcome::of_step(Step::FindNodes(NodeSearch::of_node(cluster, &node.name)));
        }
        NodesRead::Unavailable(problem) => {
            Outcome::of_blocker(Blocker::waiting_for(Type::LabelsSynced, problem.clone()))
        }
        NodesRead::Read(nodes) => {
            let missing = || {
                let message = format!("Node {} is gone: Cluster API replaces the Machine", node.name);
                wait(Reason::NodeWaiting, message)
            };
            let found = nodes.iter().find(|facts| facts.name == node.name);
            found.map_or_else(missing, |facts| compare_labels(cluster, facts, &prefixes, host.labels()))
        }
    };
    // No event of the workload cluster is watched.
    Outcome { is_rechecked: true, ..outcome }
}

fn compare_labels(cluster: &str, node: &NodeFacts, prefixes: &BTreeSet<&str>, host: &Labels) -> Outcome {
    let changed = diff_labels(prefixes, host, &node.labels);
    if changed.is_empty() {
        return Outcome::of_step(Step::Rest);
    }
    let changed = changed.into_iter().map(|(key, value)| (key, value.map_or(Value::Null, Value::String)));
    let node = NodeRef { cluster: cluster.to_owned(), name: node.name.clone(), uid: node.uid.clone() };
    Outcome::of_step(Step::LabelNode { node, labels: changed.collect() })
}
