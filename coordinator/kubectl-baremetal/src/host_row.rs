//! One line about one host.

use clap::ValueEnum;
use coordinator_api::explain::Attention;
use coordinator_api::inventory::{AllocationState, PlanState, PlanType};
use coordinator_api::names::annotation;
use coordinator_core::host::HostRecord;
use jiff::Timestamp;
use proto::refusal::Refusal;
use serde::{Serialize, Serializer};

use crate::finding::{Finding, find, serialize_attention};
use crate::fleet::{Fleet, Id, Object, holders_of};
use crate::kind::Kind;

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, strum::IntoStaticStr)]
pub(crate) enum HostState {
    /// Waits for an operator to admit it.
    Pending,
    /// Was shut out by an operator.
    Revoked,
    /// Two running systems have its identity.
    Quarantined,
    /// Is in deletion.
    Deleting,
    /// Has had no connection for five minutes.
    Unreachable,
    /// Its newest plan failed.
    Failed,
    /// Cannot be claimed.
    Unavailable,
    /// Its system is being installed.
    Installing,
    /// The node is being removed.
    Cleaning,
    /// It becomes a node.
    Provisioning,
    /// Executes the plan of an operator.
    Executing,
    /// A machine holds it, and it has no plan yet.
    Allocated,
    /// It is a node.
    Running,
    /// Can be claimed.
    Available,
}

impl Serialize for HostState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.into())
    }
}

/// One line about one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostRow {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) state: HostState,
    #[serde(serialize_with = "serialize_attention")]
    pub(crate) attention: Attention,
    /// Empty where all is as intended.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The message without what to do about it; empty where all is as intended.
    pub(crate) cause: String,
    pub(crate) action: String,
    pub(crate) pool: String,
    pub(crate) cluster: String,
    pub(crate) machine: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) image: String,
    pub(crate) boot_mode: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) identity: String,
    pub(crate) plan: String,
}

/// The line of an inventory; `None` for an object that cannot be read.
pub(crate) fn describe_host(fleet: &Fleet, object: &Object, now: Timestamp) -> Option<HostRow> {
    let inventory = object.inventory()?;
    let record = HostRecord::parse(inventory)?;
    let (finding, at) = find_worst(fleet, object, &record, now);
    let host = inventory.status.as_ref().and_then(|status| status.host.clone()).unwrap_or_default();
    let claim = record.claim.clone();
    let is_fine = finding.attention == Attention::None;
    Some(HostRow {
        namespace: record.namespace.clone(),
        name: record.name.to_string(),
        state: find_state(&record, now),
        attention: finding.attention,
        cause: if is_fine { String::new() } else { finding.told_cause() },
        action: if is_fine { String::new() } else { finding.action(at) },
        reason: if is_fine { String::new() } else { finding.reason.clone() },
        message: finding.message,
        pool: record.pool.clone().unwrap_or_default(),
        cluster: claim.as_ref().map(|claim| claim.cluster.clone()).unwrap_or_default(),
        machine: claim
            .map(|claim| if claim.machine.is_empty() { claim.baremetal_machine } else { claim.machine })
            .unwrap_or_default(),
        created: object.created(),
        image: host.image,
        boot_mode: host.boot_mode,
        addresses: host.addresses,
        identity: identity_of(object),
        plan: plan_of(object),
    })
}

/// What the host says of itself; where that is fine, what its machine says.
fn find_worst<'a>(
    fleet: &'a Fleet,
    object: &'a Object,
    record: &HostRecord,
    now: Timestamp,
) -> (Finding, &'a Object) {
    let own = find(fleet, object, true, now);
    if own.attention != Attention::None {
        return (own, object);
    }
    let kinds = [Kind::BaremetalMachine, Kind::BareMetalHost];
    let holders = holders_of(record).into_iter().filter(|id: &Id| kinds.contains(&id.kind));
    let holders = holders.filter_map(|id| fleet.get(&id));
    let mut found = holders.map(|holder| (find(fleet, holder, false, now), holder));
    found.find(|(finding, _)| finding.attention != Attention::None).unwrap_or((own, object))
}

fn identity_of(object: &Object) -> String {
    let condition = object.condition(coordinator_api::conditions::Type::IdentityVerified.as_str());
    condition.map(|condition| condition.reason).unwrap_or_default()
}

fn plan_of(object: &Object) -> String {
    let plan = &object.status()["plan"];
    let Some(kind) = plan["type"].as_str() else { return String::new() };
    let state = plan["state"].as_str().or(plan["step"]["name"].as_str()).unwrap_or("running");
    format!("{kind} {}: {state}", plan["generation"])
}

/// What the host does.
pub(crate) fn find_state(record: &HostRecord, now: Timestamp) -> HostState {
    let plan = record.plan.as_ref();
    let is_running = plan.is_some_and(|plan| plan.state.is_none());
    match (record.refusal(), plan.map(|plan| (plan.kind, plan.state))) {
        (Some(Refusal::Quarantined), _) => HostState::Quarantined,
        (Some(Refusal::ApprovalPending), _) => HostState::Pending,
        (Some(_), _) => HostState::Revoked,
        _ if record.is_deleting && record.claim.is_none() => HostState::Deleting,
        _ if record.unreachable_since(now).is_some() => HostState::Unreachable,
        _ if record.carried.is_none() && !is_running => HostState::Installing,
        (_, Some((PlanType::Clean, None))) => HostState::Cleaning,
        (_, Some((PlanType::Reprovision, None))) => HostState::Provisioning,
        (_, Some((PlanType::Custom, None))) => HostState::Executing,
        (_, Some((_, Some(PlanState::Failed)))) => HostState::Failed,
        _ if record.allocation == AllocationState::Unavailable || record.is_abandoned => {
            HostState::Unavailable
        }
        _ if record.claim.is_some() => {
            let is_node = record.carried_node().is_some() && record.claimed_plan().is_some();
            if is_node { HostState::Running } else { HostState::Allocated }
        }
        _ if record.carried_node().is_some() => HostState::Unavailable,
        _ => HostState::Available,
    }
}

/// The registration that a host came by.
pub(crate) fn registration_of(object: &Object) -> Option<&str> {
    object.annotation(annotation::REGISTRATION)
}

#[cfg(test)]
mod tests;
