//! `Metal3Machine`: the machine chooses a host, provisions it with an image and data, and releases it.
//!
//! The machine records the chosen host before it claims the host. The claim is one compare-and-swap
//! of the host's `consumerRef`. The controller of the host, which may belong to another manager,
//! decides about the host itself.

mod choice;
mod holding;
mod labels;
mod node;
mod pause;
mod provision;
mod release;
mod roster;
mod status;
#[cfg(test)]
mod tests;

use coordinator_api::names::{INFRASTRUCTURE_GROUP, kind};
use std::collections::BTreeMap;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use coordinator_api::inventory::CarriedNode;
use coordinator_api::metal3::cluster::Metal3Cluster;
use coordinator_api::metal3::data::{Metal3Data, Metal3DataClaim};
use coordinator_api::metal3::host::{BareMetalHost, CleaningMode};
use coordinator_api::metal3::machine::{Metal3Machine, Metal3MachineTemplate};
use coordinator_api::metal3::names;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::assignment::{NodeRef, NodesRead};
use crate::demand::{cluster_missing, owner_mismatch, owner_missing};
use crate::node_link::NodeSearch;
use crate::problem::{Blocker, Problem};

pub use choice::{HostWish, is_candidate};
pub use holding::Stated;
pub use release::{deciding_control_plane, template_of_control_plane};
pub use roster::{Choice, HostChange, HostRoster, Offered};
pub use status::project_status;

/// Inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub machine: &'a Metal3Machine,
    /// The Machine that its owner reference names.
    pub owner: Option<&'a Machine>,
    pub cluster: Option<&'a Cluster>,
    pub infrastructure: Option<&'a Metal3Cluster>,
    /// The template that decides if the host is kept: the template of the machine, or the newest
    /// template of its control plane.
    pub template: Option<&'a Metal3MachineTemplate>,
    /// The host that the machine names.
    pub host: Option<&'a BareMetalHost>,
    /// Names of the hosts that belong to the machine by their consumer, their node or their claim.
    pub owned: &'a [String],
    /// Images by Kubernetes versions.
    pub catalog: Option<&'a BTreeMap<String, String>>,
    /// The data claim with the machine's name.
    pub data_claim: Option<&'a Metal3DataClaim>,
    /// The data of that claim.
    pub data: Option<&'a Metal3Data>,
    /// The node that the host states to carry.
    pub carried: Option<&'a CarriedNode>,
    pub nodes: &'a NodesRead,
    pub now: Timestamp,
}

impl Situation<'_> {
    /// The host belongs to the machine, whichever of them names the other one.
    fn owns(&self, host: &str) -> bool {
        self.owned.iter().any(|own| own == host)
    }
}

/// The one change that is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    /// Choose a host, and record it on the machine with the finalizer.
    Choose,
    /// Write the name of the host that belongs to the machine.
    NameHost(String),
    /// Add the finalizer to a machine that names its host, so that a deletion does not lose the host.
    Hold,
    /// Remove the choice, because another machine has the host.
    Unchoose,
    /// Change the host, with its version as precondition.
    ChangeHost {
        change: Value,
        event: EventReason,
    },
    /// Set or end the pause of the host with the pause of its Cluster.
    PauseHost(Value),
    /// Copy the cleaning mode of the template to the machine.
    SetCleaningMode(CleaningMode),
    /// Create the claim on the data of the template.
    ClaimData(Box<Metal3DataClaim>),
    /// Delete the claim, which releases index and addresses.
    ReleaseData,
    /// Read the Nodes of the workload cluster.
    FindNodes(NodeSearch),
    /// Write the providerID of the machine for Cluster API.
    Provide(String),
    /// Write the providerID of the Node.
    LinkNode {
        node: NodeRef,
        provider_id: String,
    },
    /// Write labels of the host to the Node; null removes a label.
    LabelNode {
        node: NodeRef,
        labels: serde_json::Map<String, Value>,
    },
    RemoveFinalizer,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub step: Step,
    pub blocker: Option<Blocker>,
    /// No event announces the end of the blocker, so that the decision is repeated with growing
    /// intervals.
    pub is_retried: bool,
    /// No event announces a change, so that the decision is repeated at a fixed interval.
    pub is_rechecked: bool,
}

impl Outcome {
    fn of_step(step: Step) -> Self {
        Self { step, blocker: None, is_retried: false, is_rechecked: false }
    }

    fn of_blocker(blocker: Blocker) -> Self {
        Self { blocker: Some(blocker), ..Self::of_step(Step::Rest) }
    }

    fn retried(self) -> Self {
        Self { is_retried: true, ..self }
    }
}

/// The host that the machine names, in its own namespace.
pub fn named_host(machine: &Metal3Machine) -> Option<&str> {
    let text = machine.annotations().get(names::HOST_OF_MACHINE)?;
    Some(text.split_once('/').map_or(text.as_str(), |(_, name)| name)).filter(|name| !name.is_empty())
}

/// An operator named the host, and the coordinator did not choose it.
pub(super) fn is_pinned(machine: &Metal3Machine) -> bool {
    let annotations = machine.annotations();
    let named = annotations.get(names::HOST_OF_MACHINE);
    named.is_some() && annotations.get(names::CHOSEN_HOST) != named
}

/// The machine holds the host. Only names are compared, because UIDs change with a restore and
/// versions with an upgrade.
pub fn is_consumer(host: &BareMetalHost, machine: &Metal3Machine) -> bool {
    host.metadata.namespace == machine.metadata.namespace
        && consumer_machine(host) == Some(machine.name_any().as_str())
}

/// The machine that uses the host, in its namespace.
fn consumer_machine(host: &BareMetalHost) -> Option<&str> {
    let consumer = host.spec.consumer_ref.as_ref()?;
    let namespace = consumer.namespace.as_deref().unwrap_or("");
    let group = consumer.api_version.as_deref().and_then(|version| version.split('/').next());
    let is_machine = consumer.kind == kind::METAL3_MACHINE
        && (namespace.is_empty() || Some(namespace) == host.metadata.namespace.as_deref())
        && group == Some(INFRASTRUCTURE_GROUP);
    is_machine.then_some(consumer.name.as_str())
}

fn is_available(host: &BareMetalHost) -> bool {
    let state = host.status.as_ref().map_or("", |status| status.provisioning.state.as_str());
    matches!(state, "ready" | "available")
}

pub fn decide_machine(situation: &Situation<'_>) -> Outcome {
    let pause = pause::find_change(situation).map(Step::PauseHost);
    if let Some(blocker) = find_pause(situation) {
        return Outcome { step: pause.unwrap_or(Step::Rest), ..Outcome::of_blocker(blocker) };
    }
    if holding::needs_finalizer(situation.machine) {
        return Outcome::of_step(Step::Hold);
    }
    if let Some(blocker) = find_hold(situation) {
        return Outcome::of_blocker(blocker);
    }
    if let Some(pause) = pause {
        return Outcome::of_step(pause);
    }
    if let Some(outcome) = holding::settle_host(situation) {
        return outcome;
    }
    if situation.machine.metadata.deletion_timestamp.is_some() {
        return release::release_host(situation);
    }
    let Some(owner) = situation.owner else {
        let missing = owner_missing(situation.machine.owner_references());
        let problem = Problem { reason: Reason::WaitingForMetal3MachineOwnerRef, ..missing };
        return Outcome::of_blocker(Blocker::waiting_for(Type::AssociateBareMetalHost, problem));
    };
    if let Some(mode) = provision::template_mode(situation) {
        return Outcome::of_step(Step::SetCleaningMode(mode));
    }
    if let Some(change) = provision::cleaning_change(situation) {
        return provision::change_host(change, EventReason::CleaningModeSet);
    }
    if situation.machine.spec.provider_id.is_some() {
        return match situation.host.filter(|host| is_consumer(host, situation.machine)) {
            Some(_) if node::is_found(owner) => labels::sync_labels(situation, owner),
            Some(host) => node::link_node(situation, owner, host),
            None => Outcome::of_blocker(holding::lost_host(situation)),
        };
    }
    match provision::find_missing(situation, owner) {
        Some(blocker) => Outcome::of_blocker(blocker),
        None => provision::provision_host(situation, owner),
    }
}

fn find_pause(situation: &Situation<'_>) -> Option<Blocker> {
    if !crate::pause::is_paused(situation.machine, situation.cluster) {
        return None;
    }
    let problem = Problem::of_cause(Reason::Paused, crate::pause::PAUSED_MESSAGE);
    Some(Blocker::waiting_for(Type::Paused, problem))
}

/// The blocker of every step but the finalizer, including the deletion.
fn find_hold(situation: &Situation<'_>) -> Option<Blocker> {
    // A Cluster that is not found may be paused.
    if let Some(owner) = situation.owner.filter(|_| situation.cluster.is_none()) {
        return Some(Blocker::waiting_for(Type::Ready, cluster_missing(&owner.spec.cluster_name)));
    }
    let is_deleted = situation.machine.metadata.deletion_timestamp.is_some();
    let has_host = named_host(situation.machine).is_some() || !situation.owned.is_empty();
    let holds_host = is_deleted && has_host;
    holds_host.then(|| owner_mismatch(situation.machine.owner_references(), situation.owner)).flatten()
}
