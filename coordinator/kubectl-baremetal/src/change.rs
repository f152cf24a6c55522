//! The requests of a command, decided before anything is written.

use coordinator_api::inventory::{Approval, KeyClass, MachineInventory};
use coordinator_api::names::kind::BAREMETAL_MACHINE;
use coordinator_api::names::{annotation, label};
use coordinator_core::host::{AnnouncedPlan, HostRecord, owner_text};
use jiff::Timestamp;
use kube::ResourceExt as _;
use proto::plan::Checksum;
use strum::IntoEnumIterator as _;

use crate::fleet::{Fleet, Id, Kind, Object, holders_of};

/// The annotation of the machine that Cluster API deletes first when a deployment shrinks.
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// The annotation of a machine whose node Cluster API does not drain.
const EXCLUDE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// The label of objects that Cluster API makes from the topology of a Cluster.
const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Annotate { object: Id, key: &'static str, value: String },
    Scale { object: Id, from: i64, to: i64 },
    Delete { object: Id },
}

impl Request {
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Annotate { object, key, value } => format!("annotate {} {key}={value}", object.short()),
            Self::Scale { object, to, .. } => format!("scale {} to {to}", object.short()),
            Self::Delete { object } => format!("delete {}", object.short()),
        }
    }
}

/// Requests in their order, with their consequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) requests: Vec<Request>,
    /// The consequence for the host, which the operator confirms before anything is written.
    pub(crate) consequence: String,
    /// The next action of the operator.
    pub(crate) next: String,
}

/// The ways to remove the machine of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Cluster API drains the node first.
    Drained {
        scale_down: bool,
    },
    Undrained {
        scale_down: bool,
    },
    /// The host of a machine in deletion is cleaned again.
    RetryClean,
    /// The host of a machine in deletion is released without a clean, because it is dead.
    WithoutClean,
}

pub(crate) fn approve(inventory: &MachineInventory, identity: Option<&str>) -> Result<Decision, String> {
    let namespace = inventory.metadata.namespace.as_deref().unwrap_or("");
    let id = Id::new(Kind::MachineInventory, namespace, &inventory.name_any());
    let hash = inventory.spec.tpm_hash.as_deref().unwrap_or("");
    if let Some(identity) = identity.filter(|identity| identity.is_empty() || !hash.starts_with(*identity)) {
        return Err(format!(
            "the identity of {} is {hash}, not {identity}: another host has registered under its name; compare with the console of the host",
            id.short()
        ));
    }
    match inventory.approval() {
        Approval::Pending | Approval::Revoked => {}
        Approval::Approved | Approval::Automatic => {
            return Err(format!("{} is admitted already: there is nothing to do", id.short()));
        }
    }
    let value: &str = Approval::Approved.into();
    let consequence = format!("{} with the identity {hash} is admitted and gets a certificate", id.short());
    let request = Request::Annotate { object: id, key: annotation::APPROVAL, value: value.to_owned() };
    let next = "the host continues within half a minute".to_owned();
    Ok(Decision { requests: vec![request], consequence, next })
}

/// Has a host cleaned that states the node of a lost machine.
pub(crate) fn clean(fleet: &Fleet, object: &Object, owner: &str, now: Timestamp) -> Result<Decision, String> {
    let name = object.id.short();
    let record = object.host().ok_or_else(|| format!("{name} cannot be read"))?;
    if record.is_abandoned {
        return Err(format!(
            "{name} is given up already: it is cleaned when it attaches; after a failed clean, `kubectl baremetal release {} --retry-clean`",
            object.id.name
        ));
    }
    let owner = if owner.contains('/') { owner.to_owned() } else { owner_text(BAREMETAL_MACHINE, owner) };
    match record.stated_owner() {
        Some(stated) if stated == owner => {}
        Some(stated) => return Err(format!("{name} states the node of {stated}, not of {owner}")),
        None => return Err(format!("{name} states no node of a machine: nothing has to be cleaned")),
    }
    let (kind, machine_name) = owner.split_once('/').unwrap_or_default();
    let known = Kind::iter().find(|known| <&str>::from(*known) == kind);
    let known = known.ok_or_else(|| format!("{kind} is no kind of machine"))?;
    let id = Id::new(known, &object.id.namespace, machine_name);
    let machine = fleet.get(&id);
    // A machine that names another host keeps that one.
    let elsewhere = machine.and_then(Object::named_host).filter(|host| *host != object.id);
    if machine.is_some() && elsewhere.is_none() {
        return Err(format!(
            "{} exists: delete its Machine by `kubectl baremetal drain-and-release {}`",
            id.short(),
            object.id.name
        ));
    }
    if let Some(claim) = record.claim.as_ref().filter(|_| record.claim_text() != owner) {
        return Err(format!("{name} is held by {} {}", claim.kind, claim.baremetal_machine));
    }
    let annotate =
        |key, value: &str| Request::Annotate { object: object.id.clone(), key, value: value.to_owned() };
    let mut requests = vec![];
    if record.claim.is_none() {
        if known != Kind::BaremetalMachine {
            requests.push(annotate(annotation::OWNER_KIND, kind));
        }
        requests.push(annotate(annotation::OWNER_BAREMETAL_MACHINE, machine_name));
    }
    requests.push(annotate(annotation::ABANDONED, &now.to_string()));
    Ok(Decision {
        requests,
        consequence: format!("{name} loses the node of {owner} and all its data, and goes back to its pool"),
        next: format!("`kubectl baremetal logs {} --follow` shows the clean", object.id.name),
    })
}

/// Lets the next seed ISO install a free host again.
pub(crate) fn reinstall(object: &Object, device: Option<&str>) -> Result<Decision, String> {
    let record = object.host().ok_or_else(|| format!("{} cannot be read", object.id.short()))?;
    let name = object.id.short();
    if let Some(claim) = &record.claim {
        return Err(format!(
            "{name} is held by {} {}: release it first by `kubectl baremetal drain-and-release {}`",
            claim.kind, claim.baremetal_machine, object.id.name
        ));
    }
    if !record.may_be_reinstalled() {
        return Err(format!(
            "{name} states that it carries a node, or is in deletion: restore the machine that holds it, or install the host as a new one (\"Wipe a disk\" in docs/operations.md)"
        ));
    }
    let reported = record.install.as_ref().map(|install| install.device.as_str());
    let device = device.or(reported).filter(|device| !device.is_empty());
    let device = device.ok_or_else(|| format!("{name} has not reported a disk: name it by --device"))?;
    check_path(device)?;
    let request =
        Request::Annotate { object: object.id.clone(), key: annotation::REINSTALL, value: device.to_owned() };
    Ok(Decision {
        requests: vec![request],
        consequence: format!("the next seed ISO that {name} boots erases {device} and installs it again"),
        next: "boot the seed ISO on the host; `kubectl baremetal hosts --watch` shows the install".to_owned(),
    })
}

fn check_path(device: &str) -> Result<(), String> {
    if device.starts_with("/dev/") {
        return Ok(());
    }
    Err(format!("{device} is no path of a disk: name the disk as /dev/disk/by-id/…"))
}

/// Names the disk of a host that is not installed yet, and disks that are erased with it.
pub(crate) fn install_on(object: &Object, device: &str, erased: &[String]) -> Result<Decision, String> {
    let name = object.id.short();
    let record = object.host().ok_or_else(|| format!("{name} cannot be read"))?;
    if record.carried.is_some() {
        return Err(format!(
            "{name} is installed already: to install it again, `kubectl baremetal reinstall {}`",
            object.id.name
        ));
    }
    let paths: Vec<_> = std::iter::once(device).chain(erased.iter().map(String::as_str)).collect();
    for path in &paths {
        check_path(path)?;
    }
    let value = paths.join(",");
    let object = object.id.clone();
    Ok(Decision {
        consequence: format!(
            "everything on {} is erased, whatever lies there, and {name} is installed on {device}",
            paths.join(" and ")
        ),
        next: format!(
            "the live system of the host continues within half a minute; `kubectl baremetal why host/{}` says what it waits for",
            object.name
        ),
        requests: vec![Request::Annotate { object, key: annotation::INSTALL_DEVICE, value }],
    })
}

/// Refuses the known key of a host from now on; `key` is the SHA-256 of the one that a host without
/// TPM offers in its place.
pub(crate) fn replace_key(object: &Object, key: Option<&str>) -> Result<Decision, String> {
    let name = object.id.short();
    let record = object.host().ok_or_else(|| format!("{name} cannot be read"))?;
    let known = record.certified_key.as_ref().map(|known| known.hash.as_str());
    let annotate =
        |key, value: &str| Request::Annotate { object: object.id.clone(), key, value: value.to_owned() };
    let Some(key) = key else {
        let known =
            known.ok_or_else(|| format!("{name} has no certified key: there is nothing to replace"))?;
        return Ok(Decision {
            requests: vec![annotate(annotation::REPLACED_KEY, known)],
            consequence: format!("{name} is refused by the key {known}, whoever holds it"),
            next: format!(
                "none for a host with a TPM, which registers with a new key; a host without TPM prints its new key on its console: `kubectl baremetal replace-key {} --key SHA256`",
                object.id.name
            ),
        });
    };
    if Checksum::parse(key).is_err() {
        return Err(format!(
            "{key} is no SHA-256 in lower-case hexadecimal: copy it from the host's console"
        ));
    }
    if known == Some(key) {
        return Err(format!("{key} is the key of {name} already: there is nothing to do"));
    }
    let class = object.inventory().and_then(KeyClass::of);
    if class.is_some_and(|class| class != KeyClass::Emulated) {
        return Err(format!("{name} proves its key by its TPM: run the command without --key"));
    }
    let known = known.map(|known| annotate(annotation::REPLACED_KEY, known));
    Ok(Decision {
        requests: known.into_iter().chain([annotate(annotation::ACCEPTED_KEY, key)]).collect(),
        consequence: format!("{name} is admitted by the key {key}, and refused by every earlier one"),
        next: "the host continues within half a minute".to_owned(),
    })
}

/// Removes the machine of a host.
pub(crate) fn release(fleet: &Fleet, object: &Object, removal: Removal) -> Result<Decision, String> {
    let record = object.host().ok_or_else(|| format!("{} cannot be read", object.id.short()))?;
    let claim = record.claim.as_ref();
    let claim = claim.ok_or_else(|| format!("{} is held by no machine: it is free", object.id.short()))?;
    match removal {
        Removal::Drained { scale_down } => remove_machine(fleet, object, &record, (true, scale_down)),
        Removal::Undrained { scale_down } => remove_machine(fleet, object, &record, (false, scale_down)),
        Removal::RetryClean => {
            let consequence = format!("{} gets another clean plan", object.id.short());
            let next = format!("`kubectl baremetal logs {} --follow` shows its steps", object.id.name);
            if record.is_abandoned {
                if !record.plan.as_ref().is_some_and(AnnouncedPlan::is_failed_clean) {
                    return Err(format!("no clean of {} has failed", object.id.short()));
                }
                // The machine is gone, so that the host itself is annotated.
                let request = annotate_empty(object, annotation::RETRY_PLAN);
                return Ok(Decision { requests: vec![request], consequence, next });
            }
            annotate_holder(fleet, &record, annotation::RETRY_PLAN, (consequence, next))
        }
        Removal::WithoutClean => {
            let consequence = format!(
                "{} {} is deleted without a clean, and its node may still run: the host has to be powered off for good",
                claim.kind, claim.baremetal_machine
            );
            let next = "the host is cleaned when it returns; if it may be in foreign hands, revoke the credentials of its node";
            annotate_holder(fleet, &record, annotation::RELEASE_WITHOUT_CLEAN, (consequence, next.to_owned()))
        }
    }
}

fn remove_machine(
    fleet: &Fleet,
    object: &Object,
    record: &HostRecord,
    (is_drained, scale_down): (bool, bool),
) -> Result<Decision, String> {
    let holders = holders_of(record);
    let machine = holders.iter().find(|id| id.kind == Kind::Machine).and_then(|id| fleet.get(id));
    let machine = machine.ok_or_else(|| {
        format!(
            "the Machine of {} does not exist or cannot be read: `kubectl baremetal why host/{}` says what holds it",
            object.id.short(),
            object.id.name
        )
    })?;
    if machine.is_deleting() {
        return Err(format!(
            "{} is in deletion already: `kubectl baremetal why {}` says what it waits for",
            machine.id.short(),
            machine.id.short()
        ));
    }
    let annotate = |key| annotate_empty(machine, key);
    let mut requests = vec![];
    requests.extend((!is_drained).then(|| annotate(EXCLUDE_DRAINING)));
    if scale_down {
        requests.push(annotate(DELETE_MACHINE));
        requests.push(scale_down_group(fleet, machine)?);
    } else {
        requests.push(Request::Delete { object: machine.id.clone() });
    }
    let drained = if is_drained { "its node is drained" } else { "its node is not drained" };
    let replaced = if scale_down { "and not replaced" } else { "and replaced if it belongs to a group" };
    Ok(Decision {
        requests,
        consequence: format!(
            "{} is deleted {replaced}: {drained}, {} is cleaned and available again",
            machine.id.short(),
            object.id.short()
        ),
        next: format!("`kubectl baremetal logs {} --follow` shows the clean", object.id.name),
    })
}

fn scale_down_group(fleet: &Fleet, machine: &Object) -> Result<Request, String> {
    let id = deployment_of(machine).ok_or_else(|| {
        format!("{} belongs to no MachineDeployment: leave --scale-down out", machine.id.short())
    })?;
    let group = fleet.get(&id).ok_or_else(|| format!("{} does not exist or cannot be read", id.short()))?;
    if group.data.labels().contains_key(TOPOLOGY_OWNED) {
        let cluster = group.cluster().map_or_else(|| "its Cluster".to_owned(), |cluster| cluster.short());
        return Err(format!(
            "the replicas of {} come from spec.topology.workers of {cluster}, which would restore them: `kubectl annotate machine {} {DELETE_MACHINE}=`, then reduce them there",
            id.short(),
            machine.id.name
        ));
    }
    let replicas = group.spec()["replicas"].as_i64().filter(|replicas| *replicas > 0);
    let from = replicas.ok_or_else(|| format!("{} has no replicas: leave --scale-down out", id.short()))?;
    Ok(Request::Scale { object: id, from, to: from - 1 })
}

/// The `MachineDeployment` of a Machine.
pub(crate) fn deployment_of(machine: &Object) -> Option<Id> {
    let name = machine.label(label::DEPLOYMENT_NAME)?;
    Some(Id::new(Kind::MachineDeployment, &machine.id.namespace, name))
}

/// The holder that releases the host: it is in deletion, or is a Machine that its deployment is about
/// to delete.
pub(crate) fn find_ending_holder(fleet: &Fleet, host: &Object) -> Option<Id> {
    let holders = holders_of(&host.host()?);
    // The Machine comes first, because it is in deletion before its infrastructure machine.
    let mut known = holders.iter().rev().filter_map(|id| fleet.get(id));
    known.find(|holder| is_ending(holder) || is_chosen(fleet, holder)).map(|holder| holder.id.clone())
}

/// `true` for a holder that releases its host.
fn is_ending(holder: &Object) -> bool {
    let is_freed = holder.id.kind == Kind::BareMetalHost && holder.spec()["image"].is_null();
    holder.is_deleting() || is_freed
}

/// `true` for the Machine that a deployment with too many Machines deletes.
fn is_chosen(fleet: &Fleet, machine: &Object) -> bool {
    let group = deployment_of(machine).and_then(|id| fleet.get(&id));
    machine.data.annotations().contains_key(DELETE_MACHINE)
        && group.is_some_and(|group| group.status()["replicas"].as_i64() > group.spec()["replicas"].as_i64())
}

/// Annotates the holder of the host, which has to be in deletion.
fn annotate_holder(
    fleet: &Fleet,
    record: &HostRecord,
    key: &'static str,
    (consequence, next): (String, String),
) -> Result<Decision, String> {
    let holders = holders_of(record);
    let holder = holders.iter().find(|id| id.kind != Kind::Machine).and_then(|id| fleet.get(id));
    let holder =
        holder.ok_or_else(|| format!("the machine that holds host {} does not exist", record.name))?;
    if !is_ending(holder) {
        return Err(format!(
            "{} is not in deletion: release the host by `kubectl baremetal drain-and-release {}` first",
            holder.id.short(),
            record.name
        ));
    }
    Ok(Decision { requests: vec![annotate_empty(holder, key)], consequence, next })
}

fn annotate_empty(object: &Object, key: &'static str) -> Request {
    Request::Annotate { object: object.id.clone(), key, value: String::new() }
}

#[cfg(test)]
mod tests;
