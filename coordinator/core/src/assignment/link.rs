//! The Node of a machine: linked while it runs, removed with it.

use coordinator_api::conditions::condition_unknown;
use coordinator_api::conditions::{ConditionUpdate, Reason, Type, condition_true};
use coordinator_api::machine::Phase;
use jiff::SignedDuration;

use super::{Effect, NodeRef, NodesRead, Outcome, Situation, State, Wake};
use crate::demand::NodeDemand;
use crate::host::{AnnouncedPlan, HostRecord};
use crate::node_link::{self, Expected, Link, NodeFacts, NodeSearch, UUID_LABEL, decide_link};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// A release waits no longer for a workload cluster that does not answer.
const REMOVAL_DEADLINE: SignedDuration = SignedDuration::from_mins(2);

/// The machine runs: its Node is known to Cluster API, or is looked for.
pub(super) fn link_node(
    situation: &Situation<'_>,
    node: &NodeDemand,
    host: &HostRecord,
    state: State,
) -> Outcome {
    let Some(link) = &node.link else { return Outcome::from_state(state) };
    let provisioned = host.claimed_plan().and_then(|plan| plan.ended);
    if link.is_found {
        return show(state, condition_true(Type::NodeLinked, Reason::NodeFound, ""));
    }
    if let Some(at) = node_link::search_at(provisioned).filter(|at| situation.now < *at) {
        let message = "Cluster API has not found the Node yet; the coordinator looks for it soon";
        let update = condition_unknown(Type::NodeLinked, Reason::NodeWaiting, message);
        return show(state, update).with_wake(Wake::At(at));
    }
    match &situation.secrets.nodes {
        NodesRead::NotRead => {
            let Expected { label, label_values, .. } = &link.expected;
            Outcome::from_effect(Effect::FindNodes(NodeSearch::new(&node.cluster, label, label_values)))
        }
        NodesRead::Unavailable(problem) => {
            show(state, problem.condition_unknown(Type::NodeLinked)).with_wake(Wake::Backoff)
        }
        NodesRead::Read(nodes) => {
            let is_overdue = node_link::is_overdue(provisioned, situation.now);
            show_link(state, &node.cluster, nodes, decide_link(&link.expected, nodes), is_overdue)
        }
    }
}

fn show(state: State, update: ConditionUpdate) -> Outcome {
    Outcome::from_state(State { node: Some(update), ..state })
}

fn show_link(state: State, cluster: &str, nodes: &[NodeFacts], link: Link, is_overdue: bool) -> Outcome {
    match link {
        Link::Linked { node, .. } => show(state, node_found(&node)),
        Link::Patch { node, provider_id } => {
            let update = node_found(&node);
            let node = find_ref(cluster, nodes, |facts| facts.name == node);
            show(state, update).with_effect(node.map(|node| Effect::LinkNode { node, provider_id }))
        }
        Link::Waiting(problem) if is_overdue => {
            stop_at_node(state, Problem { reason: Reason::NodeOverdue, ..problem })
        }
        Link::Waiting(problem) => {
            show(state, problem.condition_false(Type::NodeLinked)).with_wake(Wake::Backoff)
        }
        Link::Failed(problem) => stop_at_node(state, problem),
    }
}

fn node_found(node: &str) -> ConditionUpdate {
    condition_true(Type::NodeLinked, Reason::NodeFound, format!("Node {node}"))
}

fn stop_at_node(state: State, problem: Problem) -> Outcome {
    Outcome::from_blocker(state, Blocker::needs_operator(Type::NodeLinked, problem)).with_wake(Wake::Backoff)
}

fn find_ref(cluster: &str, nodes: &[NodeFacts], is_meant: impl Fn(&NodeFacts) -> bool) -> Option<NodeRef> {
    let node = nodes.iter().find(|node| is_meant(node))?;
    Some(NodeRef { cluster: cluster.to_owned(), name: node.name.clone(), uid: node.uid.clone() })
}

/// The Node that Cluster API leaves when the machine goes.
enum Leftover {
    /// Its Nodes have to be read first.
    NotRead(NodeSearch),
    None,
    Found(NodeRef),
    Unavailable(Problem),
}

fn find_leftover(situation: &Situation<'_>, host: &HostRecord) -> Leftover {
    let Some(left) = &situation.demand.left_node else { return Leftover::None };
    let uuid = left.uuid.clone().or_else(|| host.uid.as_ref().map(ToString::to_string));
    match &situation.secrets.nodes {
        NodesRead::NotRead => {
            Leftover::NotRead(NodeSearch::new(&left.cluster, UUID_LABEL, &node_link::distinct_texts([uuid])))
        }
        NodesRead::Read(nodes) => {
            let provider_id = leftover_id(situation, host);
            // A Node without providerID belongs to a machine that is not linked, and to the host of its label.
            let is_unlinked = situation.demand.provider_id.is_none();
            let is_own = |node: &NodeFacts| match node.provider_id.as_deref() {
                Some(known) => known == provider_id.as_str(),
                None => is_unlinked && uuid.is_some() && node.labels.get(UUID_LABEL) == uuid.as_ref(),
            };
            // A Node in deletion needs no second one, however long a finalizer keeps it.
            find_ref(&left.cluster, nodes, |node| is_own(node) && !node.is_deleting)
                .map_or(Leftover::None, Leftover::Found)
        }
        NodesRead::Unavailable(problem) => Leftover::Unavailable(problem.clone()),
    }
}

fn leftover_id(situation: &Situation<'_>, host: &HostRecord) -> ProviderId {
    let demand = situation.demand;
    let of_node = demand.left_node.as_ref().and_then(|left| left.provider_id.as_ref());
    let known = demand.provider_id.as_ref().or(of_node);
    known.cloned().unwrap_or_else(|| ProviderId::of_host(&host.name))
}

/// The host of the machine in deletion was cleaned: it is released once the
/// Node with its providerID is gone, where Cluster API leaves that Node.
pub(super) fn remove_node(situation: &Situation<'_>, host: &HostRecord, clean: &AnnouncedPlan) -> Outcome {
    let release = Outcome::from_effect(Effect::Release);
    match find_leftover(situation, host) {
        Leftover::None => release,
        Leftover::NotRead(search) => Outcome::from_effect(Effect::FindNodes(search)),
        Leftover::Found(node) => Outcome::from_effect(Effect::RemoveNode(node)).with_wake(Wake::Backoff),
        Leftover::Unavailable(problem) => {
            let ends = clean.ended.and_then(|ended| ended.checked_add(REMOVAL_DEADLINE).ok());
            let is_waiting = problem.reason == Reason::WorkloadUnreachable
                && ends.is_some_and(|ends| situation.now < ends);
            if !is_waiting {
                return release;
            }
            let cluster = situation.demand.left_node.as_ref().map_or("", |left| &*left.cluster);
            let message = format!(
                "the host is released once the Node with the providerID {} is deleted from Cluster {cluster}, or after two minutes: {}",
                leftover_id(situation, host),
                problem.message
            );
            let blocker = Blocker::waiting_for(Type::NodeLinked, Problem { message, ..problem });
            Outcome::from_blocker(State::new(Phase::Preparing, Some(host)), blocker).with_wake(Wake::Backoff)
        }
    }
}

/// The host is given up: its Node goes too, where that can be done now.
pub(super) fn abandon_host(situation: &Situation<'_>, host: &HostRecord) -> Outcome {
    let node = match find_leftover(situation, host) {
        Leftover::NotRead(search) => return Outcome::from_effect(Effect::FindNodes(search)),
        Leftover::Found(node) => Some(node),
        Leftover::None | Leftover::Unavailable(_) => None,
    };
    Outcome::from_effect(Effect::Abandon { node })
}
