//! What the messages of a host make of the status of its inventory: status in,
//! status out. Whoever writes it compares first, so that a host that says the
//! same again costs nothing.

use coordinator_api::conditions::{self, Finding, Reason, Truth, Type};
use coordinator_api::inventory::{
    HostStatus, MachineInventory, MachineInventoryStatus, PlanState, PlanStatus,
};
use coordinator_api::names::plan_secret;
use coordinator_api::network::ObservedNetwork;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use proto::v1alpha1::{
    BootMode, InstallDone, InstallFailed, InstallReport, InstallStarted, InstallWaiting,
    LiveBootAfterInstall, SystemState, install_report,
};

use crate::plan;

/// The first words of a host on a stream.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The system as it runs.
    pub system: &'a SystemState,
    /// Version of the agent.
    pub agent_version: &'a str,
    /// Newest plan of its journal.
    pub generation: u64,
}

/// How a plan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Proven done.
    Applied,
    /// Not done.
    Failed {
        /// Cause and next action.
        message: String,
    },
}

fn status(inventory: &MachineInventory) -> MachineInventoryStatus {
    inventory.status.clone().unwrap_or_default()
}

/// Writes conditions, at the generation of the object.
fn find(
    mut status: MachineInventoryStatus,
    inventory: &MachineInventory,
    findings: &[Finding],
    now: Timestamp,
) -> MachineInventoryStatus {
    conditions::apply(&mut status.conditions, findings, inventory.metadata.generation, now);
    status
}

/// Whether a condition has that reason.
fn because(inventory: &MachineInventory, kind: Type, reason: Reason) -> bool {
    conditions::find(inventory.conditions(), kind)
        .is_some_and(|condition| condition.reason == reason.as_str())
}

/// Ready, as a host that is there has it: the state of its newest plan.
fn ready(plan: Option<&PlanStatus>) -> Finding {
    let message = plan.and_then(|plan| plan.message.clone()).unwrap_or_default();
    match plan.and_then(|plan| plan.state) {
        Some(PlanState::Applied) => Finding::holds(Type::Ready, Reason::PlanSuccessfullyApplied, message),
        Some(PlanState::Failed) => Finding::fails(Type::Ready, Reason::PlanFailure, message),
        None => Finding::fails(Type::Ready, Reason::WaitingForPlan, "the host works on its plan"),
    }
}

/// The host registered, and its plan Secret is there.
#[must_use]
pub fn registered(
    inventory: &MachineInventory,
    secret: ObjectReference,
    now: Timestamp,
) -> MachineInventoryStatus {
    let mut status = status(inventory);
    status.plan.get_or_insert_default().secret_ref = Some(secret);
    if conditions::find(&status.conditions, Type::Installed).is_some() {
        return status;
    }
    let message = "the host has registered and is being installed";
    let findings = [
        Finding::fails(Type::Ready, Reason::WaitingForPlan, message),
        Finding::fails(Type::Installed, Reason::Installing, message),
    ];
    find(status, inventory, &findings, now)
}

/// The installed system attached. A host without a plan has nothing to do, and
/// has done it: upstream shows the empty plan as applied.
#[must_use]
pub fn attached(
    inventory: &MachineInventory,
    arrival: Arrival<'_>,
    now: Timestamp,
) -> MachineInventoryStatus {
    let mut status = status(inventory);
    let plan = status.plan.get_or_insert_default();
    if plan.generation.is_none() && plan.state.is_none() {
        plan.state = Some(PlanState::Applied);
        plan.checksum = Some(plan::checksum(plan_secret::EMPTY.as_bytes()));
    }
    let ready = ready(status.plan.as_ref());
    status.host = Some(HostStatus {
        agent_version: arrival.agent_version.to_owned(),
        generation: i64::try_from(arrival.generation).unwrap_or(i64::MAX),
        ..host(arrival.system)
    });
    let installed = Finding::holds(Type::Installed, Reason::InstallDone, "");
    find(status, inventory, &[installed, ready], now)
}

fn host(system: &SystemState) -> HostStatus {
    HostStatus {
        boot_id: system.boot_id.clone(),
        image: system.image.clone(),
        boot_mode: match system.boot_mode() {
            BootMode::Unspecified => "",
            BootMode::Live => "live",
            BootMode::Active => "active",
            BootMode::Passive => "passive",
            BootMode::Recovery => "recovery",
        }
        .to_owned(),
        hostname: system.hostname.clone(),
        addresses: system.addresses.clone(),
        ..HostStatus::default()
    }
}

/// The system as it runs now, told by the same agent.
fn refreshed(old: Option<HostStatus>, system: &SystemState) -> HostStatus {
    let old = old.unwrap_or_default();
    HostStatus { agent_version: old.agent_version, generation: old.generation, ..host(system) }
}

/// The host told how its installation goes.
#[must_use]
pub fn install(
    inventory: &MachineInventory,
    report: &InstallReport,
    now: Timestamp,
) -> MachineInventoryStatus {
    use install_report::Outcome;
    let fails = |reason, message: String| Finding::fails(Type::Installed, reason, message);
    let finding = match &report.outcome {
        None => return status(inventory),
        Some(Outcome::Waiting(InstallWaiting { message })) => fails(Reason::InstallWaiting, message.clone()),
        Some(Outcome::Started(InstallStarted { device })) => {
            fails(Reason::Installing, format!("installing to {device}"))
        }
        Some(Outcome::Done(InstallDone { device, image })) => fails(
            Reason::InstallDone,
            format!("installed {image} to {device}; waiting for the host to boot from it"),
        ),
        Some(Outcome::Failed(InstallFailed { message, .. })) => fails(Reason::InstallFailed, message.clone()),
        Some(Outcome::LiveBootAfterInstall(LiveBootAfterInstall { device })) => {
            let message = format!(
                "a seed ISO was booted on this host, which is installed on {device}; the disk was left alone: remove the medium"
            );
            let reason = Reason::LiveBootAfterInstall;
            if has_attached(inventory) {
                Finding::holds(Type::Installed, reason, message)
            } else {
                fails(reason, message)
            }
        }
    };
    find(status(inventory), inventory, &[finding], now)
}

/// Whether the host has an installed system, so that its certificate may be
/// one for receiving plans.
#[must_use]
pub fn is_installed(inventory: &MachineInventory) -> bool {
    has_attached(inventory)
        || because(inventory, Type::Installed, Reason::InstallDone)
        || because(inventory, Type::Installed, Reason::LiveBootAfterInstall)
}

/// Whether the installed system has attached once: a live system on this host
/// is told to boot the disk.
#[must_use]
pub fn has_attached(inventory: &MachineInventory) -> bool {
    conditions::is_true(inventory.conditions(), Type::Installed)
}

/// The newest plan ended.
#[must_use]
pub fn ended(
    inventory: &MachineInventory,
    checksum: &str,
    (end, system): (&End, Option<&SystemState>),
    now: Timestamp,
) -> MachineInventoryStatus {
    let mut status = status(inventory);
    let plan = status.plan.get_or_insert_default();
    plan.checksum = Some(checksum.to_owned());
    (plan.state, plan.message) = match end {
        End::Applied => (Some(PlanState::Applied), None),
        End::Failed { message } => (Some(PlanState::Failed), Some(message.clone())),
    };
    let generation = plan.generation.unwrap_or_default();
    let ready = ready(status.plan.as_ref());
    if let Some(system) = system {
        status.host = Some(refreshed(status.host.take(), system));
    }
    if let Some(host) = &mut status.host {
        host.generation = host.generation.max(generation);
    }
    find(status, inventory, &[ready], now)
}

/// The host told how its system runs now, and nothing of its network.
#[must_use]
pub fn seen(inventory: &MachineInventory, system: Option<&SystemState>) -> MachineInventoryStatus {
    let mut status = status(inventory);
    if let Some(system) = system {
        status.host = Some(refreshed(status.host.take(), system));
    }
    status
}

/// The host told its network; `drift` says how it differs from the intended.
#[must_use]
pub fn observed(
    inventory: &MachineInventory,
    network: ObservedNetwork,
    drift: Option<String>,
    system: Option<&SystemState>,
    now: Timestamp,
) -> MachineInventoryStatus {
    let mut status = seen(inventory, system);
    status.observed_network = Some(network);
    let finding = match drift {
        Some(message) => Finding::holds(Type::NetworkDrift, Reason::NetworkChanged, message),
        None => Finding::fails(Type::NetworkDrift, Reason::NetworkAsIntended, ""),
    };
    find(status, inventory, &[finding], now)
}

/// The host has not been heard of for the whole grace.
#[must_use]
pub fn unreachable(inventory: &MachineInventory, now: Timestamp) -> MachineInventoryStatus {
    let finding = Finding {
        kind: Type::Ready,
        truth: Truth::Unknown,
        reason: Reason::HostUnreachable,
        message:
            "the host has no connection to the coordinator: look at its power, its network and its console"
                .to_owned(),
    };
    find(status(inventory), inventory, &[finding], now)
}

/// Whether the host is shown as not heard of.
#[must_use]
pub fn is_unreachable(inventory: &MachineInventory) -> bool {
    because(inventory, Type::Ready, Reason::HostUnreachable)
}

/// Two live hosts claim the identity of this inventory.
#[must_use]
pub fn duplicate(inventory: &MachineInventory, boots: [&str; 2], now: Timestamp) -> MachineInventoryStatus {
    let [one, other] = boots;
    let message = format!(
        "two running systems (boot ids {one} and {other}) hold the identity of this host: switch one off, install it anew, then remove the annotation {}",
        coordinator_api::names::annotation::QUARANTINED
    );
    let finding = Finding::fails(Type::Ready, Reason::DuplicateIdentity, message);
    find(status(inventory), inventory, &[finding], now)
}

/// The plan Secret cannot be streamed.
#[must_use]
pub fn plan_unusable(
    inventory: &MachineInventory,
    reason: Reason,
    message: String,
    now: Timestamp,
) -> MachineInventoryStatus {
    find(status(inventory), inventory, &[Finding::fails(Type::Ready, reason, message)], now)
}

#[cfg(test)]
mod tests;
