//! The demand of an infrastructure machine, without its kind.
//!
//! A front door turns its own objects into a [`Demand`]; everything behind it
//! is shared ([`crate::assignment`]).

pub mod baremetal_machine;

use coordinator_api::names::kind;
use std::time::Duration;

use coordinator_api::capi::{self, Machine};
use coordinator_api::conditions::{Reason, Type};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proto::plan::Image;

use crate::ids::{HostName, Uid};
use crate::node_link;
use crate::plan::Names;
use crate::pool::Wish;
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    pub machine: MachineKey,
    /// The host that the machine names: by its choice or its providerID.
    pub host: Option<HostName>,
    /// Hosts whose claim, own statement or plan names the machine, sorted. Abandoned ones are left out.
    pub owned_hosts: Vec<HostName>,
    pub provider_id: Option<ProviderId>,
    pub has_finalizer: bool,
    /// An operator asks for another clean after a failed one.
    pub retry_clean: bool,
    /// An operator gives the host up.
    pub release_without_clean: bool,
    /// A machine in deletion waits this long for an unreachable host.
    pub abandon_after: Option<Duration>,
    /// The Node that Cluster API leaves after a deleted machine: it is removed before the host is released.
    pub left_node: Option<LeftNode>,
    /// Why nothing may be done now.
    pub hold: Option<Blocker>,
    pub want: Want,
}

/// How the Node is found that a deleted machine leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftNode {
    pub cluster: String,
    /// The providerID that the Node has while its machine has none, where it is not that of the host.
    pub provider_id: Option<ProviderId>,
    /// The label of the Node, where it is not the UID of the inventory.
    pub uuid: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineKey {
    /// Kind of the infrastructure machine.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: Option<Uid>,
}

/// The intended use of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    Node(Box<NodeDemand>),
    /// The machine is in deletion: the host goes back to its pool.
    Release,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDemand {
    /// Name of the Machine.
    pub machine: String,
    pub cluster: String,
    pub pool: String,
    /// Its requirements on a host that the engine chooses.
    pub wish: Wish,
    /// True if the pool still has the host that the machine names.
    pub is_listed: bool,
    /// The next host that can be claimed, or why there is none. Not looked for while
    /// the machine holds a host.
    pub candidate: Option<Result<HostName, Blocker>>,
    /// Name of the Secret with the bootstrap data, once there is one.
    pub bootstrap_secret: Option<String>,
    pub bootstrap_edit: BootstrapEdit,
    /// Name of the Secret with meta-data that replaces the defaults, if any.
    pub meta_data_secret: Option<String>,
    /// Name of the Secret with the network of the node; the host's without it.
    pub network_data_secret: Option<String>,
    pub image: Result<Image, Blocker>,
    /// Name of the Secret by which the host reaches the registry of the image.
    pub registry_secret: Option<String>,
    /// Known once the machine names a host.
    pub names: Option<Names>,
    /// Further providerIDs that bootstrap data may give the kubelet, where it is not
    /// edited.
    pub other_ids: Vec<String>,
    /// Identifies its Node; `None` where the kind links no Node.
    pub link: Option<NodeLink>,
}

/// The Node of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLink {
    pub expected: node_link::Expected,
    /// Cluster API has found it.
    pub is_found: bool,
}

/// The change of bootstrap data before the host gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootstrapEdit {
    /// Host name and provider-id of kubeadm documents are set, criSocket where it is absent.
    Kubeadm,
    Unchanged,
}

/// A machine in deletion whose Machine is missing, is not in deletion, or is not
/// the one that its owner reference names, was deleted by the garbage collector
/// after a restore: Cluster API removes a Machine only after this object.
pub(crate) fn owner_mismatch(references: &[OwnerReference], owner: Option<&Machine>) -> Option<Blocker> {
    let reference = references.iter().find(|reference| capi::is_owner(reference, kind::MACHINE))?;
    let problem = match owner {
        None => "does not exist",
        Some(owner) if owner.metadata.deletion_timestamp.is_none() => "is not in deletion",
        Some(owner) if owner.metadata.uid.as_ref() != Some(&reference.uid) => {
            "is not the one that the owner reference names"
        }
        Some(_) => return None,
    };
    let message = format!(
        "this object is in deletion and Machine {} {problem}; the host is not touched",
        reference.name
    );
    let action = match owner {
        Some(_) => {
            "to have it cleaned, delete the Machine and correct or remove the owner reference of this object"
        }
        None => {
            "to have it cleaned, remove the owner reference of this object, or restore the Machine and delete it"
        }
    };
    let problem = Problem::new(Reason::OwnerMismatch, message, action);
    Some(Blocker::needs_operator(Type::Ready, problem))
}

/// The problem of an object without Machine. Cluster API sets the owner.
pub(crate) fn owner_missing(references: &[OwnerReference]) -> Problem {
    if let Some(reference) = references.iter().find(|reference| capi::is_owner(reference, kind::MACHINE)) {
        let message = format!("Machine {}, which the owner reference names, does not exist", reference.name);
        return Problem::new(Reason::OwnerWaiting, message, "restore it, or delete this object");
    }
    Problem::new(
        Reason::OwnerWaiting,
        "no Cluster API Machine owns this object yet",
        "create a MachineDeployment or a control plane, not this object",
    )
}

/// A Cluster that is not found may be a paused one.
pub(crate) fn cluster_missing(name: &str) -> Problem {
    Problem::new(Reason::OwnerWaiting, format!("Cluster {name} is not found"), "create or restore it")
}

pub(crate) fn version_missing() -> Problem {
    Problem::new(
        Reason::VersionMissing,
        "the Machine has no spec.version",
        "set it on the MachineDeployment or control plane",
    )
}
