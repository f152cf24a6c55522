//! Which hosts a machine can claim.

use std::collections::BTreeMap;

use coordinator_api::capi::Machine;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::{HostSelector, Metal3Machine};
use coordinator_api::metal3::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use super::super::selector::Selector;
use super::is_available;

/// Label of Machines with the name of their `MachineDeployment`.
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io/";

/// Whether the host can be chosen by some machine: as CAPM3 filters.
pub fn is_candidate(host: &BareMetalHost) -> bool {
    find_exclusion(host).is_none()
}

pub(super) fn find_exclusion(host: &BareMetalHost) -> Option<&'static str> {
    let annotated = |key: &str| host.annotations().contains_key(key);
    let is_reserved = host.labels().contains_key(names::NODE_REUSE);
    let status = host.status.as_ref();
    let has_error = status.is_some_and(|status| !status.error_message.is_empty());
    let has_consumer = host.spec.consumer_ref.is_some();
    [
        (has_consumer && !is_reserved, "in use"),
        (host.metadata.deletion_timestamp.is_some(), "in deletion"),
        (has_error, "with an error"),
        (names::HOST_PAUSES.into_iter().any(annotated), "paused"),
        (names::HOST_UNHEALTHY.into_iter().any(annotated), "marked unhealthy"),
        (!is_reserved && !is_available(host), "not available"),
    ]
    .into_iter()
    .find_map(|(is_excluded, why)| is_excluded.then_some(why))
}

pub(super) fn control_plane_of(owner: &Machine) -> Option<&OwnerReference> {
    let is_control_plane =
        |reference: &&OwnerReference| reference.api_version.starts_with(CONTROL_PLANE_GROUP);
    owner.owner_references().iter().find(is_control_plane)
}

/// Which hosts a machine takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostWish {
    selector: HostSelector,
    /// Those that are kept for its group.
    reuse: Option<String>,
    /// It takes another one where none is there.
    domain: Option<String>,
}

impl HostWish {
    pub fn of_machine(machine: &Metal3Machine, owner: &Machine) -> Self {
        Self {
            selector: machine.spec.host_selector.clone(),
            reuse: reuse_value(owner),
            domain: owner_domain(machine, owner).map(str::to_owned),
        }
    }

    /// Whether hosts are kept for it by this value.
    pub fn is_of_group(&self, reuse: &str) -> bool {
        self.reuse.as_deref() == Some(reuse)
    }

    /// Whether a host with these labels is one of them.
    pub fn fits(&self, labels: &BTreeMap<String, String>) -> bool {
        let is_selected = Selector::parse(&self.selector).is_ok_and(|selector| selector.matches(labels));
        is_selected && is_reusable(labels, self.reuse.as_deref())
    }
}

/// Whose successors hosts are kept for, as CAPM3 writes it.
pub(super) fn reuse_value(owner: &Machine) -> Option<String> {
    if let Some(control_plane) = control_plane_of(owner) {
        return Some(format!("cp-{}", control_plane.name));
    }
    owner.labels().get(DEPLOYMENT_NAME).map(|name| format!("md-{name}"))
}

/// Whether a host with these labels is kept for nothing, or for this.
pub(super) fn is_reusable(labels: &BTreeMap<String, String>, reuse: Option<&str>) -> bool {
    labels.get(names::NODE_REUSE).is_none_or(|kept| Some(kept.as_str()) == reuse)
}

/// The failure domain that is preferred.
pub(super) fn owner_domain<'a>(machine: &'a Metal3Machine, owner: &'a Machine) -> Option<&'a str> {
    let domain = owner.spec.failure_domain.as_deref().or(machine.spec.failure_domain.as_deref());
    domain.filter(|domain| !domain.is_empty())
}
