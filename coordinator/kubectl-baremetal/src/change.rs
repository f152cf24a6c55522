//! What a command changes, decided before anything is written.

use coordinator_api::inventory::{Approval, MachineInventory};
use coordinator_api::names::{annotation, label};
use coordinator_core::host::{AnnouncedPlan, HostRecord};
use kube::ResourceExt as _;

use crate::fleet::{Fleet, Id, Kind, Object, holders_of};

/// Annotation by which Cluster API chooses the machine that a smaller deployment loses.
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Annotation by which Cluster API drains no node.
const EXCLUDE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Label of what Cluster API makes of the topology of a Cluster.
const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Annotate { object: Id, key: &'static str, value: String },
    Scale { object: Id, from: i64, to: i64 },
    Delete { object: Id },
}

impl Request {
    /// What it does, as a sentence.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Annotate { object, key, value } => format!("annotate {} {key}={value}", object.short()),
            Self::Scale { object, to, .. } => format!("scale {} to {to}", object.short()),
            Self::Delete { object } => format!("delete {}", object.short()),
        }
    }
}

/// Requests in their order, and what follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) requests: Vec<Request>,
    /// What becomes of the host; asked for before anything is written.
    pub(crate) consequence: String,
    /// What an operator does next.
    pub(crate) next: String,
}

/// How a host is taken from its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Cluster API drains the node first.
    Drained { scale_down: bool },
    /// The node is not drained.
    Undrained { scale_down: bool },
    /// Another clean of a machine in deletion.
    RetryClean,
    /// No clean of a machine in deletion: its host is dead.
    WithoutClean,
}

pub(crate) fn approve(inventory: &MachineInventory, identity: Option<&str>) -> Result<Decision, String> {
    let id =
        Id::new(Kind::MachineInventory, &inventory.namespace().unwrap_or_default(), &inventory.name_any());
    let hash = inventory.spec.tpm_hash.clone().unwrap_or_default();
    if let Some(identity) = identity.filter(|identity| identity.is_empty() || !hash.starts_with(*identity)) {
        return Err(format!(
            "the identity of {} is {hash}, and not {identity}: another host has registered under its name; compare with the console of the host",
            id.short()
        ));
    }
    match inventory.approval() {
        Approval::Pending | Approval::Revoked => {}
        Approval::Approved | Approval::Automatic => {
            return Err(format!("{} is admitted already: nothing is left to do", id.short()));
        }
    }
    let value: &str = Approval::Approved.into();
    let consequence = format!("{} with the identity {hash} is admitted and gets a certificate", id.short());
    let request = Request::Annotate { object: id, key: annotation::APPROVAL, value: value.to_owned() };
    let next = "the host goes on within half a minute".to_owned();
    Ok(Decision { requests: vec![request], consequence, next })
}

/// Has the disk of a free host installed again.
pub(crate) fn reinstall(object: &Object, device: Option<&str>) -> Result<Decision, String> {
    let record = object.host().ok_or_else(|| format!("{} cannot be read", object.id.short()))?;
    let name = object.id.short();
    if let Some(claim) = &record.claim {
        return Err(format!(
            "{name} is held by {} {}: take it back first, by `kubectl baremetal drain-and-release {}`",
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
    let device = device.ok_or_else(|| format!("{name} reported no disk: name it by --device"))?;
    if !device.starts_with("/dev/") {
        return Err(format!("{device} is no path of a disk: name it as /dev/disk/by-id/…"));
    }
    let request =
        Request::Annotate { object: object.id.clone(), key: annotation::REINSTALL, value: device.to_owned() };
    Ok(Decision {
        requests: vec![request],
        consequence: format!("the next seed ISO that {name} boots erases {device} and installs it again"),
        next: "boot the seed ISO on the host; `kubectl baremetal hosts --watch` shows the install".to_owned(),
    })
}

/// Takes a host from its machine.
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
                // Its machine is gone: the host itself is asked.
                let (object, key) = (object.id.clone(), annotation::RETRY_PLAN);
                let request = Request::Annotate { object, key, value: String::new() };
                return Ok(Decision { requests: vec![request], consequence, next });
            }
            annotate_holder(fleet, &record, annotation::RETRY_PLAN, (consequence, next))
        }
        Removal::WithoutClean => {
            let consequence = format!(
                "{} {} goes without a clean, and its node may still run: the host has to be powered off for good",
                claim.kind, claim.baremetal_machine
            );
            let next = "the host is cleaned when it returns; if it may be in foreign hands, revoke the credentials of its node";
            annotate_holder(fleet, &record, annotation::RELEASE_WITHOUT_CLEAN, (consequence, next.to_owned()))
        }
    }
}

/// Deletes the Machine of the host.
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
    let annotate = |key| Request::Annotate { object: machine.id.clone(), key, value: String::new() };
    let mut requests = vec![];
    requests.extend((!is_drained).then(|| annotate(EXCLUDE_DRAINING)));
    if scale_down {
        requests.push(annotate(DELETE_MACHINE));
        requests.push(scale_down_group(fleet, machine)?);
    } else {
        requests.push(Request::Delete { object: machine.id.clone() });
    }
    let drained = if is_drained { "its node is drained" } else { "its node is not drained" };
    let replaced =
        if scale_down { "and replaced by none" } else { "and replaced where it is one of a group" };
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
        format!("{} is of no MachineDeployment: leave --scale-down out", machine.id.short())
    })?;
    let group = fleet.get(&id).ok_or_else(|| format!("{} does not exist or cannot be read", id.short()))?;
    if group.data.labels().contains_key(TOPOLOGY_OWNED) {
        let cluster = group.cluster().map_or_else(|| "its Cluster".to_owned(), |cluster| cluster.short());
        return Err(format!(
            "{} has its replicas from spec.topology.workers of {cluster}, which would set them again: `kubectl annotate machine {} {DELETE_MACHINE}=`, then lower them there",
            id.short(),
            machine.id.name
        ));
    }
    let replicas = group.spec()["replicas"].as_i64().filter(|replicas| *replicas > 0);
    let from = replicas.ok_or_else(|| format!("{} has no replicas: leave --scale-down out", id.short()))?;
    Ok(Request::Scale { object: id, from, to: from - 1 })
}

/// The `MachineDeployment` that a Machine is of.
pub(crate) fn deployment_of(machine: &Object) -> Option<Id> {
    let name = machine.label(label::DEPLOYMENT_NAME)?;
    Some(Id::new(Kind::MachineDeployment, &machine.id.namespace, name))
}

/// The holder that gives the host back: one in deletion, or a Machine that its deployment is
/// about to delete.
pub(crate) fn find_ending_holder(fleet: &Fleet, host: &Object) -> Option<Id> {
    let holders = holders_of(&host.host()?);
    // The Machine is in deletion before what is below it.
    let mut known = holders.iter().rev().filter_map(|id| fleet.get(id));
    known.find(|holder| is_ending(holder) || is_chosen(fleet, holder)).map(|holder| holder.id.clone())
}

/// Whether a holder gives its host back.
fn is_ending(holder: &Object) -> bool {
    let is_freed = holder.id.kind == Kind::BareMetalHost && holder.spec()["image"].is_null();
    holder.is_deleting() || is_freed
}

/// Whether a deployment with too many Machines deletes this one.
fn is_chosen(fleet: &Fleet, machine: &Object) -> bool {
    let group = deployment_of(machine).and_then(|id| fleet.get(&id));
    let is_shrinking =
        |group: &Object| group.status()["replicas"].as_i64() > group.spec()["replicas"].as_i64();
    machine.data.annotations().contains_key(DELETE_MACHINE) && group.is_some_and(is_shrinking)
}

/// Annotates what holds the host, where that is in deletion.
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
    let request = Request::Annotate { object: holder.id.clone(), key, value: String::new() };
    Ok(Decision { requests: vec![request], consequence, next })
}

#[cfg(test)]
mod tests;
