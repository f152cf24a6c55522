//! Changes of the stored facts of a host: reports, announcements and observations
//! go into the status here, and nowhere else.

mod plan;

use std::collections::BTreeMap;
use std::net::IpAddr;

use coordinator_api::conditions::join_text;
use coordinator_api::hardware::HardwareStatus;
use coordinator_api::inventory::{
    AgentUpdateStatus, CarriedStatus, CoordinatorSettingsState, CoordinatorStatus, HostStatus, InstallState,
    InstallStatus, LiveTpm, LoadBalancerDuty, LoadBalancerReport, MachineInventoryStatus, PlanState,
    PlanStatus, PlanType, SessionStatus,
};
use coordinator_api::network::ObservedNetwork;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proto::v1alpha1::{
    BootMode, BootOrderRefused, InstallDone, InstallFailed, InstallReport, InstallStarted, InstallWaiting,
    LiveBootAfterInstall, LoadBalancerState, SystemState, install_report,
};

use super::certified::{ShownKey, record_key};
use super::statement::HostStatement;
use crate::text::truncate_text;
use plan::{keep_custom_plan, restore_plan};
pub use plan::{record_announcement, record_plan_end, record_plan_problem, record_step};

/// Most addresses that a host can put into a status.
const ADDRESSES: usize = 64;
/// Most things that former tenants left, of each kind.
const LEFT: usize = 16;
/// Most paths that a status keeps.
const KEPT_PATHS: usize = 64;

/// The part of a registration that the status keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registered<'a> {
    /// Empty when the installed system registered again.
    pub live_boot_id: &'a str,
    /// The TPM that holds the identity, if one does.
    pub live_tpm: Option<&'a LiveTpm>,
    /// The key of the certificate that it gets.
    pub key: Option<ShownKey<'a>>,
    /// SMBIOS UUID, where it means something.
    pub system_uuid: Option<&'a str>,
    pub hardware: Option<&'a HardwareStatus>,
}

/// The host registered, and the Secret of its plan record exists.
pub fn record_registration(
    status: &mut MachineInventoryStatus,
    secret: ObjectReference,
    registration: Registered<'_>,
) {
    status.plan.get_or_insert_default().secret_ref = Some(secret);
    let registered = InstallStatus {
        state: InstallState::Registered,
        device: String::new(),
        image: String::new(),
        message: String::new(),
        boot_order_refused: String::new(),
    };
    let host = status.host.get_or_insert_default();
    host.install.get_or_insert(registered);
    if !registration.live_boot_id.is_empty() {
        host.live_boot_id = Some(registration.live_boot_id.to_owned());
        host.live_tpm = registration.live_tpm.cloned();
    }
    if let Some(uuid) = registration.system_uuid {
        host.system_uuid = Some(truncate_text(uuid));
    }
    record_hardware(host, registration.hardware);
    if let Some(key) = registration.key {
        record_key(status, key);
    }
}

/// A host that reports no hardware keeps the known one.
fn record_hardware(host: &mut HostStatus, hardware: Option<&HardwareStatus>) {
    if let Some(hardware) = hardware {
        host.hardware = Some(hardware.clone());
    }
}

/// A duty for the cluster's load balancer; the host's stream brings it. The report of
/// the former one stays until the host reports again.
pub fn record_duty(status: &mut MachineInventoryStatus, duty: &LoadBalancerDuty) {
    let host = status.host.get_or_insert_default();
    host.load_balancer.get_or_insert_default().duty = duty.clone();
}

/// How far the host is with its duty. A report of a duty that is not announced
/// is one of before a restore: the next duty has a higher generation.
pub fn record_load_balancer(status: &mut MachineInventoryStatus, state: &LoadBalancerState) {
    let Ok(generation) = i64::try_from(state.generation) else { return };
    let host = status.host.get_or_insert_default();
    if let Some(carried) = &mut host.carried {
        carried.load_balancer_generation = carried.load_balancer_generation.max(generation);
    }
    let Some(known) = &mut host.load_balancer else { return };
    let message = state
        .failure
        .as_ref()
        .map(|failure| truncate_text(&join_text(&failure.message, &failure.next_action)));
    known.state = Some(LoadBalancerReport {
        generation,
        interface: truncate_text(&state.interface),
        is_holder: state.is_holder,
        spreads: state.spreads,
        message: message.unwrap_or_default(),
    });
}

/// A stream that opens, and the statement of the host on it.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// Namespace and name of the inventory; its plan Secret has the same.
    pub namespace: &'a str,
    pub name: &'a str,
    /// The process that serves the stream.
    pub replica: &'a str,
    pub statement: &'a HostStatement,
    pub hardware: Option<&'a HardwareStatus>,
    /// `None` where its agent is older: a report follows.
    pub network: Option<&'a ObservedNetwork>,
    /// The labels that its inventory keeps; `None` if the host stated no facts.
    pub stale_labels: Option<&'a BTreeMap<String, String>>,
    /// The state of its settings, if it is known, and the checksum that is shown.
    pub settings: Option<(CoordinatorSettingsState, &'a str)>,
    pub now: Timestamp,
}

/// The installed system attached. Its statement fills gaps of the status: a plan that
/// was lost with the status is announced again.
pub fn record_attach(status: &mut MachineInventoryStatus, attach: Attach<'_>) {
    let HostStatement { system, agent_version, carried, installed, settings: _, agent_update: _ } =
        attach.statement;
    let host = status.host.get_or_insert_default();
    record_running_system(host, system);
    host.agent_version = truncate_text(agent_version);
    record_hardware(host, attach.hardware);
    if let Some(stale) = attach.stale_labels {
        host.stale_labels.clone_from(stale);
    }
    if let Some((state, checksum)) = attach.settings {
        host.coordinator = Some(settings_status(state, checksum, ""));
    }
    let is_same = host.session.as_ref().is_some_and(|session| {
        session.ended.is_none() && session.replica == attach.replica && session.boot_id == system.boot_id
    });
    if !is_same {
        host.session = Some(SessionStatus {
            replica: attach.replica.to_owned(),
            boot_id: system.boot_id.clone(),
            since: Time(attach.now),
            ended: None,
        });
    }
    if let Some(InstallDone { device, image }) = installed {
        let known = host.install.take();
        host.install = Some(InstallStatus {
            state: InstallState::Installed,
            device: truncate_text(device),
            image: truncate_text(image),
            message: String::new(),
            // The installed system says nothing about the order.
            boot_order_refused: known.map(|known| known.boot_order_refused).unwrap_or_default(),
        });
    }
    let plan = status.plan.get_or_insert_default();
    plan.secret_ref.get_or_insert_with(|| ObjectReference {
        name: Some(attach.name.to_owned()),
        namespace: Some(attach.namespace.to_owned()),
        ..ObjectReference::default()
    });
    restore_plan(plan, carried.plan.as_ref(), attach.now);
    keep_custom_plan(status);
    if !is_overtaken(status, carried) {
        status.host.get_or_insert_default().carried = Some(carried.clone());
    }
    if let Some(network) = attach.network {
        record_observed_network(status, network);
    }
}

/// True if the statement is older than the end of its plan: the host may report that before its
/// attach is recorded.
fn is_overtaken(status: &MachineInventoryStatus, stated: &CarriedStatus) -> bool {
    let known = status.host.as_ref().and_then(|host| host.carried.as_ref()?.plan.as_ref());
    known.zip(stated.plan.as_ref()).is_some_and(|(known, stated)| {
        let is_same = known.id == stated.id && known.generation == stated.generation;
        is_same && known.state.is_some() && stated.state.is_none()
    })
}

/// How far the host is with the settings of the coordinator.
pub fn record_settings(
    status: &mut MachineInventoryStatus,
    state: CoordinatorSettingsState,
    checksum: &str,
    message: &str,
) {
    status.host.get_or_insert_default().coordinator = Some(settings_status(state, checksum, message));
}

/// How far the host is with the agent that an operator asks for.
pub fn record_agent_update(status: &mut MachineInventoryStatus, update: &AgentUpdateStatus) {
    let message = truncate_text(&update.message);
    status.host.get_or_insert_default().agent_update = Some(AgentUpdateStatus { message, ..update.clone() });
}

fn settings_status(state: CoordinatorSettingsState, checksum: &str, message: &str) -> CoordinatorStatus {
    CoordinatorStatus { checksum: checksum.to_owned(), state, message: truncate_text(message) }
}

/// A stream ended, or its replica did. The session of another replica stays.
pub fn record_session_end(status: &mut MachineInventoryStatus, replica: &str, ended: Timestamp) {
    let session = status.host.as_mut().and_then(|host| host.session.as_mut());
    if let Some(session) = session
        && session.replica == replica
        && session.ended.is_none()
    {
        session.ended = Some(Time(ended));
    }
}

/// The host reported its running system.
pub fn record_system(status: &mut MachineInventoryStatus, system: &SystemState) {
    record_running_system(status.host.get_or_insert_default(), system);
}

/// The host reported its network.
pub fn record_observed_network(status: &mut MachineInventoryStatus, network: &ObservedNetwork) {
    status.observed_network = Some(network.clone());
}

fn record_running_system(host: &mut HostStatus, system: &SystemState) {
    host.image = truncate_text(&system.image);
    let boot_mode = match system.boot_mode() {
        BootMode::Unspecified => "",
        BootMode::Live => "live",
        BootMode::Active => "active",
        BootMode::Passive => "passive",
        BootMode::Recovery => "recovery",
    };
    boot_mode.clone_into(&mut host.boot_mode);
    host.snapshot = (system.snapshot > 0).then_some(i64::from(system.snapshot));
    host.hostname = if is_dns_name(&system.hostname) { system.hostname.clone() } else { String::new() };
    let addresses = system.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
    host.addresses = addresses.take(ADDRESSES).map(|address| address.to_string()).collect();
    host.left_in_kernel = bound_items(&system.left_in_kernel);
    host.left_behind = bound_items(&system.left_behind);
    let kept = system.kept_paths.iter().filter(|path| path.starts_with('/')).take(KEPT_PATHS);
    host.kept_paths = kept.map(|path| truncate_text(path)).collect();
    host.state_failure = (!system.state_failure.is_empty()).then(|| truncate_text(&system.state_failure));
}

fn bound_items(items: &[String]) -> Vec<String> {
    items.iter().take(LEFT).map(|item| truncate_text(item)).collect()
}

/// The system of the host is written over: its node is gone with it, and an
/// interrupted install begins again.
pub fn record_reinstall(status: &mut MachineInventoryStatus) {
    status.host.get_or_insert_default().carried = None;
    // The system that a plan of an operator failed on is gone.
    if let Some(plan) = &mut status.plan
        && plan.kind == Some(PlanType::Custom)
        && plan.state == Some(PlanState::Failed)
    {
        let secret_ref = plan.secret_ref.take();
        let generation = plan.generation;
        *plan =
            PlanStatus { secret_ref, generation, state: Some(PlanState::Applied), ..PlanStatus::default() };
    }
}

/// The live system reported the state of the install.
pub fn record_install(status: &mut MachineInventoryStatus, report: &InstallReport, now: Timestamp) {
    use install_report::Outcome;
    let known = status.host.as_ref().and_then(|host| host.install.clone());
    let image = known.map(|install| install.image).unwrap_or_default();
    let (state, device, image, message) = match &report.outcome {
        None => return,
        Some(Outcome::BootOrderRefused(BootOrderRefused { message })) => {
            if let Some(install) = status.host.as_mut().and_then(|host| host.install.as_mut()) {
                install.boot_order_refused = truncate_text(message);
            }
            return;
        }
        Some(Outcome::Waiting(InstallWaiting { message, next_action })) => {
            (InstallState::Waiting, "", "", join_text(message, next_action))
        }
        Some(Outcome::Started(InstallStarted { device, attempt })) => {
            // By this clock: that of a live system may be wrong.
            let since = now.strftime("since %Y-%m-%dT%H:%M:%SZ");
            (InstallState::Installing, device.as_str(), "", format!("attempt {attempt}, {since}"))
        }
        Some(Outcome::Done(InstallDone { device, image })) => {
            (InstallState::Installed, device.as_str(), image.as_str(), String::new())
        }
        Some(Outcome::Failed(InstallFailed { message, next_action })) => {
            (InstallState::Failed, "", "", join_text(message, next_action))
        }
        Some(Outcome::LiveBootAfterInstall(LiveBootAfterInstall { device })) => {
            (InstallState::LiveBootAfterInstall, device.as_str(), image.as_str(), String::new())
        }
    };
    let install = InstallStatus {
        state,
        device: truncate_text(device),
        image: truncate_text(image),
        message: truncate_text(&message),
        boot_order_refused: String::new(),
    };
    status.host.get_or_insert_default().install = Some(install);
}

/// Labels of letters, digits and dashes, separated by dots.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let mut labels = text.split('.');
    text.len() <= 253
        && labels.all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}
