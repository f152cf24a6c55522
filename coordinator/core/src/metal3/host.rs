//! `BareMetalHost`: a host that names an inventory is provisioned by our plans. Any other host belongs
//! to another manager.

mod image;
pub mod reboot;
mod status;
#[cfg(test)]
mod tests;

use coordinator_api::capi::Cluster;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::inventory::{Claim, MachineInventory};
use coordinator_api::metal3::host::{BareMetalHost, Bmc};
use coordinator_api::metal3::{Consumer, SecretRef, names};
use coordinator_api::names::{annotation, finalizer, kind, label};
use coordinator_api::object::Namespace;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cluster;
use crate::demand::{BootstrapEdit, Demand, LeftNode, MachineKey, NodeDemand, Want};
use crate::host::HostRecord;
use crate::ids::{HostName, Uid};
use crate::pause;
use crate::plan::Names;
use crate::pool::Wish;
use crate::problem::{Blocker, Problem};
use crate::provider_id::ProviderId;

pub use image::{IMAGE_URL, record_image, resolve_image};
pub use status::project_status;

/// The step of a host before, beside and after its plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// The host names no inventory and belongs to another manager.
    Ignore,
    /// Add the finalizer before the host owns the inventory.
    AddFinalizer,
    /// Make the host the owner of the inventory, with the inventory's version as precondition.
    TakeInventory,
    /// Let the assignment engine decide.
    Drive,
    /// Release the inventory to other owners.
    ReleaseInventory,
    RemoveFinalizer,
    Refuse(Blocker),
}

/// The inventory that the annotation of the host names.
pub fn named_inventory(host: &BareMetalHost) -> Option<HostName> {
    HostName::parse(host.annotations().get(annotation::MACHINE_INVENTORY)?)
}

/// Decides; `record` is the inventory that the host names.
pub fn decide_step(host: &BareMetalHost, record: Option<&HostRecord>) -> HostStep {
    let is_held = has_finalizer(host, names::HOST_FINALIZER);
    let Some(named) = named_inventory(host) else {
        return if is_held { refuse(unnamed_inventory()) } else { HostStep::Ignore };
    };
    let name = host.name_any();
    let owner = record.and_then(|record| record.bare_metal_host.as_deref());
    let is_owner = owner == Some(name.as_str());
    let own = record.filter(|record| is_claimed(host, record.claim.as_ref()));
    if own.is_some_and(|record| !record.is_abandoned) || has_finalizer(host, finalizer::BAREMETAL_MACHINE) {
        // One that an operator removed comes back.
        let is_lost = is_owner && !is_held && host.metadata.deletion_timestamp.is_none();
        return if is_lost { HostStep::AddFinalizer } else { HostStep::Drive };
    }
    if host.metadata.deletion_timestamp.is_some() {
        return match (is_owner, is_held) {
            (true, _) => HostStep::ReleaseInventory,
            (false, true) => HostStep::RemoveFinalizer,
            (false, false) => HostStep::Ignore,
        };
    }
    if let Some(field) = unsupported_fields(host).next() {
        let message = format!("{field} is set, but only its agent controls a host with a MachineInventory");
        let action = format!("remove {field}, or the annotation {}", annotation::MACHINE_INVENTORY);
        return refuse(Problem::new(Reason::FieldUnsupported, message, action));
    }
    let Some(record) = record else {
        let message = format!("MachineInventory {named} does not exist");
        let action = "boot the host from a seed ISO, or correct the annotation";
        return refuse(Problem::new(Reason::InventoryMissing, message, action));
    };
    if let Some(owner) = owner.filter(|_| !is_owner) {
        let message = format!("BareMetalHost {owner} names MachineInventory {named} too");
        return refuse(Problem::new(
            Reason::InventoryTaken,
            message,
            "remove the annotation from one of them",
        ));
    }
    // A host that this object abandoned becomes usable again after its clean.
    if let Some(claim) = record.claim.as_ref().filter(|_| own.is_none()) {
        let holder = format!("{} {}", claim.kind, claim.baremetal_machine);
        let message = format!("MachineInventory {named} is claimed by {holder}");
        let action = format!("wait until {holder} is deleted, or name another inventory");
        return refuse(Problem::new(Reason::InventoryTaken, message, action));
    }
    match (is_held, is_owner) {
        (false, _) => HostStep::AddFinalizer,
        (true, false) => HostStep::TakeInventory,
        (true, true) => HostStep::Drive,
    }
}

fn has_finalizer(host: &BareMetalHost, finalizer: &str) -> bool {
    host.finalizers().iter().any(|held| held == finalizer)
}

fn refuse(problem: Problem) -> HostStep {
    HostStep::Refuse(Blocker::needs_operator(Type::InventoryAllocated, problem))
}

/// Only the annotation names the inventory that the host owns.
fn unnamed_inventory() -> Problem {
    let message = format!(
        "the annotation {} was removed while this host has a MachineInventory, which is not touched",
        annotation::MACHINE_INVENTORY
    );
    let action = "write the annotation again; to separate them, delete the BareMetalHost";
    Problem::new(Reason::InventoryUnnamed, message, action)
}

/// The Cluster that keeps the host for the successor of a machine.
pub fn keeping_cluster(host: &BareMetalHost) -> Option<&str> {
    let consumer = host.spec.consumer_ref.as_ref().filter(|consumer| consumer.kind == kind::CLUSTER)?;
    let is_kept = named_inventory(host).is_some() && host.labels().contains_key(names::NODE_REUSE);
    is_kept.then_some(consumer.name.as_str())
}

/// Time until which a host is kept for the successors of its machine; `None` stands for no end.
pub fn kept_until(host: &BareMetalHost) -> Option<Timestamp> {
    host.annotations().get(names::KEPT_UNTIL)?.parse().ok()
}

/// The step of a kept host.
#[derive(Clone, Debug, PartialEq)]
pub enum KeptStep {
    /// The host stays kept until that time.
    Keep(Option<Timestamp>),
    Free {
        change: Value,
        cause: String,
    },
}

/// Decides about a kept host; `None` if the host is not kept. It becomes free when its Cluster is
/// deleted, or no successor took it in time.
pub fn decide_kept(host: &BareMetalHost, cluster: Option<&Cluster>, now: Timestamp) -> Option<KeptStep> {
    let name = keeping_cluster(host)?;
    let end = kept_until(host);
    let cause = if cluster.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some()) {
        format!("Cluster {name} is deleted, so that its machines have no successors")
    } else if end.is_some_and(|end| end <= now) {
        "no successor of its machine took it in time".to_owned()
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

/// The change that removes the copy of the status that another manager wrote with a pause. The
/// baremetal-operator removes it after the pause too.
pub fn forget_saved_status(host: &BareMetalHost, is_held: impl FnOnce() -> bool) -> Option<Value> {
    let is_stale = host.annotations().contains_key(names::SAVED_STATUS) && !is_held();
    is_stale.then(|| json!({ "metadata": { "annotations": { names::SAVED_STATUS: null } } }))
}

/// Fields that only a BMC or Ironic can apply.
fn unsupported_fields(host: &BareMetalHost) -> impl Iterator<Item = &'static str> {
    let spec = &host.spec;
    let own = Namespace::of(host);
    let is_outside =
        |reference: &Option<SecretRef>| reference.as_ref().is_some_and(|secret| secret.is_outside(&own));
    let has_bmc = spec.bmc.as_ref().is_some_and(|bmc| *bmc != Bmc::default());
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
        (is_outside(&spec.user_data), "spec.userData.namespace"),
        (is_outside(&spec.meta_data), "spec.metaData.namespace"),
        (is_outside(&spec.network_data), "spec.networkData.namespace"),
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
    let is_annotated = |key| host.annotations().contains_key(key);
    let has_finalizer = has_finalizer(host, finalizer::BAREMETAL_MACHINE);
    let image = image::resolve_wanted(host).filter(|_| host.metadata.deletion_timestamp.is_none());
    // Another image is installed after the node of the former image was removed. An unsupported
    // image replaces no node.
    let image = image.filter(|image| image.as_ref().map_or(true, |image| !image::runs_another(host, image)));
    let named = named_inventory(host);
    let claim = inventory.and_then(MachineInventory::claim);
    let want = match (image, &named) {
        (Some(image), Some(named)) => Want::Node(Box::new(read_node(host, named, image, inventory))),
        _ => Want::Release,
    };
    Demand {
        owned_hosts: vec![],
        machine: MachineKey {
            kind: kind::BARE_METAL_HOST,
            namespace: Namespace::of(host).to_string(),
            name: host.name_any(),
            uid: host.uid().as_deref().and_then(Uid::parse),
        },
        // A claim is written after the finalizer, so that it outlives a finalizer that is lost.
        host: named.filter(|_| has_finalizer || is_claimed(host, claim.as_ref())),
        provider_id: host.annotations().get(names::PROVIDER_ID).and_then(|id| ProviderId::parse(id)),
        has_finalizer,
        retry_clean: is_annotated(annotation::RETRY_PLAN),
        release_without_clean: is_annotated(annotation::RELEASE_WITHOUT_CLEAN),
        abandon_after: None,
        left_node: find_left_node(host, cluster),
        hold: find_pause(host, cluster),
        want,
    }
}

fn is_claimed(host: &BareMetalHost, claim: Option<&Claim>) -> bool {
    claim.is_some_and(|claim| {
        claim.kind == kind::BARE_METAL_HOST && claim.baremetal_machine == host.name_any()
    })
}

fn find_left_node(host: &BareMetalHost, cluster: Option<&Cluster>) -> Option<LeftNode> {
    consumer_machine(host)?;
    let has_provider_id = host.annotations().contains_key(names::PROVIDER_ID);
    let cluster = cluster::leftover_cluster(cluster, has_provider_id)?;
    Some(LeftNode { cluster, provider_id: ProviderId::parse(&provider_id(host)), uuid: host.uid() })
}

/// The pause of the host by its annotations or by its Cluster.
fn find_pause(host: &BareMetalHost, cluster: Option<&Cluster>) -> Option<Blocker> {
    let key = names::HOST_PAUSES.into_iter().find(|key| host.annotations().contains_key(*key));
    let problem = match key {
        // The machine removes the annotation when the pause of the Cluster ends.
        _ if pause::is_paused(host, cluster) => Problem::of_cause(Reason::Paused, pause::PAUSED_MESSAGE),
        Some(key) => {
            Problem::new(Reason::Paused, format!("the annotation {key} is set"), "remove the annotation")
        }
        None => return None,
    };
    Some(Blocker::waiting_for(Type::Paused, problem))
}

fn read_node(
    host: &BareMetalHost,
    named: &HostName,
    image: Result<proto::plan::Image, Blocker>,
    inventory: Option<&MachineInventory>,
) -> NodeDemand {
    let name = host.name_any();
    let consumer = host.spec.consumer_ref.as_ref().map(|consumer| consumer.name.clone());
    let uuid = host.uid().unwrap_or_default();
    let secret = |reference: &Option<SecretRef>| reference.as_ref()?.name.clone();
    NodeDemand {
        machine: consumer.unwrap_or_else(|| name.clone()),
        cluster: host.labels().get(label::CLUSTER_NAME).map_or("", String::as_str).to_owned(),
        pool: String::new(),
        wish: Wish::default(),
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
            namespace: Namespace::of(host).to_string(),
            provider_id: provider_id(host),
            uuid,
        }),
    }
}

fn consumer_machine(host: &BareMetalHost) -> Option<&Consumer> {
    host.spec.consumer_ref.as_ref().filter(|consumer| consumer.kind == kind::METAL3_MACHINE)
}

/// The providerID of the machine that uses the host, or of the host itself if no machine uses it.
pub fn provider_id(host: &BareMetalHost) -> String {
    match consumer_machine(host) {
        Some(consumer) => ProviderId::of_metal3(&Namespace::of(host), &host.name_any(), &consumer.name),
        None => ProviderId::of_uid(&host.uid().unwrap_or_default()),
    }
    .to_string()
}
