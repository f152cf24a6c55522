//! The status of a machine: a projection of the snapshot and the decision.

use coordinator_api::conditions::{self, Finding, Reason, Truth, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::{
    BaremetalMachine, BaremetalMachineStatus, Initialization, LocalRef, MachineAddress, Phase,
};
use coordinator_api::names::annotation;
use jiff::Timestamp;
use kube::ResourceExt;
use proto::plan::Kind;

use super::{Decision, Failure, SecretRead, Snapshot, Trouble, Waiting, announced};
use crate::image_catalog::ImageError;
use crate::plan::Stored;
use crate::{cluster, plan};

/// The status that follows from a decision.
#[must_use]
pub fn status(snapshot: &Snapshot<'_>, decision: &Decision, now: Timestamp) -> BaremetalMachineStatus {
    let given = given(decision);
    let is_new = matches!(decision, Decision::Assign { .. });
    let waiting = given.map(works_on);
    let decision = waiting.as_ref().unwrap_or(decision);
    let machine = snapshot.machine;
    let mut status = machine.status.clone().unwrap_or_default();
    let paused = *decision == Decision::Wait(Waiting::Paused);
    let mut findings = vec![cluster::paused(paused)];
    if !paused {
        status.phase = Some(phase(decision));
        host(&mut status, snapshot.owned(), machine);
        if let Some(stored) = given {
            status.last_applied_plan_checksum = Some(stored.checksum.clone());
            findings.extend(inputs());
        }
        if let (true, SecretRead::Holds(data)) = (is_new, snapshot.bootstrap) {
            status.last_applied_bootstrap_hash = Some(plan::checksum(data.expose()));
        }
        findings.extend(steps(snapshot, decision));
        findings.push(ready(machine, decision));
    }
    conditions::apply(&mut status.conditions, &findings, machine.metadata.generation, now);
    status
}

/// The plan that is given to the host by a decision.
fn given(decision: &Decision) -> Option<&Stored> {
    match decision {
        Decision::Assign { stored, .. } | Decision::Announce { stored, .. } => Some(stored),
        _ => None,
    }
}

/// What is seen of a plan that was just given: the same as a moment later, or
/// each plan would cost a write more.
fn works_on(stored: &Stored) -> Decision {
    let plan = stored.plan.id.to_string();
    Decision::Wait(match stored.plan.kind {
        Kind::Clean => Waiting::Clean { plan, trouble: None },
        Kind::Reprovision | Kind::Custom => Waiting::Reprovision { plan, trouble: None },
    })
}

/// What a plan was made of was there.
fn inputs() -> [Finding; 2] {
    [Type::BootstrapReady, Type::ImageResolved].map(|kind| Finding::holds(kind, Reason::Available, ""))
}

fn host(
    status: &mut BaremetalMachineStatus,
    inventory: Option<&MachineInventory>,
    machine: &BaremetalMachine,
) {
    let provided = machine.spec.provider_id.is_some();
    status.provider_id.clone_from(&machine.spec.provider_id);
    // Never false again: Cluster API takes it as a one-way door.
    status.ready |= provided;
    if status.ready {
        status.initialization = Some(Initialization { provisioned: Some(true) });
    }
    status.machine_inventory_ref = inventory.map(|inventory| LocalRef { name: inventory.name_any() });
    let Some(inventory) = inventory else {
        return;
    };
    let secret =
        inventory.plan().and_then(|plan| plan.secret_ref.as_ref()).and_then(|secret| secret.name.clone());
    status.plan_secret_ref = secret.map(|name| LocalRef { name });
    if let Some(plan) = announced(inventory, machine) {
        status.last_applied_plan_checksum.clone_from(&plan.checksum);
    }
    if provided {
        status.addresses = addresses(inventory);
    }
}

fn addresses(inventory: &MachineInventory) -> Vec<MachineAddress> {
    let Some(host) = inventory.status.as_ref().and_then(|status| status.host.as_ref()) else {
        return vec![];
    };
    let ips = host.addresses.iter().map(|address| ("InternalIP", address));
    let names = std::iter::once(("Hostname", &host.hostname)).filter(|(_, name)| !name.is_empty());
    ips.chain(names)
        .map(|(kind, address)| MachineAddress { kind: kind.to_owned(), address: address.clone() })
        .collect()
}

fn phase(decision: &Decision) -> Phase {
    match decision {
        Decision::Fail(_) => Phase::Failed,
        Decision::Choose { .. }
        | Decision::Claim { .. }
        | Decision::Wait(Waiting::Owner | Waiting::Paused | Waiting::Pool { .. } | Waiting::Member { .. }) => {
            Phase::Pending
        }
        Decision::Wait(Waiting::BootstrapName | Waiting::BootstrapSecret { .. }) => Phase::Allocated,
        Decision::Wait(Waiting::Reprovision { .. }) => Phase::Reprovisioning,
        Decision::Provide { .. } | Decision::Rest => Phase::Running,
        Decision::Assign { .. }
        | Decision::Announce { .. }
        | Decision::Wait(Waiting::Clean { .. })
        | Decision::Release { .. }
        | Decision::Abandon { .. }
        | Decision::RemoveFinalizer => Phase::Preparing,
    }
}

fn ready(machine: &BaremetalMachine, decision: &Decision) -> Finding {
    match decision {
        Decision::Rest if machine.spec.provider_id.is_some() => {
            Finding::holds(Type::Ready, Reason::Running, "")
        }
        Decision::Wait(waiting) => {
            let (_, reason, message) = waited(waiting);
            Finding::fails(Type::Ready, reason, message)
        }
        Decision::Fail(failure) => {
            let (_, reason, message) = failed(failure);
            Finding::fails(Type::Ready, reason, message)
        }
        Decision::Choose { .. } | Decision::Claim { .. } => {
            Finding::fails(Type::Ready, Reason::Available, "a host is being claimed")
        }
        // Nobody sees these: a plan that is given is seen as the wait for it, and
        // after the others the next look shows what came of them.
        Decision::Assign { .. }
        | Decision::Announce { .. }
        | Decision::Rest
        | Decision::Provide { .. }
        | Decision::Release { .. }
        | Decision::Abandon { .. }
        | Decision::RemoveFinalizer => {
            Finding::fails(Type::Ready, Reason::Cleaning, "the host is being given back")
        }
    }
}

/// Every condition but Ready and Paused. What lies before the decision holds,
/// what the decision names does not; nothing is said of what lies after it.
fn steps(snapshot: &Snapshot<'_>, decision: &Decision) -> Vec<Finding> {
    let mut findings = vec![];
    if let Some(inventory) = snapshot.owned() {
        let message = format!("MachineInventory {}", inventory.name_any());
        findings.push(Finding::holds(Type::InventoryAllocated, Reason::Allocated, message));
        if let Some(plan) = announced(inventory, snapshot.machine) {
            findings.extend(inputs());
            if plan.state == Some(coordinator_api::inventory::PlanState::Applied) {
                findings.push(Finding::holds(Type::PlanApplied, Reason::PlanApplied, ""));
            }
        }
    }
    let (kind, reason, message) = match decision {
        Decision::Wait(waiting) => waited(waiting),
        Decision::Fail(failure) => failed(failure),
        Decision::Choose { .. }
        | Decision::Claim { .. }
        | Decision::Assign { .. }
        | Decision::Announce { .. }
        | Decision::Provide { .. }
        | Decision::Release { .. }
        | Decision::Abandon { .. }
        | Decision::RemoveFinalizer
        | Decision::Rest => return findings,
    };
    if kind != Type::Ready {
        findings.retain(|finding| finding.kind != kind);
        findings.push(Finding { kind, truth: Truth::False, reason, message });
    }
    findings
}

fn waited(waiting: &Waiting) -> (Type, Reason, String) {
    match waiting {
        Waiting::Owner => {
            (Type::Ready, Reason::OwnerWaiting, "no Cluster API Machine owns this object yet: Cluster API sets the owner; create a MachineDeployment, not this object".to_owned())
        }
        Waiting::Paused => (Type::Paused, Reason::Paused, String::new()),
        Waiting::Pool { name } => (
            Type::InventoryAllocated,
            Reason::PoolMissing,
            format!("no MachineInventoryPool {name} in this namespace: create it, or correct the template"),
        ),
        Waiting::Member { pool, excluded } => (
            Type::InventoryAllocated,
            Reason::PoolExhausted,
            format!("no member of MachineInventoryPool {pool} is free: {excluded}"),
        ),
        Waiting::BootstrapName => (
            Type::BootstrapReady,
            Reason::BootstrapWaiting,
            "the Machine has no spec.bootstrap.dataSecretName yet: wait for its bootstrap provider, or set it".to_owned(),
        ),
        Waiting::BootstrapSecret { name } => (
            Type::BootstrapReady,
            Reason::BootstrapWaiting,
            format!("Secret {name} with the bootstrap data is missing or has no key value: create it"),
        ),
        Waiting::Reprovision { plan, trouble } => working(plan, trouble.as_ref(), Reason::PlanRunning, ""),
        Waiting::Clean { plan, trouble } => working(plan, trouble.as_ref(), Reason::Cleaning, ABANDON),
    }
}

/// What a person can do where the host will never come back.
const ABANDON: &str = "; if the host is dead, switch it off for good, then set the annotation baremetal.cluster.io/release-without-clean on this object";

fn working(
    plan: &str,
    trouble: Option<&Trouble>,
    reason: Reason,
    way_out: &'static str,
) -> (Type, Reason, String) {
    let Some(trouble) = trouble else {
        return (Type::PlanApplied, reason, format!("the host works on plan {plan}"));
    };
    let message = format!("plan {plan} does not get on: {}{way_out}", trouble.message);
    (Type::PlanApplied, trouble.reason, message)
}

fn failed(failure: &Failure) -> (Type, Reason, String) {
    match failure {
        Failure::Version => (
            Type::ImageResolved,
            Reason::VersionMissing,
            "the Machine has no spec.version: set it on the MachineDeployment or control plane".to_owned(),
        ),
        Failure::Image(error) => (Type::ImageResolved, image(error), error.to_string()),
        Failure::Bootstrap(message) | Failure::Unplannable(message) => {
            (Type::BootstrapReady, Reason::BootstrapInvalid, message.clone())
        }
        Failure::Network(message) => (Type::BootstrapReady, Reason::NetworkInvalid, message.clone()),
        Failure::Plan { message } => (
            Type::PlanApplied,
            Reason::PlanFailed,
            format!(
                "{message}; mend the host, then delete the Machine; while it is being deleted, the annotation {} on this object has the host cleaned once more",
                annotation::RETRY_PLAN
            ),
        ),
        Failure::PoolOfOtherCluster { pool, cluster } => (
            Type::InventoryAllocated,
            Reason::PoolOfOtherCluster,
            format!(
                "MachineInventoryPool {pool} is for Cluster {cluster}: name another pool in the template, or correct spec.clusterName of the pool"
            ),
        ),
        Failure::InventoryLost { name } => (
            Type::InventoryAllocated,
            Reason::InventoryMissing,
            format!(
                "MachineInventory {name} is gone or has another owner; the host is left as it is: restore it, or delete this Machine"
            ),
        ),
    }
}

fn image(error: &ImageError) -> Reason {
    match error {
        ImageError::RegistryMissing { .. } => Reason::ImageRegistryMissing,
        ImageError::Miss { .. } | ImageError::Invalid { .. } => Reason::ImageCatalogMiss,
    }
}
