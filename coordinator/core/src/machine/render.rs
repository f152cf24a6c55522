//! The plan for a machine, from all that it is made of.

use std::collections::BTreeMap;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use kube::ResourceExt;
use proto::plan::{Generation, Secret};

use super::{CRI_SOCKET, Failure, Snapshot};
use crate::bootstrap::{self, NodeNames};
use crate::plan::{self, Clean, Found, Job, Names, Reprovision, Stored};
use crate::{image_catalog, network, provider_id};

/// The plan that makes a node of the host.
pub(super) fn reprovision(
    snapshot: &Snapshot<'_>,
    inventory: &MachineInventory,
    data: &Secret,
    found: &Found,
) -> Result<Stored, Failure> {
    let owner = snapshot.owner.ok_or(Failure::Version)?;
    let version = owner.spec.version.as_deref().ok_or(Failure::Version)?;
    let registry =
        snapshot.cluster.and_then(|cluster| cluster.annotations().get(annotation::REGISTRY_ADDRESS));
    let empty = BTreeMap::new();
    let catalog = snapshot.catalog.unwrap_or(&empty);
    let image =
        image_catalog::resolve(catalog, version, registry.map(String::as_str)).map_err(Failure::Image)?;
    let names = names(snapshot, inventory);
    let text = std::str::from_utf8(data.expose()).map_err(|_| {
        Failure::Bootstrap("the bootstrap data is not UTF-8: only cloud-config is supported".to_owned())
    })?;
    let node =
        NodeNames { hostname: &names.hostname, provider_id: &names.provider_id, cri_socket: CRI_SOCKET };
    let user_data =
        bootstrap::normalise(text, &node).map_err(|error| Failure::Bootstrap(error.to_string()))?;
    let network_config =
        network::config(&inventory.spec).map_err(|error| Failure::Network(error.to_string()))?;
    let job = Job::Reprovision(Reprovision {
        image,
        user_data: Secret::new(user_data.into_bytes()),
        network_config,
        names,
    });
    write(&job, snapshot, inventory, found)
}

/// The plan that takes the node off the host.
pub(super) fn clean(
    snapshot: &Snapshot<'_>,
    inventory: &MachineInventory,
    found: &Found,
) -> Result<Stored, Failure> {
    let network_config =
        network::config(&inventory.spec).map_err(|error| Failure::Network(error.to_string()))?;
    write(&Job::Clean(Clean { network_config }), snapshot, inventory, found)
}

/// Above everything that the Secret, the status or the host has seen, so that
/// a coordinator restored from an old backup goes forward.
fn write(
    job: &Job,
    snapshot: &Snapshot<'_>,
    inventory: &MachineInventory,
    found: &Found,
) -> Result<Stored, Failure> {
    let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
    let announced = inventory.plan().and_then(|plan| plan.generation);
    let seen = [host.map(|host| host.generation), announced].into_iter().flatten();
    let seen = seen.filter_map(|generation| u64::try_from(generation).ok());
    let newest = seen.chain([found.generation.0]).max().unwrap_or_default();
    let generation = Generation(newest + 1);
    plan::write(job, generation, &snapshot.machine.uid().unwrap_or_default())
        .map_err(|error| Failure::Unplannable(error.to_string()))
}

fn names(snapshot: &Snapshot<'_>, inventory: &MachineInventory) -> Names {
    let machine = snapshot.owner.map_or_else(|| snapshot.machine.name_any(), ResourceExt::name_any);
    let inventory_name = inventory.name_any();
    let listed = snapshot.members.iter().find(|member| member.listed.name == inventory_name);
    Names {
        hostname: listed.and_then(|member| member.listed.hostname.clone()).unwrap_or_else(|| machine.clone()),
        machine,
        namespace: snapshot.machine.namespace().unwrap_or_default(),
        uuid: inventory.uid().unwrap_or_default(),
        provider_id: provider_id::of(&inventory_name),
    }
}
