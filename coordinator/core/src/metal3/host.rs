//! `BareMetalHost`: an inventory by another name. One that names an inventory is
//! provisioned by our plans; every other one belongs to another manager.

mod image;
pub mod reboot;
mod status;
#[cfg(test)]
mod tests;

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::{Consumer, names};
use coordinator_api::names::{annotation, finalizer, kind, label};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cluster;
use crate::demand::{BootstrapEdit, Demand, MachineKey, NodeDemand, Want};
use crate::host::HostRecord;
use crate::ids::{HostName, Uid};
use crate::plan::Names;
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

pub use image::{IMAGE_URL, record_image, resolve_image};
pub use status::project_status;

/// What is due for a host before, beside and after its plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// It names no inventory: another manager's.
    Ignore,
    /// Hold it by a finalizer: the inventory is about to be its own.
    Hold,
    /// Make the inventory its own, with the inventory's version as precondition.
    Take,
    Drive,
    /// Let other owners have the inventory.
    GiveBack,
    Forget,
    /// Nothing may be done.
    Refuse(Blocker),
}

/// The inventory that the host names; only its annotation does.
pub fn named_inventory(host: &BareMetalHost) -> Option<HostName> {
    HostName::parse(host.annotations().get(annotation::MACHINE_INVENTORY)?)
}

/// Decides; `record` is the inventory that the host names.
pub fn decide_step(host: &BareMetalHost, record: Option<&HostRecord>) -> HostStep {
    let has = |finalizer: &str| host.finalizers().iter().any(|held| held == finalizer);
    let Some(named) = named_inventory(host) else {
        return if has(names::HOST_FINALIZER) { refuse_unnamed() } else { HostStep::Ignore };
    };
    let name = host.name_any();
    let owner = record.and_then(|record| record.bare_metal_host.as_deref());
    let is_owner = owner == Some(name.as_str());
    let is_own = |record: &&HostRecord| {
        let claim = record.claim.as_ref();
        claim.is_some_and(|claim| claim.kind == kind::BARE_METAL_HOST && claim.baremetal_machine == name)
    };
    let own = record.filter(is_own);
    if own.is_some_and(|record| !record.is_abandoned) || has(finalizer::BAREMETAL_MACHINE) {
        return HostStep::Drive;
    }
    if host.metadata.deletion_timestamp.is_some() {
        return match (is_owner, has(names::HOST_FINALIZER)) {
            (true, _) => HostStep::GiveBack,
            (false, true) => HostStep::Forget,
            (false, false) => HostStep::Ignore,
        };
    }
    let refuse = |reason, message| {
        HostStep::Refuse(Blocker::needs_operator(
            Type::InventoryAllocated,
            Problem::of_cause(reason, message),
        ))
    };
    if let Some(field) = unsupported_fields(host).next() {
        let message = format!(
            "{field} is set and a MachineInventory is named: the host is driven by its agent alone; remove {field}, or the annotation {}",
            annotation::MACHINE_INVENTORY
        );
        return refuse(Reason::FieldUnsupported, message);
    }
    if record.is_none() {
        let message = format!(
            "MachineInventory {named} does not exist: boot the host from a seed ISO, or correct the annotation"
        );
        return refuse(Reason::InventoryMissing, message);
    }
    if let Some(owner) = owner.filter(|_| !is_owner) {
        let message = format!(
            "BareMetalHost {owner} names MachineInventory {named} too: remove the annotation from one of them"
        );
        return refuse(Reason::InventoryTaken, message);
    }
    // What this host has abandoned comes back when it was cleaned.
    if let Some(claim) = record.filter(|_| own.is_none()).and_then(|record| record.claim.as_ref()) {
        let message = format!(
            "MachineInventory {named} is claimed by {} {}: wait until that is deleted, or name another inventory",
            claim.kind, claim.baremetal_machine
        );
        return refuse(Reason::InventoryTaken, message);
    }
    match (has(names::HOST_FINALIZER), is_owner) {
        (false, _) => HostStep::Hold,
        (true, false) => HostStep::Take,
        (true, true) => HostStep::Drive,
    }
}

/// It has an inventory: which one, its annotation alone tells.
fn refuse_unnamed() -> HostStep {
    let message = format!(
        "the annotation {} was removed while this host has a MachineInventory, which is left as it is: write the annotation again; to part them, delete the BareMetalHost",
        annotation::MACHINE_INVENTORY
    );
    let (condition, reason) = (Type::InventoryAllocated, Reason::InventoryUnnamed);
    HostStep::Refuse(Blocker::needs_operator(condition, Problem::of_cause(reason, message)))
}

/// The Cluster that keeps the host for the successor of a machine.
pub fn keeping_cluster(host: &BareMetalHost) -> Option<&str> {
    let consumer = host.spec.consumer_ref.as_ref().filter(|consumer| consumer.kind == kind::CLUSTER)?;
    let is_kept = named_inventory(host).is_some() && host.labels().contains_key(names::NODE_REUSE);
    is_kept.then_some(consumer.name.as_str())
}

/// Until when successors of a machine have a kept host for themselves; without end where it is
/// not known.
pub fn kept_until(host: &BareMetalHost) -> Option<Timestamp> {
    host.annotations().get(names::KEPT_UNTIL)?.parse().ok()
}

/// What becomes of a host that is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum KeptStep {
    /// It stays kept, until then.
    Keep(Option<Timestamp>),
    /// It is free; why.
    Free { change: Value, cause: String },
}

/// A host is free when its Cluster is in deletion or gone, or no successor came in time; `None`
/// where it is not kept.
pub fn decide_kept(host: &BareMetalHost, cluster: Option<&Cluster>, now: Timestamp) -> Option<KeptStep> {
    let name = keeping_cluster(host)?;
    let end = kept_until(host);
    let cause = if cluster.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some()) {
        format!("Cluster {name} is gone, or in deletion: no successor of its machines comes")
    } else if end.is_some_and(|end| end <= now) {
        "no successor of its machine came in time".to_owned()
    } else {
        return Some(KeptStep::Keep(end));
    };
    let change = json!({
        "metadata": {
            "labels": { names::NODE_REUSE: null },
            "annotations": { names::KEPT_UNTIL: null },
        },
        "spec": { "consumerRef": null },
    });
    Some(KeptStep::Free { change, cause })
}

/// Fields that only a BMC, or Ironic, could carry out.
fn unsupported_fields(host: &BareMetalHost) -> impl Iterator<Item = &'static str> {
    let spec = &host.spec;
    let has_bmc = spec.bmc.as_ref().is_some_and(|bmc| !bmc.address.is_empty());
    [
        (has_bmc, "spec.bmc"),
        (spec.custom_deploy.is_some(), "spec.customDeploy"),
        (spec.externally_provisioned == Some(true), "spec.externallyProvisioned"),
        (spec.firmware.is_some(), "spec.firmware"),
        (spec.raid.is_some(), "spec.raid"),
        (spec.root_device_hints.is_some(), "spec.rootDeviceHints"),
        (spec.preprovisioning_network_data_name.is_some(), "spec.preprovisioningNetworkDataName"),
        (!spec.network_interfaces.is_empty(), "spec.networkInterfaces"),
        (!spec.taints.is_empty(), "spec.taints"),
    ]
    .into_iter()
    .filter_map(|(is_set, field)| is_set.then_some(field))
}

/// The demand on the inventory that the host names.
pub fn read_demand(
    host: &BareMetalHost,
    inventory: Option<&MachineInventory>,
    cluster: Option<&Cluster>,
) -> Demand {
    let annotated = |key| host.annotations().contains_key(key);
    let has_finalizer = host.finalizers().iter().any(|name| name == finalizer::BAREMETAL_MACHINE);
    // Another image is written after the node of the former one is gone. One that cannot
    // be written replaces none.
    let is_wanted =
        |image: &Result<_, Blocker>| image.as_ref().map_or(true, |image| !image::runs_another(host, image));
    let image = image::resolve_wanted(host).filter(is_wanted);
    let image = image.filter(|_| host.metadata.deletion_timestamp.is_none());
    let named = named_inventory(host);
    let want = match (image, &named) {
        (Some(image), Some(named)) => Want::Node(Box::new(read_node(host, named, image, inventory))),
        _ => Want::Release,
    };
    Demand {
        machine: MachineKey {
            kind: kind::BARE_METAL_HOST,
            namespace: host.namespace().unwrap_or_default(),
            name: host.name_any(),
            uid: host.uid().as_deref().and_then(Uid::parse),
        },
        // Chosen once the finalizer holds the host.
        host: named.filter(|_| has_finalizer),
        provider_id: host.annotations().get(names::PROVIDER_ID).and_then(|id| ProviderId::parse(id)),
        has_finalizer,
        retry_clean: annotated(annotation::RETRY_PLAN),
        release_without_clean: annotated(annotation::RELEASE_WITHOUT_CLEAN),
        abandon_after: None,
        leftover_cluster: consumer_machine(host).and_then(|_| cluster::leftover_cluster(cluster)),
        hold: find_pause(host, cluster),
        want,
    }
}

/// Its own annotations, and the pause of the Cluster that uses it.
fn find_pause(host: &BareMetalHost, cluster: Option<&Cluster>) -> Option<Blocker> {
    let key = names::HOST_PAUSES.into_iter().find(|key| host.annotations().contains_key(*key));
    let message = match key {
        // Its machine removes the annotation with the pause.
        _ if cluster::is_paused(host, cluster) => cluster::PAUSED_MESSAGE.to_owned(),
        Some(key) => format!("the annotation {key} is set: remove it"),
        None => return None,
    };
    Some(Blocker::waiting_for(Type::Paused, Problem::of_cause(Reason::Paused, message)))
}

fn read_node(
    host: &BareMetalHost,
    named: &HostName,
    image: Result<proto::plan::Image, Blocker>,
    inventory: Option<&MachineInventory>,
) -> NodeDemand {
    let name = host.name_any();
    let namespace = host.namespace().unwrap_or_default();
    let consumer = host.spec.consumer_ref.as_ref().map(|consumer| consumer.name.clone());
    let uuid = host.uid().unwrap_or_default();
    let secret = |reference: &Option<coordinator_api::metal3::SecretRef>| {
        reference.as_ref().and_then(|reference| reference.name.clone())
    };
    NodeDemand {
        machine: consumer.unwrap_or_else(|| name.clone()),
        cluster: host.labels().get(label::CLUSTER_NAME).cloned().unwrap_or_default(),
        pool: String::new(),
        failure_domain: None,
        reuse_group: None,
        is_listed: true,
        candidate: Some(Ok(named.clone())),
        bootstrap_secret: secret(&host.spec.user_data),
        bootstrap_edit: BootstrapEdit::Unchanged,
        meta_data_secret: secret(&host.spec.meta_data),
        network_data_secret: secret(&host.spec.network_data),
        image,
        registry_secret: host.annotations().get(annotation::REGISTRY_SECRET).cloned(),
        link: None,
        other_ids: vec![ProviderId::of_uid(&uuid).to_string()],
        names: inventory.map(|_| Names {
            hostname: name.clone(),
            machine: name.clone(),
            namespace: namespace.clone(),
            provider_id: provider_id(host),
            uuid,
        }),
    }
}

fn consumer_machine(host: &BareMetalHost) -> Option<&Consumer> {
    host.spec.consumer_ref.as_ref().filter(|consumer| consumer.kind == kind::METAL3_MACHINE)
}

/// Of the machine that uses the host; of the host itself where none does.
pub fn provider_id(host: &BareMetalHost) -> String {
    match consumer_machine(host) {
        Some(consumer) => {
            ProviderId::of_metal3(&host.namespace().unwrap_or_default(), &host.name_any(), &consumer.name)
        }
        None => ProviderId::of_uid(&host.uid().unwrap_or_default()),
    }
    .to_string()
}
