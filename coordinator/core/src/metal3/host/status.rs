//! The status of a `BareMetalHost`, a projection of its inventory.

use coordinator_api::conditions::{self, ConditionUpdate, Reason, Type, condition_false, condition_true};
use coordinator_api::hardware::HardwareStatus;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::Phase;
use coordinator_api::metal3::host::{BareMetalHost, BareMetalHostStatus, Cpu, Hardware, Nic, Storage};
use coordinator_api::metal3::names;
use coordinator_api::network::ObservedInterface;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::image::{resolve_wanted, wanted_image};
use super::{named_inventory, reboot, unsupported_fields};
use crate::assignment::State;
use crate::host::HostRecord;
use crate::pause;
use crate::pool::{Availability, host_availability};
use crate::problem::{Blocker, Severity};

/// Annotation that requests an inspection from Ironic.
const INSPECT: &str = "inspect.metal3.io";

/// The status. `state` belongs to the assignment of the host, if there is one.
pub fn project_status(
    host: &BareMetalHost,
    state: Option<&State>,
    updates: &[ConditionUpdate],
    inventory: Option<&MachineInventory>,
    now: Timestamp,
) -> BareMetalHostStatus {
    let before = host.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let record = inventory.and_then(HostRecord::parse);
    let blocker = state.and_then(|state| state.blocker.as_ref());
    if blocker.is_some_and(|blocker| blocker.condition == Type::Paused) {
        let shown = [pause::paused_condition(true)];
        conditions::set_conditions(&mut status.conditions, &shown, host.metadata.generation, now);
        return keep_unshown(host, status);
    }
    status.provisioning.state = choose_state(host, state, record.as_ref(), &before);
    status.provisioning.id = inventory.and_then(ResourceExt::uid).unwrap_or_default();
    status.provisioning.image = match status.provisioning.state.as_str() {
        "provisioning" | "provisioned" => wanted_image(host),
        "deprovisioning" => before.provisioning.image.clone(),
        _ => None,
    };
    // Who fences a node waits for the end of the power, which nothing tells of a host without a BMC.
    status.powered_on = record.is_some() || before.powered_on;
    status.hardware = inventory.map(list_hardware);
    let error = find_error(blocker, state, record.as_ref(), &status.provisioning.state, now);
    if error.is_some() && error.as_deref() != Some(before.error_message.as_str()) {
        status.error_count += 1;
    }
    status.error_type = error.as_ref().map(|_| error_type(&status.provisioning.state).to_owned());
    let operational = if error.is_some() { "error" } else { "OK" };
    operational.clone_into(&mut status.operational_status);
    if error.is_none() {
        status.error_count = 0;
    }
    let message = error.or_else(|| find_unshown(blocker, host.status.as_ref()));
    status.error_message = message.unwrap_or_default();
    let mut shown = vec![pause::paused_condition(false), ignored_condition(host)];
    shown.extend(updates.iter().cloned());
    let rebooted = reboot::project_reboot(host, record.as_ref(), now);
    if rebooted.is_none() {
        status.conditions.retain(|condition| condition.type_ != Type::Rebooted.as_str());
    }
    shown.extend(rebooted);
    if status.provisioning.state == "available" {
        // Conditions of the former node's plans end with the node.
        status
            .conditions
            .retain(|condition| shown.iter().any(|update| update.kind.as_str() == condition.type_));
    }
    conditions::set_conditions(&mut status.conditions, &shown, host.metadata.generation, now);
    let mut status = keep_unshown(host, status);
    if status != before {
        status.last_updated = Some(Time(now));
    }
    status
}

/// Definitions of older baremetal-operators drop conditions.
fn drops_conditions(written: &BareMetalHostStatus) -> bool {
    written.conditions.is_empty()
}

/// Avoids a write for conditions that the definition drops. They are written together with other
/// changes, because the definition may have been replaced by then.
fn keep_unshown(host: &BareMetalHost, status: BareMetalHostStatus) -> BareMetalHostStatus {
    let rest = BareMetalHostStatus { conditions: Vec::new(), ..status.clone() };
    match &host.status {
        Some(written) if drops_conditions(written) && *written == rest => rest,
        _ => status,
    }
}

/// The blocker of a host whose definition drops conditions.
fn find_unshown(blocker: Option<&Blocker>, written: Option<&BareMetalHostStatus>) -> Option<String> {
    blocker.filter(|_| written.is_some_and(drops_conditions)).map(|blocker| blocker.problem.text())
}

fn ignored_condition(host: &BareMetalHost) -> ConditionUpdate {
    let offline = (!host.spec.online).then(|| "spec.online: false".to_owned());
    let fields =
        [("spec.bootMode", &host.spec.boot_mode), ("spec.inspectionMode", &host.spec.inspection_mode)];
    let fields = fields.into_iter().filter_map(|(field, value)| value.as_ref().map(|_| field));
    let fields = fields.chain(unsupported_fields(host)).map(str::to_owned).chain(other_hardware(host));
    let requests = host.annotations().keys().filter(|key| key.starts_with(INSPECT));
    let requests = requests.map(|key| format!("the annotation {key}"));
    let ignored: Vec<_> =
        offline.into_iter().chain(fields).chain(unwritten_image(host)).chain(requests).collect();
    if ignored.is_empty() {
        return condition_false(Type::FieldsIgnored, Reason::FieldsSupported, "");
    }
    let message = format!("without effect, because only its agent controls the host: {}", ignored.join(", "));
    condition_true(Type::FieldsIgnored, Reason::FieldWithoutEffect, message)
        .with_next_action("remove the fields and annotations, and set spec.online to true")
}

/// Statements about the hardware that the host itself does not make.
fn other_hardware(host: &BareMetalHost) -> impl Iterator<Item = String> {
    let spec = &host.spec;
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let profile = named(&spec.hardware_profile).map(|_| "spec.hardwareProfile".to_owned());
    let found = hardware.and_then(|hardware| hardware.cpu.as_ref()).map(|cpu| &cpu.arch);
    let architecture = named(&spec.architecture).zip(found).filter(|(named, found)| named != *found);
    let architecture = architecture.map(|(_, found)| format!("spec.architecture (the host is {found})"));
    let nics = hardware.map_or(&[][..], |hardware| &hardware.nics);
    let mac = named(&spec.boot_mac_address).filter(|_| !nics.is_empty());
    let mac = mac.filter(|mac| !nics.iter().any(|nic| nic.mac.eq_ignore_ascii_case(mac)));
    let mac = mac.map(|mac| format!("spec.bootMACAddress (no card of the host has {mac})"));
    [profile, architecture, mac].into_iter().flatten()
}

/// Another image beside a running node, if it is not supported.
fn unwritten_image(host: &BareMetalHost) -> Option<String> {
    let refused = resolve_wanted(host)?.err()?;
    let has_node = host.annotations().contains_key(names::PROVISIONED_IMAGE);
    has_node.then(|| format!("the image ({})", refused.problem.text()))
}

fn choose_state(
    host: &BareMetalHost,
    state: Option<&State>,
    record: Option<&HostRecord>,
    before: &BareMetalHostStatus,
) -> String {
    let is_deleted = host.metadata.deletion_timestamp.is_some();
    let is_release = is_deleted || host.spec.image.is_none();
    let is_unnamed = named_inventory(host).is_none() && !before.provisioning.state.is_empty();
    let text = match (state.map(|state| state.phase), record) {
        // The host may run a node, so that it must not appear to be free.
        (_, None) if is_unnamed => return before.provisioning.state.clone(),
        (_, None) => "registering",
        (Some(None), _) if before.provisioning.state.is_empty() => "registering",
        (Some(None), _) => return before.provisioning.state.clone(),
        (Some(Some(Phase::Preparing)), _) => "deprovisioning",
        (Some(Some(Phase::Failed)), _) if is_release => "deprovisioning",
        (Some(Some(Phase::Running)), _) => "provisioned",
        (Some(Some(_)), _) => "provisioning",
        (None, _) if is_deleted => "deleting",
        (None, Some(record)) if record.bare_metal_host.as_deref() != Some(&host.name_any()) => "registering",
        (None, Some(record)) if record.carried.is_none() => "inspecting",
        (None, Some(_)) => "available",
    };
    text.to_owned()
}

fn error_type(state: &str) -> &'static str {
    match state {
        "registering" => "registration error",
        "inspecting" => "inspection error",
        _ => "provisioning error",
    }
}

/// The error of the host. A host with an error is not chosen.
fn find_error(
    blocker: Option<&Blocker>,
    state: Option<&State>,
    record: Option<&HostRecord>,
    text: &str,
    now: Timestamp,
) -> Option<String> {
    if let Some(blocker) = blocker.filter(|blocker| blocker.severity != Severity::Waiting) {
        return Some(blocker.problem.text());
    }
    let record = record?;
    if state.is_none() && record.is_abandoned {
        return Some(format!(
            "MachineInventory {} was given up: it is cleaned when its host attaches",
            record.name
        ));
    }
    if let Some(problem) = record.find_problem(now) {
        return Some(problem.text());
    }
    if state.is_some() || text != "available" {
        return None;
    }
    match host_availability("", Some(record)) {
        Availability::Unavailable(exclusion) => {
            let why: &str = exclusion.into();
            Some(format!("MachineInventory {} is {why}: see its conditions", record.name))
        }
        _ => None,
    }
}

/// The hardware in the form of the baremetal-operator: one entry for each address, and no interface
/// without MAC address, which its definition rejects.
fn list_hardware(inventory: &MachineInventory) -> Hardware {
    let status = inventory.status.as_ref();
    let network = status
        .and_then(|status| status.observed_network.as_ref())
        .or(inventory.spec.observed_network.as_ref());
    let interfaces = network.into_iter().flat_map(|network| &network.interfaces);
    let nics = interfaces.flat_map(list_nics).collect();
    let host = status.and_then(|status| status.host.as_ref());
    let hostname = host.map_or("", |host| &host.hostname).to_owned();
    let hardware = Hardware { hostname, nics, ..Hardware::default() };
    match host.and_then(|host| host.hardware.as_ref()) {
        Some(reported) => add_reported(hardware, reported),
        None => hardware,
    }
}

fn list_nics(interface: &ObservedInterface) -> Vec<Nic> {
    let Some(mac) = interface.card_mac().filter(|mac| !mac.is_empty()) else { return vec![] };
    let nic = Nic { name: interface.name.clone(), mac: mac.to_owned(), ip: None };
    let addresses = interface.addresses.iter().map(|text| text.split('/').next().map(str::to_owned));
    let nics: Vec<_> = addresses.map(|ip| Nic { ip, ..nic.clone() }).collect();
    if nics.is_empty() { vec![nic] } else { nics }
}

fn add_reported(hardware: Hardware, reported: &HardwareStatus) -> Hardware {
    let storage = reported.disks.iter().map(|disk| Storage {
        name: disk.name.clone(),
        rotational: disk.rotational,
        size_bytes: disk.size_bytes,
        model: disk.model.clone(),
        serial_number: disk.serial_number.clone(),
    });
    Hardware {
        cpu: Some(Cpu {
            arch: reported.architecture.clone(),
            model: reported.cpu_model.clone(),
            count: reported.cpu_threads,
        }),
        ram_mebibytes: Some(reported.memory_bytes >> 20),
        storage: storage.collect(),
        ..hardware
    }
}
