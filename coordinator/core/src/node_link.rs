//! Finds the Node of a machine in the workload cluster, and decides about its `spec.providerID`.
//!
//! The kind of machine says which Node is expected; the rules are the same for all. A Node is found by its providerID, else by its label, else,
//! for bootstrap data without a bootstrap configuration, by its host name.

use std::collections::BTreeMap;

use coordinator_api::conditions::Reason;
use jiff::{SignedDuration, Timestamp};

use crate::problem::Problem;
use crate::provider_id::ProviderId;

/// Label that the kubelet of every node has.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// Label by which the node of a host is found.
pub const UUID_LABEL: &str = "metal3.io/uuid";
/// Cluster API finds nearly every Node by itself within this time.
pub const SEARCH_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// A Node that did not join by then needs an operator.
pub const JOIN_DEADLINE: SignedDuration = SignedDuration::from_mins(15);

const SEE_CONSOLE: &str = "see cloud-init and the kubelet on the host's console";

/// Identifies the Node of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// providerIDs that name the machine. The first is written where a Node has
    /// none.
    pub provider_ids: Vec<String>,
    /// Key of the label that the node's kubelet sets.
    pub label: String,
    /// Its value; of several the first that a Node has.
    pub label_values: Vec<String>,
    /// Host names of the machine.
    pub hostnames: Vec<String>,
    /// A Node without the label may be found by its host name: the Machine has no
    /// `spec.bootstrap.configRef`.
    pub may_use_hostname: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: String,
    pub uid: Option<String>,
    /// `None` where it is empty.
    pub provider_id: Option<String>,
    /// It goes once its finalizers are removed.
    pub is_deleting: bool,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// The Node has that expected providerID.
    Linked { node: String, provider_id: String },
    /// The Node has no providerID: write this one, and nothing else of the Node.
    Patch { node: String, provider_id: String },
    /// There may be a Node later.
    Waiting(Problem),
    /// The cluster or the bootstrap data has to be corrected.
    Failed(Problem),
}

/// Decides which of `nodes` is that of the machine.
pub fn decide_link(expected: &Expected, nodes: &[NodeFacts]) -> Link {
    let named: Vec<_> = nodes.iter().filter(|node| has_expected_id(expected, node)).collect();
    match named.as_slice() {
        [] => link_by_label(expected, nodes),
        [node] => Link::Linked {
            node: node.name.clone(),
            provider_id: node.provider_id.clone().unwrap_or_default(),
        },
        several => failed(
            Reason::NodeAmbiguous,
            format!(
                "Nodes {} have the providerID of this machine ({})",
                list_names(several),
                expected.provider_ids.join(", ")
            ),
            "delete the Nodes of other machines",
        ),
    }
}

fn has_expected_id(expected: &Expected, node: &NodeFacts) -> bool {
    node.provider_id.as_ref().is_some_and(|id| expected.provider_ids.contains(id))
}

fn link_by_label(expected: &Expected, nodes: &[NodeFacts]) -> Link {
    let mut groups = expected.label_values.iter().map(|value| -> Vec<_> {
        nodes.iter().filter(|node| node.labels.get(&expected.label) == Some(value)).collect()
    });
    let found = groups.find(|nodes| !nodes.is_empty());
    match found.as_deref().unwrap_or(&[]) {
        [] if expected.may_use_hostname => link_by_hostname(expected, nodes),
        [] => wait_for_label(expected, nodes),
        [node] => link_node(expected, node),
        several => failed(
            Reason::NodeAmbiguous,
            format!("Nodes {} have the same label {}", list_names(several), expected.label),
            "delete the Nodes of other machines, or correct the kubelet arguments of the bootstrap data",
        ),
    }
}

fn wait_for_label(expected: &Expected, nodes: &[NodeFacts]) -> Link {
    let label = format!("{}={}", expected.label, expected.label_values.join(" or "));
    match named_like(expected, nodes).as_slice() {
        [] => waiting(format!("no Node has joined with the label {label}"), SEE_CONSOLE),
        similar => waiting(
            format!(
                "no Node has the label {label}, and Node {} has the host name of this machine",
                list_names(similar)
            ),
            "set the label in the kubelet arguments of the bootstrap data",
        ),
    }
}

fn link_by_hostname(expected: &Expected, nodes: &[NodeFacts]) -> Link {
    let hostnames = expected.hostnames.join(" or ");
    match named_like(expected, nodes).as_slice() {
        [] => waiting(
            format!("no Node has joined with the label {} or the host name {hostnames}", expected.label),
            SEE_CONSOLE,
        ),
        [node] => link_node(expected, node),
        several => waiting(
            format!("Nodes {} have the host name {hostnames}", list_names(several)),
            format!(
                "delete the Nodes of other machines, or set the label {} in the kubelet arguments of the bootstrap data",
                expected.label
            ),
        ),
    }
}

fn named_like<'a>(expected: &Expected, nodes: &'a [NodeFacts]) -> Vec<&'a NodeFacts> {
    let named = nodes
        .iter()
        .filter(|node| node.labels.get(HOSTNAME_LABEL).is_some_and(|name| expected.hostnames.contains(name)));
    named.collect()
}

/// The Node is the machine's by its label or host name.
fn link_node(expected: &Expected, node: &NodeFacts) -> Link {
    match (&node.provider_id, expected.provider_ids.first()) {
        (None, Some(provider_id)) => {
            Link::Patch { node: node.name.clone(), provider_id: provider_id.clone() }
        }
        (None, None) => waiting("the providerID of this machine is not known yet", ""),
        (Some(other), _) => failed(
            Reason::NodeProviderIDUnsupported,
            format!(
                "Node {} has the providerID {other}, which is not one of this machine ({}){}",
                node.name,
                expected.provider_ids.join(", "),
                ProviderId::proposed_form(other)
            ),
            "correct the kubelet arguments of the bootstrap data and replace the Machine",
        ),
    }
}

fn waiting(message: impl Into<String>, next_action: impl Into<String>) -> Link {
    Link::Waiting(Problem::new(Reason::NodeWaiting, message, next_action))
}

fn failed(reason: Reason, message: String, next_action: &str) -> Link {
    Link::Failed(Problem::new(reason, message, next_action))
}

fn list_names(nodes: &[&NodeFacts]) -> String {
    let mut names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    names.join(", ")
}

/// A search for Nodes of a workload cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSearch {
    pub cluster: String,
    /// Selector of the Nodes that are asked for first; where it leaves exactly one,
    /// no other is needed.
    pub selector: Option<String>,
    /// The one Node that is asked for, by name.
    pub node: Option<String>,
}

impl NodeSearch {
    pub fn of_node(cluster: &str, node: &str) -> Self {
        Self { cluster: cluster.to_owned(), selector: None, node: Some(node.to_owned()) }
    }

    pub fn new(cluster: &str, label: &str, values: &[String]) -> Self {
        let usable: Vec<_> =
            values.iter().map(String::as_str).filter(|value| is_label_value(value)).collect();
        let selector = (!usable.is_empty()).then(|| format!("{label} in ({})", usable.join(",")));
        Self { cluster: cluster.to_owned(), selector, node: None }
    }
}

/// A host may state any text.
fn is_label_value(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The texts that are there, each once, in their order.
pub fn distinct_texts(texts: impl IntoIterator<Item = Option<String>>) -> Vec<String> {
    let mut distinct = vec![];
    for text in texts.into_iter().flatten().filter(|text| !text.is_empty()) {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    distinct
}

/// True for a Node that did not join in time. `provisioned` is the time when its host reported the
/// plan done.
pub fn is_overdue(provisioned: Option<Timestamp>, now: Timestamp) -> bool {
    provisioned.is_some_and(|at| now.duration_since(at) >= JOIN_DEADLINE)
}

/// When the Node is looked for, unless Cluster API has found it before.
pub fn search_at(provisioned: Option<Timestamp>) -> Option<Timestamp> {
    provisioned?.checked_add(SEARCH_AFTER).ok()
}

#[cfg(test)]
mod tests;
