//! The line of a host.

use clap::ValueEnum;
use coordinator_api::conditions::Type;
use coordinator_api::explain::Attention;
use coordinator_api::inventory::{PlanState, PlanType};
use coordinator_core::host::HostRecord;
use jiff::Timestamp;
use proto::refusal::Refusal;
use serde::Serialize;

use crate::fleet::{Fleet, Kind, Object, holders_of};
use crate::why::{Finding, find};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ValueEnum, strum::IntoStaticStr,
)]
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostRow {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) state: HostState,
    pub(crate) attention: Attention,
    /// Empty for a host that is as intended, like `cause` and `action`.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The message, or the cause of the reason if the message is empty.
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
    let (cluster, machine) = match &record.claim {
        Some(claim) if claim.machine.is_empty() => (claim.cluster.clone(), claim.baremetal_machine.clone()),
        Some(claim) => (claim.cluster.clone(), claim.machine.clone()),
        None => (String::new(), String::new()),
    };
    let identity = object.condition(Type::IdentityVerified.as_str());
    let mut row = HostRow {
        namespace: record.namespace.clone(),
        name: record.name.to_string(),
        state: find_state(&record, now),
        attention: finding.attention,
        reason: String::new(),
        cause: String::new(),
        action: String::new(),
        message: finding.message.clone(),
        pool: record.pool.clone().unwrap_or_default(),
        cluster,
        machine,
        created: object.created(),
        image: host.image,
        boot_mode: host.boot_mode,
        addresses: host.addresses,
        identity: identity.map(|condition| condition.reason).unwrap_or_default(),
        plan: plan_of(object),
    };
    if finding.attention != Attention::None {
        row.cause = finding.told_cause();
        row.action = finding.action(at);
        row.reason = finding.reason;
    }
    Some(row)
}

/// The finding of the host, or that of its machine if the host is as intended; and the object
/// that it is about.
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
    let holders = holders_of(record).into_iter().filter(|id| kinds.contains(&id.kind));
    let holders = holders.filter_map(|id| fleet.get(&id));
    let mut found = holders.map(|holder| (find(fleet, holder, false, now), holder));
    found.find(|(finding, _)| finding.attention != Attention::None).unwrap_or((own, object))
}

fn plan_of(object: &Object) -> String {
    let plan = &object.status()["plan"];
    let Some(kind) = plan["type"].as_str() else { return String::new() };
    let state = plan["state"].as_str().or(plan["step"]["name"].as_str()).unwrap_or("running");
    format!("{kind} {}: {state}", plan["generation"])
}

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
        _ if record.is_abandoned => HostState::Unavailable,
        _ if record.claim.is_some() => {
            let is_node = record.carried_node().is_some() && record.claimed_plan().is_some();
            if is_node { HostState::Running } else { HostState::Allocated }
        }
        _ if record.carried_node().is_some() => HostState::Unavailable,
        _ => HostState::Available,
    }
}

#[cfg(test)]
mod tests;
