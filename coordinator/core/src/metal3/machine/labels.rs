//! Labels of a host on its Node, which are synchronised like in CAPM3 if the `Metal3Cluster` requests
//! it.

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

/// Prefixes of labels, without the slash, or the first invalid prefix.
fn parse_prefixes(text: &str) -> Result<BTreeSet<&str>, &str> {
    let prefixes = text.split(',').map(str::trim).filter(|prefix| !prefix.is_empty());
    let checked = prefixes.map(|prefix| {
        let is_valid = is_dns_name(prefix) && !prefix.contains(char::is_uppercase);
        if is_valid { Ok(prefix) } else { Err(prefix) }
    });
    checked.collect()
}

/// Other programs write labels with this prefix too, so that labels which the host lacks are not
/// removed.
fn is_shared(prefix: &str) -> bool {
    prefix == "metal3.io"
        || ["kubernetes.io", "k8s.io"].into_iter().any(|domain| {
            prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

/// The changes of the Node: values to write, and `None` for labels to remove.
fn diff_labels(prefixes: &BTreeSet<&str>, host: &Labels, node: &Labels) -> BTreeMap<String, Option<String>> {
    let mut changes = BTreeMap::new();
    for (key, value) in host {
        if named_prefix(prefixes, key).is_some() && node.get(key) != Some(value) {
            changes.insert(key.clone(), Some(value.clone()));
        }
    }
    for key in node.keys().filter(|key| !host.contains_key(*key)) {
        if named_prefix(prefixes, key).is_some_and(|prefix| !is_shared(prefix)) {
            changes.insert(key.clone(), None);
        }
    }
    changes
}

fn named_prefix<'a>(prefixes: &BTreeSet<&str>, key: &'a str) -> Option<&'a str> {
    key.split_once('/').map(|(prefix, _)| prefix).filter(|prefix| prefixes.contains(prefix))
}

/// The annotation with the prefixes.
pub(super) fn asked_prefixes(infrastructure: Option<&Metal3Cluster>) -> Option<&String> {
    infrastructure?.annotations().get(names::LABEL_SYNC_PREFIXES)
}

/// Compares the Node that Cluster API has found with the host.
pub(super) fn sync_labels(situation: &Situation<'_>, owner: &Machine) -> Outcome {
    let host = situation.host.filter(|host| is_consumer(host, situation.machine));
    let node = owner.status.as_ref().and_then(|status| status.node_ref.as_ref());
    let (Some(host), Some(node), Some(text)) = (host, node, asked_prefixes(situation.infrastructure)) else {
        return Outcome::of_step(Step::Rest);
    };
    let prefixes = match parse_prefixes(text) {
        Ok(prefixes) => prefixes,
        Err(prefix) => {
            let message = format!(
                "{prefix:?} in the annotation {} of the Metal3Cluster is no prefix of labels",
                names::LABEL_SYNC_PREFIXES
            );
            let action = "write prefixes such as rack.example.com, separated by commas";
            return wait_for(Problem::new(Reason::LabelPrefixInvalid, message, action));
        }
    };
    let cluster = &owner.spec.cluster_name;
    let outcome = match situation.nodes {
        NodesRead::NotRead => {
            return Outcome::of_step(Step::FindNodes(NodeSearch::of_node(cluster, &node.name)));
        }
        NodesRead::Unavailable(problem) => wait_for(problem.clone()),
        NodesRead::Read(nodes) => {
            if let Some(facts) = nodes.iter().find(|facts| facts.name == node.name) {
                compare_labels(cluster, facts, &prefixes, host.labels())
            } else {
                let message = format!("Node {} is deleted, and Cluster API replaces the Machine", node.name);
                wait_for(Problem::of_cause(Reason::NodeWaiting, message))
            }
        }
    };
    // Events of the workload cluster are not watched.
    Outcome { is_rechecked: true, ..outcome }
}

fn wait_for(problem: Problem) -> Outcome {
    Outcome::of_blocker(Blocker::waiting_for(Type::LabelsSynced, problem))
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
