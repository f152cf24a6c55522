//! The conditions of a `MachineInventory`: a projection of its stored facts.

use coordinator_api::conditions::{
    self, ConditionUpdate, Reason, Type, condition_false, condition_true, condition_unknown, fields_ignored,
};
use coordinator_api::inventory::{
    AgentUpdateState, Approval, CoordinatorSettingsState, InstallState, InstallStatus, KeyClass,
    MachineInventory, MachineInventorySpec, PlanState, PlanType,
};
use coordinator_api::names::annotation;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::HostRecord;
use crate::network;
use crate::pause;
use crate::problem::Problem;

/// Conditions that do not follow from the stored facts.
pub enum Told {
    /// The conditions of the controller stay, because the writer does not know their causes.
    Kept,
    /// The controller decided anew.
    Decided(Vec<ConditionUpdate>),
}

/// The controller told the reason, and no stored fact has it.
fn is_told(record: &HostRecord, reason: &str) -> bool {
    (reason == Reason::OwnerMissing.as_str() && record.claim.is_some())
        || reason == Reason::ApiRequestFailed.as_str()
}

/// Sets the conditions that follow from the stored facts of `inventory`, and those that were told.
pub fn project_conditions(inventory: &mut MachineInventory, told: Told, now: Timestamp) {
    let Some(record) = HostRecord::parse(inventory) else { return };
    let stored = conditions::find_condition(inventory.conditions(), Type::Ready);
    let is_kept = stored.is_some_and(|ready| is_told(&record, &ready.reason));
    let mut updates = vec![ready_condition(&record, now), approved_condition(&record)];
    updates.extend(record.is_paused.then(|| pause::paused_condition(true)));
    updates.extend(record.install.as_ref().map(|install| installed_condition(&record, install)));
    updates.extend(record.install.as_ref().and_then(boot_order_condition));
    updates.extend(KeyClass::of(inventory).map(identity_condition));
    updates.extend(network_drift(inventory));
    updates.extend(network_incomplete(inventory));
    updates.extend(stale_condition(inventory));
    updates.extend(platform_condition(inventory));
    updates.extend(state_condition(inventory));
    updates.extend(journal_condition(inventory));
    updates.extend(coordinator_condition(inventory));
    updates.extend(agent_condition(inventory));
    let ignored = list_ignored(&inventory.spec);
    updates.extend((!ignored.is_empty()).then(|| fields_ignored(&ignored)));
    match told {
        Told::Kept => updates.retain(|update| !is_kept || update.kind != Type::Ready),
        Told::Decided(told) => {
            updates.retain(|update| told.iter().all(|told| told.kind != update.kind));
            updates.extend(told);
        }
    }
    let generation = inventory.metadata.generation;
    // Conditions of a pause, of requests, of fields without effect and of failures that are shown alone
    // are removed with their cause.
    let is_shown = |kind| updates.iter().any(|update| update.kind == kind);
    let requests = [
        (Type::Paused, record.is_paused),
        (Type::CustomPlanAccepted, record.custom_plan.is_some()),
        (
            Type::Rebooted,
            record.is_reboot_requested || record.rebooting_from.is_some() || record.needs_fresh_kernel(),
        ),
        (Type::AgentUpdated, inventory.wanted_agent().is_some()),
        (Type::StateWritable, is_shown(Type::StateWritable)),
        (Type::JournalReadable, is_shown(Type::JournalReadable)),
        (Type::FieldsIgnored, !ignored.is_empty()),
        (Type::NetworkIncomplete, is_shown(Type::NetworkIncomplete)),
        (Type::LabelsStale, is_shown(Type::LabelsStale)),
        (Type::PlatformSupported, is_shown(Type::PlatformSupported)),
        (Type::BootOrderSet, is_shown(Type::BootOrderSet)),
    ];
    let status = inventory.status.get_or_insert_default();
    status.conditions.retain(|condition| {
        !requests.iter().any(|(kind, is_made)| !is_made && kind.as_str() == condition.type_)
    });
    conditions::set_conditions(&mut status.conditions, &updates, generation, now);
}

/// Fields that are accepted for other operators' objects.
fn list_ignored(spec: &MachineInventorySpec) -> Vec<&'static str> {
    let fields = [
        ("spec.machineHash", spec.machine_hash.as_ref().is_some_and(|hash| !hash.is_empty())),
        ("spec.ipAddressClaims", !spec.ip_address_claims.is_empty()),
        ("spec.ipAddressPools", !spec.ip_address_pools.is_empty()),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect()
}

fn ready_condition(record: &HostRecord, now: Timestamp) -> ConditionUpdate {
    if let Some(problem) = record.find_problem(now) {
        return match problem.reason {
            Reason::HostUnreachable => problem.condition_unknown(Type::Ready),
            _ => problem.condition_false(Type::Ready),
        };
    }
    if record.carried.is_none() {
        return match &record.install {
            Some(_) => condition_false(
                Type::Ready,
                Reason::WaitingForPlan,
                "the host has registered and is being installed",
            ),
            None => condition_unknown(
                Type::Ready,
                Reason::HostStatementMissing,
                "waiting for the host to attach and state what it carries",
            ),
        };
    }
    if let Some(plan) = &record.plan {
        match plan.state {
            None => {
                return condition_false(Type::Ready, Reason::WaitingForPlan, "the host executes its plan");
            }
            Some(PlanState::Failed) => {
                let mut failure = Problem { reason: Reason::PlanFailure, ..plan.failure() };
                if record.is_abandoned && plan.kind == PlanType::Clean {
                    failure = failure.then_do(&format!(
                        "set the annotation {} on this object to have the host cleaned again",
                        annotation::RETRY_PLAN
                    ));
                }
                return failure.condition_false(Type::Ready);
            }
            Some(PlanState::Applied) => {}
        }
    }
    if record.is_abandoned {
        return condition_false(
            Type::Ready,
            Reason::Abandoned,
            "the host was released without a clean; it is cleaned when it attaches",
        );
    }
    left_condition(record).unwrap_or_else(|| condition_true(Type::Ready, Reason::PlanSuccessfullyApplied, ""))
}

/// The parts of a former node on a free host.
fn left_condition(record: &HostRecord) -> Option<ConditionUpdate> {
    if record.claim.is_none() && record.carried_node().is_some() {
        let message = "the host carries a node and no machine holds it";
        let owner = record.stated_owner();
        let of_owner = owner.map_or_else(String::new, |owner| format!(": it states the node of {owner}"));
        let condition = condition_false(Type::Ready, Reason::HostCarriesNode, format!("{message}{of_owner}"));
        return Some(condition.with_next_action(format!(
            "restore the machine and the owner annotations, or have the host cleaned by `kubectl baremetal clean {} --owner {}`",
            record.name,
            owner.unwrap_or("OWNER")
        )));
    }
    record.needs_fresh_kernel().then(|| {
        let left = record.left_in_kernel.join(", ");
        let message = format!("the former node left in the kernel: {left}; the host is rebooted once");
        condition_false(Type::Ready, Reason::KernelStateLeft, message)
    })
}

fn approved_condition(record: &HostRecord) -> ConditionUpdate {
    match record.approval {
        Approval::Automatic => condition_true(Type::Approved, Reason::ApprovedAutomatically, ""),
        Approval::Approved => condition_true(Type::Approved, Reason::ApprovedByOperator, ""),
        Approval::Pending => record.approval_pending().condition_false(Type::Approved),
        Approval::Revoked => record.approval_revoked().condition_false(Type::Approved),
    }
}

fn installed_condition(record: &HostRecord, install: &InstallStatus) -> ConditionUpdate {
    let has_attached = record.carried.is_some();
    let (reason, message) = match install.state {
        InstallState::Registered => {
            (Reason::Installing, "the host has registered and is being installed".to_owned())
        }
        InstallState::Waiting => (Reason::InstallWaiting, install.message.clone()),
        InstallState::Installing => {
            (Reason::Installing, format!("installing to {}, {}", install.device, install.message))
        }
        InstallState::Failed => (Reason::InstallFailed, install.message.clone()),
        InstallState::Installed if has_attached => {
            return condition_true(Type::Installed, Reason::InstallDone, "");
        }
        InstallState::Installed => {
            let (image, device) = (&install.image, &install.device);
            let message = format!("installed {image} to {device}; waiting for the host to boot from it");
            (Reason::InstallDone, message)
        }
        InstallState::LiveBootAfterInstall => return live_boot_condition(&install.device, has_attached),
    };
    condition_false(Type::Installed, reason, message)
}

fn live_boot_condition(device: &str, has_attached: bool) -> ConditionUpdate {
    let message = format!(
        "a seed ISO was booted on this host, which is installed on {device}; the disk was left alone"
    );
    let make_condition = if has_attached { condition_true } else { condition_false };
    make_condition(Type::Installed, Reason::LiveBootAfterInstall, message)
        .with_next_action("switch the host off, remove the medium, and switch it on")
}

/// Only a refusal is shown.
fn boot_order_condition(install: &InstallStatus) -> Option<ConditionUpdate> {
    let refused = Some(install.boot_order_refused.as_str()).filter(|refused| !refused.is_empty())?;
    let condition = condition_false(Type::BootOrderSet, Reason::BootOrderRefused, refused);
    Some(condition.with_next_action(
        "switch the host off, take the seed ISO out, switch it on; then put the disk first in the firmware's boot order",
    ))
}

/// Only gaps are shown. The host is used nevertheless: a distribution may have the parts that count.
fn platform_condition(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let gaps = &inventory.status.as_ref()?.host.as_ref()?.hardware.as_ref()?.below_minimum;
    if gaps.is_empty() {
        return None;
    }
    let condition = condition_false(Type::PlatformSupported, Reason::PlatformBelowMinimum, gaps.join("; "));
    Some(condition.with_next_action("build base ISO and OS image as docs/versions.md says"))
}

/// Only a failure is shown.
fn state_condition(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let failure = inventory.status.as_ref()?.host.as_ref()?.state_failure.as_ref()?;
    Some(condition_false(Type::StateWritable, Reason::StateUnwritable, failure.clone()))
}

/// Only a lost journal is shown.
fn journal_condition(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let lost = inventory.lost_journal()?;
    let command = format!(
        "if the host may run plans again, `kubectl annotate machineinventory {} {}={}`",
        inventory.name_any(),
        annotation::FORGET_JOURNAL,
        lost.checksum
    );
    let message = format!("the host refuses every plan: {}", lost.message);
    Some(condition_false(Type::JournalReadable, Reason::JournalLost, message).with_next_action(command))
}

fn coordinator_condition(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let known = inventory.status.as_ref()?.host.as_ref()?.coordinator.as_ref()?;
    Some(match known.state {
        CoordinatorSettingsState::Current => {
            condition_true(Type::CoordinatorKnown, Reason::SettingsCurrent, "")
        }
        CoordinatorSettingsState::Announced => condition_false(
            Type::CoordinatorKnown,
            Reason::SettingsAnnounced,
            "newer URL or authorities were sent to the host",
        )
        .with_next_action("wait until it has attached by them"),
        CoordinatorSettingsState::Refused => condition_false(
            Type::CoordinatorKnown,
            Reason::SettingsRefused,
            format!("the host keeps the former URL and authorities: {}", known.message),
        ),
    })
}

fn agent_condition(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let wanted = inventory.wanted_agent()?;
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    if host.is_some_and(|host| host.agent_version == wanted) {
        return Some(condition_true(Type::AgentUpdated, Reason::AgentAsWanted, ""));
    }
    let update = host.and_then(|host| host.agent_update.as_ref()).filter(|update| update.version == wanted);
    let (reason, message) = match update.map(|update| (update.state, update.message.as_str())) {
        None => (Reason::AgentUpdateWaiting, "waiting for the host to attach"),
        Some((AgentUpdateState::Waiting, message)) => (Reason::AgentUpdateWaiting, message),
        Some((AgentUpdateState::Sent, _)) => {
            (Reason::AgentUpdateSent, "the agent was announced to the host, which has not attached by it yet")
        }
        Some((AgentUpdateState::Failed, message)) => (Reason::AgentUpdateFailed, message),
        Some((AgentUpdateState::Unavailable, message)) => (Reason::AgentUpdateUnavailable, message),
    };
    Some(condition_false(Type::AgentUpdated, reason, message))
}

fn identity_condition(class: KeyClass) -> ConditionUpdate {
    match class {
        KeyClass::Hardware => condition_true(Type::IdentityVerified, Reason::Hardware, ""),
        KeyClass::Unverified => condition_false(
            Type::IdentityVerified,
            Reason::Unverified,
            "the identity is in a TPM that no CA vouches for",
        )
        .with_next_action(
            "to verify TPMs, create the Secret tpm-ca with the CA certificates of their vendors, and let the host register again",
        ),
        KeyClass::Emulated => condition_false(
            Type::IdentityVerified,
            Reason::Emulated,
            "the identity is a file on the host's disk, and a copy of it is this host",
        )
        .with_next_action(
            "to use the host's TPM, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
        ),
    }
}

fn network_drift(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let observed = inventory.status.as_ref()?.observed_network.as_ref()?;
    let intended = inventory.spec.observed_network.as_ref();
    Some(match intended.and_then(|intended| network::describe_drift(intended, observed)) {
        Some(message) => condition_true(Type::NetworkDrift, Reason::NetworkChanged, message),
        None => condition_false(Type::NetworkDrift, Reason::NetworkAsIntended, ""),
    })
}

/// An explicit network replaces the report, and nothing of it is lost.
fn network_incomplete(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let spec = &inventory.spec;
    let observed = spec.observed_network.as_ref()?;
    if observed.not_replayed.is_empty() || network::is_explicit(spec) {
        return None;
    }
    let message = format!("no plan replays these parts of the network: {}", observed.not_replayed.join("; "));
    Some(
        condition_true(Type::NetworkIncomplete, Reason::NetworkPartsNotReplayed, message)
            .with_next_action(
                "if the host needs them, give its network in spec.network; parameters of a bond need keyfiles and an image with NetworkManager",
            ),
    )
}

/// Bound of the labels in the message.
const NAMED: usize = 8;

/// Labels that an operator wrote meanwhile are not shown.
fn stale_condition(inventory: &MachineInventory) -> Option<ConditionUpdate> {
    let stale = &inventory.status.as_ref()?.host.as_ref()?.stale_labels;
    let stale = stale.iter().filter(|(key, text)| inventory.labels().get(*key) != Some(text));
    let stale: Vec<_> = stale.take(NAMED).map(|(key, text)| format!("{key}={text}")).collect();
    if stale.is_empty() {
        return None;
    }
    let labels = stale.join(" ");
    let message = format!("the MachineRegistration would give the host the labels {labels}");
    Some(condition_true(Type::LabelsStale, Reason::LabelsKept, message).with_next_action(format!(
        "if the host is to have them: `kubectl label --overwrite machineinventory {} {labels}`; else correct the MachineRegistration",
        inventory.name_any(),
    )))
}
