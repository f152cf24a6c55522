//! The chain of causes, from an object down to the object to act on (decision 34).

use std::collections::BTreeSet;

use coordinator_api::conditions::Reason;
use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use super::find::find;
use super::finding::Finding;
use super::{metal3, pool};
use crate::fleet::{Fleet, Id, Kind, Object};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    pub(crate) object: Id,
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// The objects from the one that was asked for to the one to act on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    /// The cause of the last reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<&'static str>,
    pub(crate) action: String,
}

impl Chain {
    pub(crate) fn attention(&self) -> Attention {
        self.links.last().map_or(Attention::None, |link| link.finding.attention)
    }

    /// The object to act on.
    pub(crate) fn last(&self) -> Option<&Link> {
        self.links.last()
    }
}

/// Follows the causes of the state of `object`.
pub(crate) fn follow_causes(fleet: &Fleet, object: &Object, now: Timestamp) -> Chain {
    let mut search = Search { fleet, now, visited: BTreeSet::new() };
    let links = search.follow(object, true);
    let mut chain = Chain { links, cause: None, action: "none".to_owned() };
    if let Some(Link { object, finding }) = chain.links.last() {
        match fleet.get(object) {
            Some(last) => {
                chain.cause = finding.cause().filter(|_| finding.attention != Attention::None);
                chain.action = finding.action(last);
            }
            None => chain.action = format!("create or restore {}", object.short()),
        }
    }
    chain
}

struct Search<'a> {
    fleet: &'a Fleet,
    now: Timestamp,
    visited: BTreeSet<Id>,
}

impl Search<'_> {
    /// The links from `object` down; empty for an object that was visited before, because
    /// references may form a circle.
    fn follow(&mut self, object: &Object, is_asked_for: bool) -> Vec<Link> {
        if !self.visited.insert(object.id.clone()) {
            return vec![];
        }
        let finding = find(self.fleet, object, is_asked_for, self.now);
        let own = Link { object: object.id.clone(), finding };
        let mut worst: Vec<Link> = vec![];
        for id in self.list_causes(object, &own.finding) {
            let chain = match self.fleet.get(&id) {
                Some(next) => self.follow(next, false),
                None => missing_link(self.fleet, &id).into_iter().collect(),
            };
            if attention_of(&chain) > attention_of(&worst) {
                worst = chain;
            }
            if attention_of(&worst) == Attention::Act {
                break;
            }
        }
        // The cause below explains more than the object, unless less is asked for there. A kind of
        // Cluster API is never more than its parts.
        let is_cause = attention_of(&worst) != Attention::None
            && (attention_of(&worst) >= own.finding.attention || object.id.kind.is_of_cluster_api());
        let mut links = vec![own];
        if is_cause {
            links.extend(worst);
        }
        links
    }

    /// The objects whose state may be the cause, the likeliest first.
    fn list_causes(&self, object: &Object, finding: &Finding) -> Vec<Id> {
        let fleet = self.fleet;
        match object.id.kind {
            Kind::Cluster => {
                [object.parts(), fleet.groups_of_cluster(object), fleet.machines_of(object)].concat()
            }
            Kind::KubeadmControlPlane | Kind::MachineDeployment | Kind::MachineSet => {
                fleet.machines_of(object)
            }
            Kind::Machine => object.infrastructure().into_iter().collect(),
            Kind::MachineInventoryPool => pool::list_recoverable(fleet, object),
            Kind::Metal3Remediation if is_about_host(finding) => metal3::list_causes(fleet, object),
            Kind::Metal3DataClaim | Kind::Metal3Data | Kind::IPClaim | Kind::IPAddressClaim
                if finding.attention != Attention::None =>
            {
                metal3::list_causes(fleet, object)
            }
            Kind::BaremetalMachine | Kind::Metal3Machine | Kind::BareMetalHost | Kind::SeedImage
                if finding.attention != Attention::None =>
            {
                self.list_causes_of_reason(object, finding)
            }
            _ => vec![],
        }
    }

    fn list_causes_of_reason(&self, object: &Object, finding: &Finding) -> Vec<Id> {
        let fleet = self.fleet;
        let cluster = object.cluster();
        let known = cluster.as_ref().and_then(|id| fleet.get(id));
        let parts = known.into_iter().flat_map(Object::parts);
        let Ok(reason) = finding.reason.parse::<Reason>() else { return vec![] };
        match reason {
            Reason::PoolExhausted | Reason::PoolOfOtherCluster => object.named_pool().into_iter().collect(),
            Reason::WaitingForMetal3Data => metal3::list_causes(fleet, object),
            Reason::NoHostAvailable => self.list_bare_metal_hosts(object),
            Reason::ClusterInfrastructureWaiting
            | Reason::WaitingForClusterInfrastructureReady
            | Reason::WaitingforMetal3Cluster => parts.take(1).collect(),
            Reason::BootstrapWaiting | Reason::WaitingForBootstrapData => parts.skip(1).collect(),
            Reason::Paused => {
                let is_paused = |id: &Id| fleet.get(id).is_some_and(Object::is_paused);
                cluster.into_iter().chain(object.named_host()).filter(is_paused).collect()
            }
            Reason::OwnerWaiting => cluster.filter(|id| fleet.get(id).is_none()).into_iter().collect(),
            Reason::RegistrationNotFound => registration_of(object).into_iter().collect(),
            Reason::PoolMissing
            | Reason::InventoryMissing
            | Reason::NodeOverdue
            | Reason::NodeWaiting
            | Reason::NodeAmbiguous
            | Reason::NodeProviderIDUnsupported
            | Reason::KubeconfigMissing
            | Reason::KubeconfigInvalid
            | Reason::WorkloadUnreachable => vec![],
            _ => {
                let metal3 = object.bare_metal_host();
                metal3.into_iter().chain(object.named_host()).collect()
            }
        }
    }

    fn list_bare_metal_hosts(&self, machine: &Object) -> Vec<Id> {
        let hosts = self.fleet.of_namespace(Kind::BareMetalHost, &machine.id.namespace);
        let free = hosts.filter(|host| host.spec()["consumerRef"]["name"].is_null());
        free.map(|host| host.id.clone()).collect()
    }
}

fn registration_of(image: &Object) -> Option<Id> {
    let reference = &image.spec()["registrationRef"];
    let namespace = reference["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or(&image.id.namespace);
    Some(Id::new(Kind::MachineRegistration, namespace, reference["name"].as_str()?))
}

/// `true` if the state of a remediation follows from the state of its host.
fn is_about_host(finding: &Finding) -> bool {
    let reasons = [Reason::HostUnreachable, Reason::RemediationRunning];
    reasons.iter().any(|reason| reason.as_str() == finding.reason)
}

fn attention_of(links: &[Link]) -> Attention {
    links.last().map_or(Attention::None, |link| link.finding.attention)
}

/// The link of an object that is referred to and does not exist; `None` if its kind was not listed.
fn missing_link(fleet: &Fleet, id: &Id) -> Option<Link> {
    let reason = match id.kind {
        Kind::MachineInventory => Reason::MemberMissing.as_str(),
        _ => "Missing",
    };
    let finding = Finding::act(reason, "the object does not exist");
    fleet.covers(id).then(|| Link { object: id.clone(), finding })
}

#[cfg(test)]
mod reason_tests;
#[cfg(test)]
mod tests;
