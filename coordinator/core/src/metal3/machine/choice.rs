//! Which host a machine claims.

use std::collections::BTreeMap;

use coordinator_api::capi::Machine;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names;
use kube::ResourceExt;

use super::super::selector::Selector;
use super::is_consumer;
use crate::demand::Blocker;

/// A host, or why there is none.
pub type Choice = Result<String, Blocker>;

/// Label of Machines with the name of their `MachineDeployment`.
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io/";

/// Whether the host can be chosen by some machine: as CAPM3 filters.
#[must_use]
pub fn is_candidate(host: &BareMetalHost) -> bool {
    find_exclusion(host).is_none()
}

fn find_exclusion(host: &BareMetalHost) -> Option<&'static str> {
    let annotated = |key: &str| host.annotations().contains_key(key);
    let is_reserved = host.labels().contains_key(names::NODE_REUSE);
    let status = host.status.as_ref();
    let state = status.map_or("", |status| status.provisioning.state.as_str());
    let has_error = status.is_some_and(|status| !status.error_message.is_empty());
    let has_consumer = host.spec.consumer_ref.is_some();
    [
        (has_consumer && !is_reserved, "in use"),
        (host.metadata.deletion_timestamp.is_some(), "in deletion"),
        (has_error, "with an error"),
        (names::HOST_PAUSES.into_iter().any(annotated), "paused"),
        (names::HOST_UNHEALTHY.into_iter().any(annotated), "marked unhealthy"),
        (!is_reserved && !matches!(state, "ready" | "available"), "not available"),
    ]
    .into_iter()
    .find_map(|(is_excluded, why)| is_excluded.then_some(why))
}

/// Whose successors hosts are kept for, as CAPM3 writes it.
pub(super) fn reuse_value(owner: &Machine) -> Option<String> {
    let control_plane = owner
        .owner_references()
        .iter()
        .find(|reference| reference.api_version.starts_with(CONTROL_PLANE_GROUP));
    if let Some(control_plane) = control_plane {
        return Some(format!("cp-{}", control_plane.name));
    }
    owner.labels().get(DEPLOYMENT_NAME).map(|name| format!("md-{name}"))
}

/// Whether the host is kept for nothing, or for this.
pub(super) fn is_reusable(host: &BareMetalHost, reuse: Option<&str>) -> bool {
    host.labels().get(names::NODE_REUSE).is_none_or(|kept| Some(kept.as_str()) == reuse)
}

/// Chooses: a host that names the machine, then hosts kept for it, then free
/// hosts of its failure domain, then any. `hosts` come in the order of their
/// names.
///
/// # Errors
/// A blocker that counts the hosts by the cause of their exclusion.
pub fn choose_host<'a>(
    machine: &Metal3Machine,
    owner: &Machine,
    hosts: impl Iterator<Item = &'a BareMetalHost> + Clone,
    is_reserved: impl Fn(&str) -> bool,
) -> Choice {
    let blocked = |reason, message| Blocker::needs_operator(Type::AssociateBareMetalHost, reason, message);
    let selector = Selector::parse(&machine.spec.host_selector)
        .map_err(|error| blocked(Reason::SelectorInvalid, error.to_string()))?;
    if let Some(own) = hosts.clone().find(|host| is_consumer(host, machine)) {
        return Ok(own.name_any());
    }
    let reuse = reuse_value(owner);
    let fits = |host: &&'a BareMetalHost| {
        is_candidate(host)
            && is_reusable(host, reuse.as_deref())
            && selector.matches(host.labels())
            && !is_reserved(&host.name_any())
    };
    let is_kept = |host: &&'a BareMetalHost| host.labels().contains_key(names::NODE_REUSE);
    let is_free = |host: &&'a BareMetalHost| {
        let state = host.status.as_ref().map_or("", |status| status.provisioning.state.as_str());
        matches!(state, "ready" | "available")
    };
    let kept: Vec<_> = hosts.clone().filter(|host| is_kept(host) && fits(host)).collect();
    if let Some(ready) = kept.iter().find(|host| is_free(host)) {
        return Ok(ready.name_any());
    }
    if !kept.is_empty() {
        let message = format!("{} hosts are kept for this machine and not available yet", kept.len());
        return Err(Blocker::waiting_for(Type::AssociateBareMetalHost, Reason::NoHostAvailable, message));
    }
    let domain = owner_domain(machine, owner);
    let in_domain = |host: &&'a BareMetalHost| {
        domain.is_some_and(|domain| {
            host.labels().get(names::FAILURE_DOMAIN).map(String::as_str) == Some(domain)
        })
    };
    let preferred = domain.and_then(|_| hosts.clone().find(|host| fits(host) && in_domain(host)));
    let chosen = preferred.or_else(|| hosts.clone().find(&fits));
    chosen.map(ResourceExt::name_any).ok_or_else(|| {
        let message = format!(
            "no BareMetalHost can be chosen: {}",
            count_exclusions(hosts, &selector, reuse.as_deref())
        );
        blocked(Reason::NoHostAvailable, message)
    })
}

fn owner_domain<'a>(machine: &'a Metal3Machine, owner: &'a Machine) -> Option<&'a str> {
    let domain = owner.spec.failure_domain.as_deref().or(machine.spec.failure_domain.as_deref());
    domain.filter(|domain| !domain.is_empty())
}

/// How many hosts each cause excludes.
fn count_exclusions<'a>(
    hosts: impl Iterator<Item = &'a BareMetalHost>,
    selector: &Selector,
    reuse: Option<&str>,
) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for host in hosts {
        let why = if !selector.matches(host.labels()) {
            "not selected by spec.hostSelector"
        } else if !is_reusable(host, reuse) {
            "kept for other machines"
        } else {
            find_exclusion(host).unwrap_or("about to be claimed")
        };
        *counts.entry(why).or_default() += 1;
    }
    if counts.is_empty() {
        return "there is none in this namespace: create one that names a MachineInventory".to_owned();
    }
    let counts: Vec<_> = counts.into_iter().map(|(why, count)| format!("{count} {why}")).collect();
    format!("{}: free one, or create another", counts.join(", "))
}
