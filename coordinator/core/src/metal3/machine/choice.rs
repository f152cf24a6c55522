//! The hosts that a machine can claim.

use std::collections::BTreeMap;

use coordinator_api::capi::Machine;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::{HostSelector, Metal3Machine};
use coordinator_api::metal3::names;
use coordinator_api::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use super::super::selector::Selector;
use super::is_available;

const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io/";

/// A machine can choose the host, by the rules of CAPM3.
pub fn is_candidate(host: &BareMetalHost) -> bool {
    find_exclusion(host).is_none()
}

pub(super) fn find_exclusion(host: &BareMetalHost) -> Option<&'static str> {
    let is_annotated = |key: &str| host.annotations().contains_key(key);
    let is_reserved = host.labels().contains_key(names::NODE_REUSE);
    let status = host.status.as_ref();
    let has_error = status.is_some_and(|status| !status.error_message.is_empty());
    let has_consumer = host.spec.consumer_ref.is_some();
    [
        (has_consumer && !is_reserved, "in use"),
        (host.metadata.deletion_timestamp.is_some(), "in deletion"),
        (has_error, "with an error"),
        (names::HOST_PAUSES.into_iter().any(is_annotated), "paused"),
        (names::HOST_UNHEALTHY.into_iter().any(is_annotated), "marked unhealthy"),
        (!is_reserved && !is_available(host), "not available"),
    ]
    .into_iter()
    .find_map(|(is_excluded, why)| is_excluded.then_some(why))
}

pub(super) fn control_plane_of(owner: &Machine) -> Option<&OwnerReference> {
    let mut owners = owner.owner_references().iter();
    owners.find(|reference| reference.api_version.starts_with(CONTROL_PLANE_GROUP))
}

/// Requirements of a machine on its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostWish {
    selector: HostSelector,
    /// Group of the machine, for whose successors hosts are kept.
    reuse: Option<String>,
    /// Preferred failure domain.
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

    /// Hosts with this value are kept for the group of the machine.
    pub fn is_of_group(&self, reuse: &str) -> bool {
        self.reuse.as_deref() == Some(reuse)
    }

    /// The machine accepts a host with these labels.
    pub fn fits(&self, labels: &BTreeMap<String, String>) -> bool {
        let is_selected = Selector::parse(&self.selector).is_ok_and(|selector| selector.matches(labels));
        is_selected && is_reusable(labels, self.reuse.as_deref())
    }
}

/// The group for whose successors hosts are kept, in the form of CAPM3.
pub(super) fn reuse_value(owner: &Machine) -> Option<String> {
    if let Some(control_plane) = control_plane_of(owner) {
        return Some(format!("cp-{}", control_plane.name));
    }
    owner.labels().get(label::DEPLOYMENT_NAME).map(|name| format!("md-{name}"))
}

/// A host with these labels is kept for this group, or for no group.
pub(super) fn is_reusable(labels: &BTreeMap<String, String>, reuse: Option<&str>) -> bool {
    labels.get(names::NODE_REUSE).is_none_or(|kept| Some(kept.as_str()) == reuse)
}

/// The preferred failure domain.
pub(super) fn owner_domain<'a>(machine: &'a Metal3Machine, owner: &'a Machine) -> Option<&'a str> {
    let domain = owner.spec.failure_domain.as_deref().or(machine.spec.failure_domain.as_deref());
    domain.filter(|domain| !domain.is_empty())
}
