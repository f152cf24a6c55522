//! The Node of a machine, found by the steps of CAPM3's workflow for providerIDs:
//!
//! 1. A Node has a providerID of the machine, in the form of UIDs or of names.
//! 2. With a cloud provider no other step is tried.
//! 3. Exactly one Node has the label with the UID of the host.
//! 4. A machine without bootstrap configuration gets its providerID, and the Node is found by its host
//!    name.
//!
//! Unlike in CAPM3, a machine gets its providerID before its Node is known only in step 4, no Node
//! loses a providerID, and Nodes of other hosts are no error.

#[cfg(test)]
mod tests;

use coordinator_api::capi::Machine;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::object::Namespace;
use kube::ResourceExt as _;

use super::{Outcome, Situation, Step};
use crate::assignment::{NodeRef, NodesRead};
use crate::metal3::cluster::has_cloud_provider;
use crate::node_link::{Expected, Link, NodeFacts, NodeSearch, UUID_LABEL, decide_link, distinct_texts};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// Properties by which the Node is found.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) expected: Expected,
    /// Prefix of the providerIDs of all machines of the host.
    pub(super) block: String,
    /// providerIDs of the host in the older form.
    pub(super) legacy: Vec<String>,
    pub(super) has_cloud_provider: bool,
}

/// Cluster API has found the Node.
pub(super) fn is_found(owner: &Machine) -> bool {
    owner.status.as_ref().is_some_and(|status| status.node_ref.is_some())
}

/// Finds the Node of a provisioned host, and writes its providerID.
pub(super) fn link_node(situation: &Situation<'_>, owner: &Machine, host: &BareMetalHost) -> Outcome {
    let cluster = &owner.spec.cluster_name;
    let nodes = match situation.nodes {
        NodesRead::NotRead => {
            // All Nodes are read, because another Node may have a providerID of the same host.
            let search = NodeSearch { cluster: cluster.clone(), selector: None, node: None };
            return Outcome::of_step(Step::FindNodes(search));
        }
        NodesRead::Unavailable(problem) => return wait_for(problem.clone()),
        NodesRead::Read(nodes) => nodes,
    };
    let machine = situation.machine;
    if let Some(problem) = find_unknown_form(machine) {
        return fail_for(problem);
    }
    let known = read_known(situation, owner, host);
    let provided = machine.spec.provider_id.as_ref();
    match (find_node(&known, nodes), provided) {
        (Link::Linked { provider_id, .. } | Link::Patch { provider_id, .. }, None) => {
            Outcome::of_step(Step::Provide(provider_id))
        }
        (Link::Linked { node, provider_id }, Some(provided)) if provider_id != *provided => {
            fail_for(differ(&node, &provider_id, provided))
        }
        // Cluster API finds it.
        (Link::Linked { .. }, Some(_)) => Outcome::of_step(Step::Rest),
        (Link::Patch { node, provider_id }, Some(_)) => {
            let uid = nodes.iter().find(|facts| facts.name == node).and_then(|facts| facts.uid.clone());
            let node = NodeRef { cluster: cluster.clone(), name: node, uid };
            Outcome::of_step(Step::LinkNode { node, provider_id })
        }
        (Link::Waiting(_), None) if known.is_named_before_its_node() => {
            let provider_id = known.expected.provider_ids.first().cloned();
            provider_id.map_or_else(|| Outcome::of_step(Step::Rest), |id| Outcome::of_step(Step::Provide(id)))
        }
        (Link::Waiting(problem), _) => wait_for(problem),
        (Link::Failed(problem), _) => fail_for(problem),
    }
}

impl Known {
    /// Step 4 applies: only the host name identifies the Node.
    fn is_named_before_its_node(&self) -> bool {
        self.expected.may_use_hostname && !self.has_cloud_provider
    }
}

/// Finds the Node by steps 1 to 4.
pub(super) fn find_node(known: &Known, nodes: &[NodeFacts]) -> Link {
    let identified = || nodes.iter().filter_map(|node| Some((node, node.provider_id.as_ref()?)));
    let of_host = identified().filter(|(_, id)| id.starts_with(&known.block) || known.legacy.contains(id));
    let of_host: Vec<_> = of_host.map(|(node, _)| node.name.as_str()).collect();
    if of_host.len() > 1 {
        let message = format!(
            "Nodes {} have providerIDs of the same BareMetalHost ({}…)",
            of_host.join(", "),
            known.block
        );
        return Link::Failed(Problem::new(
            Reason::NodeAmbiguous,
            message,
            "delete the Nodes that no longer exist",
        ));
    }
    if !known.has_cloud_provider {
        return decide_link(&known.expected, nodes);
    }
    if let Some((node, _)) = identified().find(|(_, id)| known.expected.provider_ids.contains(id)) {
        return decide_link(&known.expected, std::slice::from_ref(node));
    }
    let message = format!(
        "no Node has the providerID {} yet, which the cloud provider sets",
        known.expected.provider_ids.join(" or ")
    );
    let action = "wait, or set cloudProviderEnabled of the Metal3Cluster to false";
    Link::Waiting(Problem::new(Reason::NodeWaiting, message, action))
}

fn read_known(situation: &Situation<'_>, owner: &Machine, host: &BareMetalHost) -> Known {
    let machine = situation.machine;
    let namespace = Namespace::of(machine);
    // The label value of the plan takes precedence, because a restore changes UIDs.
    let carried = situation.carried;
    let uuids = distinct_texts([carried.map(|node| node.uuid.clone()), host.uid()]);
    let legacy: Vec<_> = uuids.iter().map(|uid| ProviderId::of_uid(uid).to_string()).collect();
    let newer = ProviderId::of_metal3(&namespace, &host.name_any(), &machine.name_any()).to_string();
    let carried_id = carried.map(|node| node.provider_id.clone());
    let carried_id = carried_id.filter(|id| *id == newer || legacy.contains(id));
    let first = [machine.spec.provider_id.clone(), carried_id, Some(newer.clone())];
    let hostname = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let config = owner.spec.bootstrap.config_ref.as_ref();
    let expected = Expected {
        provider_ids: distinct_texts(first.into_iter().chain(legacy.iter().cloned().map(Some))),
        label: UUID_LABEL.to_owned(),
        label_values: uuids,
        hostnames: distinct_texts([hostname.map(|hardware| hardware.hostname.clone())]),
        may_use_hostname: config.is_none_or(|reference| reference.kind.is_empty()),
    };
    Known {
        expected,
        block: ProviderId::of_metal3(&namespace, &host.name_any(), "").to_string(),
        legacy,
        has_cloud_provider: situation.infrastructure.is_some_and(has_cloud_provider),
    }
}

/// The problem of a providerID that is not of Metal3, or in an unknown form.
fn find_unknown_form(machine: &Metal3Machine) -> Option<Problem> {
    let id = machine.spec.provider_id.as_ref()?;
    let is_known = id.starts_with("metal3://") && ProviderId::parse(id).is_some();
    (!is_known).then(|| {
        let message = format!(
            "spec.providerID is {id}, which is not metal3://NAMESPACE/HOST/MACHINE or metal3://UID{}",
            ProviderId::proposed_form(id)
        );
        Problem::new(Reason::NodeProviderIDUnsupported, message, "replace the Machine")
    })
}

fn differ(node: &str, found: &str, provided: &str) -> Problem {
    let message = format!(
        "Node {node} has the providerID {found} and this machine has {provided}, but Cluster API needs the same"
    );
    let action = "correct the kubelet arguments of the bootstrap data and replace the Machine";
    Problem::new(Reason::NodeProviderIDUnsupported, message, action)
}

fn wait_for(problem: Problem) -> Outcome {
    Outcome::of_blocker(Blocker::waiting_for(Type::NodeLinked, problem)).retried()
}

fn fail_for(problem: Problem) -> Outcome {
    Outcome::of_blocker(Blocker::needs_operator(Type::NodeLinked, problem)).retried()
}
