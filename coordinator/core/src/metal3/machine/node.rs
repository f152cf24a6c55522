//! The Node of a machine: the steps of CAPM3's workflow for providerIDs.
//!
//! 1. A Node has a providerID of the machine, in the form of UIDs or of names.
//! 2. With a cloud provider nothing else is tried.
//! 3. One Node has the label with the UID of the host.
//! 4. Without a bootstrap configuration: the machine is given its providerID, and
//!    the Node is found by its host name.
//!
//! Unlike there, a machine has its providerID before a Node is known in step 4
//! alone, no Node loses a providerID, and Nodes of other hosts are no error.

#[cfg(test)]
mod tests;

use coordinator_api::capi::{InfrastructureRef, Machine};
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use kube::ResourceExt as _;

use super::{Outcome, Situation, Step};
use crate::assignment::{NodeRef, NodesRead};
use crate::metal3::cluster::has_cloud_provider;
use crate::node_link::{Expected, Link, NodeFacts, NodeSearch, UUID_LABEL, decide_link, distinct_texts};
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

/// By what the Node is known.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) expected: Expected,
    /// What the providerIDs of all machines of the host begin with.
    pub(super) block: String,
    /// Those of the host in the older form.
    pub(super) legacy: Vec<String>,
    pub(super) has_cloud_provider: bool,
}

/// Whether Cluster API has found the Node: nothing else is to be done.
pub(super) fn is_found(owner: &Machine) -> bool {
    owner.status.as_ref().is_some_and(|status| status.node_ref.is_some())
}

/// The host is provisioned: its Node is looked for, and given its providerID.
pub(super) fn link_node(situation: &Situation<'_>, owner: &Machine, host: &BareMetalHost) -> Outcome {
    let cluster = &owner.spec.cluster_name;
    let nodes = match situation.nodes {
        NodesRead::NotRead => {
            // All of them: another one may have a providerID of the same host.
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
    /// Step 4: nothing but the host name may tell the Node.
    fn is_named_before_its_node(&self) -> bool {
        self.expected.may_use_hostname && !self.has_cloud_provider
    }
}

/// Steps 1 to 4.
pub(super) fn find_node(known: &Known, nodes: &[NodeFacts]) -> Link {
    let is_of_host = |node: &&NodeFacts| {
        let id = node.provider_id.as_deref().unwrap_or_default();
        id.starts_with(&known.block) || known.legacy.iter().any(|legacy| legacy == id)
    };
    let of_host: Vec<_> = nodes.iter().filter(is_of_host).map(|node| node.name.as_str()).collect();
    if of_host.len() > 1 {
        let message = format!(
            "Nodes {} have providerIDs of the same BareMetalHost ({}…): delete those that are gone",
            of_host.join(", "),
            known.block
        );
        return Link::Failed(Problem::of_cause(Reason::NodeAmbiguous, message));
    }
    if !known.has_cloud_provider {
        return decide_link(&known.expected, nodes);
    }
    let has_id = |node: &&NodeFacts| {
        node.provider_id.as_ref().is_some_and(|id| known.expected.provider_ids.contains(id))
    };
    if let Some(node) = nodes.iter().find(has_id) {
        return decide_link(&known.expected, std::slice::from_ref(node));
    }
    let message = format!(
        "no Node has the providerID {} yet: with cloudProviderEnabled the cloud provider sets it; wait, or set cloudProviderEnabled of the Metal3Cluster to false",
        known.expected.provider_ids.join(" or ")
    );
    Link::Waiting(Problem::of_cause(Reason::NodeWaiting, message))
}

fn read_known(situation: &Situation<'_>, owner: &Machine, host: &BareMetalHost) -> Known {
    let machine = situation.machine;
    let namespace = machine.namespace().unwrap_or_default();
    // The label value of the plan before the live one: a restore changes UIDs.
    let carried = situation.carried;
    let uuids = distinct_texts([carried.map(|node| node.uuid.clone()), host.uid()]);
    let legacy: Vec<_> = uuids.iter().map(|uid| ProviderId::of_uid(uid).to_string()).collect();
    let newer = ProviderId::of_metal3(&namespace, &host.name_any(), &machine.name_any()).to_string();
    let mine = |id: &String| *id == newer || legacy.contains(id);
    let carried_id = carried.map(|node| node.provider_id.clone()).filter(mine);
    let first = [machine.spec.provider_id.clone(), carried_id, Some(newer.clone())];
    let hostname = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let is_named = |reference: &InfrastructureRef| !reference.kind.is_empty();
    let expected = Expected {
        provider_ids: distinct_texts(first.into_iter().chain(legacy.iter().cloned().map(Some))),
        label: UUID_LABEL.to_owned(),
        label_values: uuids,
        hostnames: distinct_texts([hostname.map(|hardware| hardware.hostname.clone())]),
        may_use_hostname: !owner.spec.bootstrap.config_ref.as_ref().is_some_and(is_named),
    };
    Known {
        expected,
        block: ProviderId::of_metal3(&namespace, &host.name_any(), "").to_string(),
        legacy,
        has_cloud_provider: situation.infrastructure.is_some_and(has_cloud_provider),
    }
}

/// A providerID that no version writes, or that is not of Metal3.
fn find_unknown_form(machine: &Metal3Machine) -> Option<Problem> {
    let id = machine.spec.provider_id.as_ref()?;
    let is_known = id.starts_with("metal3://") && ProviderId::parse(id).is_some();
    (!is_known).then(|| {
        let message = format!(
            "spec.providerID is {id}, which is not metal3://NAMESPACE/HOST/MACHINE or metal3://UID{}: replace the Machine",
            ProviderId::proposed_form(id)
        );
        Problem::of_cause(Reason::NodeProviderIDUnsupported, message)
    })
}

fn differ(node: &str, found: &str, provided: &str) -> Problem {
    let message = format!(
        "Node {node} has the providerID {found} and this machine has {provided}, which Cluster API compares: correct the kubelet arguments of the bootstrap data and replace the Machine"
    );
    Problem::of_cause(Reason::NodeProviderIDUnsupported, message)
}

fn wait_for(problem: Problem) -> Outcome {
    Outcome::of_blocker(Blocker::waiting_for(Type::NodeLinked, problem)).retried()
}

fn fail_for(problem: Problem) -> Outcome {
    Outcome::of_blocker(Blocker::needs_operator(Type::NodeLinked, problem)).retried()
}
