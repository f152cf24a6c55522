//! The chain of causes: from an object down to the one to act on.

use std::collections::BTreeSet;

use coordinator_api::conditions::Reason;
use coordinator_api::explain::Attention;
use jiff::Timestamp;
use serde::Serialize;

use crate::finding::{Finding, find, is_recoverable, standing_of};
use crate::fleet::{Fleet, Id, Object};
use crate::kind::Kind;
use crate::metal3;

/// One object of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    pub(crate) object: Id,
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// From the object that was asked for to the one to act on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    /// Meaning of the last reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) meaning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<&'static str>,
    pub(crate) action: String,
}

impl Chain {
    /// What the whole chain asks of an operator.
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
    let told = links.last().and_then(|link| {
        let last = fleet.get(&link.object)?;
        let cause = link.finding.cause().filter(|_| link.finding.attention != Attention::None);
        let meaning = link.finding.meaning().filter(|_| cause.is_some());
        Some((meaning, cause, link.finding.action(last)))
    });
    let (meaning, cause, action) = told.unwrap_or_else(|| (None, None, missing_action(links.last())));
    Chain { links, meaning, cause, action }
}

fn missing_action(link: Option<&Link>) -> String {
    link.map_or_else(|| "none".to_owned(), |link| format!("create or restore {}", link.object.short()))
}

struct Search<'a> {
    fleet: &'a Fleet,
    now: Timestamp,
    visited: BTreeSet<Id>,
}

impl Search<'_> {
    /// The links from `object` down; empty where it was looked at before.
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
        // A cause below explains more, unless less is asked for there.
        let is_cause = attention_of(&worst) != Attention::None
            && (attention_of(&worst) >= own.finding.attention || is_container(object.id.kind));
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
            Kind::MachineInventoryPool => self.list_members(object),
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
        let parts = known.map(Object::parts).unwrap_or_default().into_iter();
        let Ok(reason) = finding.reason.parse::<Reason>() else { return vec![] };
        match reason {
            Reason::PoolExhausted | Reason::PoolOfOtherCluster => object.named_pool().into_iter().collect(),
            Reason::WaitingForMetal3Data => metal3::list_causes(fleet, object),
            Reason::NoHostAvailable => self.list_bare_metal_hosts(object),
            Reason::ClusterInfrastructureWaiting
            | Reason::WaitingForClusterInfrastructureReady
            | Reason::WaitingforMetal3Cluster => parts.take(1).collect(),
            Reason::BootstrapWaiting | Reason::WaitingForBootstrapData => parts.skip(1).collect(),
            Reason::Paused => cluster.into_iter().collect(),
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

    /// Members that an operator may make available.
    fn list_members(&self, pool: &Object) -> Vec<Id> {
        let Some(parsed) = pool.pool() else { return vec![] };
        let names = self.fleet.members_of(&parsed);
        let recoverable = names.iter().filter(|name| is_recoverable(standing_of(self.fleet, pool, name)));
        recoverable.map(|name| Id::new(Kind::MachineInventory, &pool.id.namespace, name)).collect()
    }

    fn list_bare_metal_hosts(&self, machine: &Object) -> Vec<Id> {
        let hosts = self.fleet.of(Kind::BareMetalHost);
        let free = hosts.filter(|host| {
            host.id.namespace == machine.id.namespace && host.spec()["consumerRef"]["name"].is_null()
        });
        free.map(|host| host.id.clone()).collect()
    }
}

fn registration_of(image: &Object) -> Option<Id> {
    let reference = &image.spec()["registrationRef"];
    let namespace = reference["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or(&image.id.namespace);
    Some(Id::new(Kind::MachineRegistration, namespace, reference["name"].as_str()?))
}

/// Whether the state of a remediation follows from that of its host.
fn is_about_host(finding: &Finding) -> bool {
    let reasons = [Reason::HostUnreachable, Reason::RemediationRunning];
    reasons.iter().any(|reason| reason.as_str() == finding.reason)
}

/// Whether a kind is as well as what it is made of.
fn is_container(kind: Kind) -> bool {
    kind.is_of_cluster_api()
}

fn attention_of(links: &[Link]) -> Attention {
    links.last().map_or(Attention::None, |link| link.finding.attention)
}

/// An object that is referred to and does not exist.
fn missing_link(fleet: &Fleet, id: &Id) -> Option<Link> {
    // Of what was not listed nothing is known.
    fleet.covers(id).then_some(())?;
    let reason = match id.kind {
        Kind::MachineInventory => Reason::MemberMissing.as_str(),
        _ => "Missing",
    };
    let finding = Finding {
        attention: Attention::Act,
        condition: None,
        reason: reason.to_owned(),
        message: "the object does not exist".to_owned(),
        since: None,
    };
    Some(Link { object: id.clone(), finding })
}

#[cfg(test)]
mod reason_tests;
#[cfg(test)]
mod tests;
