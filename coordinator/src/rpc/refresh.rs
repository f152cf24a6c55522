//! Labels and annotations of a registration follow the host: they are rendered
//! again when it registers again, and when it attaches.

use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_core::inventory::refresh_inventory;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::v1alpha1::HostFacts;

use super::Context;
use crate::store::registration as store;
use crate::telemetry::chain;

/// Writes what has changed, and nothing where nothing has. A host is not kept
/// out because of its labels: a failure is logged, and the next attach tries
/// again.
pub(super) async fn refresh_metadata(
    context: &Context,
    inventory: Arc<MachineInventory>,
    facts: &HostFacts,
) -> Arc<MachineInventory> {
    let namespace = inventory.namespace().unwrap_or_default();
    let name = inventory.annotations().get(annotation::REGISTRATION);
    let registration =
        name.and_then(|name| context.caches.registrations.get(&ObjectRef::new(name).within(&namespace)));
    let Some(registration) = registration else { return inventory };
    let decide = |inventory: &MachineInventory| refresh_inventory(&registration, inventory, facts);
    match store::refresh_metadata(&context.client, inventory.clone(), decide).await {
        Ok(written) => written,
        Err(error) => {
            tracing::warn!(error = chain(&error), "labels and annotations of a host stay as they were");
            inventory
        }
    }
}
