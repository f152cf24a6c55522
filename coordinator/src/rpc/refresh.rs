//! Labels and annotations that the registration makes from the facts of a host. They are rendered
//! again when the host registers again, and when it attaches.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator_api::inventory::{KeyClass, MachineInventory};
use coordinator_api::names::{annotation, label};
use coordinator_api::registration::MachineRegistration;
use coordinator_core::inventory::{refresh_inventory, stale_labels};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::v1alpha1::HostFacts;

use super::{Context, RpcError};
use crate::store::StoreError;
use crate::store::registration as store;
use crate::telemetry::chain;

/// Writes the class of the key of a registering host, and the labels and annotations of
/// [`refresh_metadata`]. If they cannot be written, the class alone is written, because the host needs
/// it; the rest is left to the next attach.
pub(super) async fn refresh_registered(
    context: &Context,
    inventory: Arc<MachineInventory>,
    facts: &HostFacts,
    class: KeyClass,
) -> Result<Arc<MachineInventory>, RpcError> {
    let registration = find_registration(context, &inventory);
    let refreshed = store::refresh_metadata(&context.client, inventory.clone(), |inventory| {
        let refresh = registration.as_ref().and_then(|found| refresh_inventory(found, inventory, facts));
        if KeyClass::of(inventory) == Some(class) {
            return refresh;
        }
        let mut refresh = refresh.unwrap_or_default();
        refresh.labels.insert(label::IDENTITY_CLASS.to_owned(), class.as_str().to_owned());
        Some(refresh)
    });
    match refreshed.await {
        Ok(written) => Ok(written),
        Err(error) => {
            log_failure(&error);
            Ok(store::show_class(&context.client, inventory, class).await?)
        }
    }
}

fn find_registration(context: &Context, inventory: &MachineInventory) -> Option<Arc<MachineRegistration>> {
    let name = inventory.annotations().get(annotation::REGISTRATION)?;
    context.caches.registrations.get(&ObjectRef::new(name).within(&inventory.namespace()?))
}

/// The labels that the inventory of a host keeps although registration and host render others now.
pub(super) fn find_stale_labels(
    context: &Context,
    inventory: &MachineInventory,
    facts: &HostFacts,
) -> BTreeMap<String, String> {
    let registration = find_registration(context, inventory);
    registration.map_or_else(BTreeMap::new, |found| stale_labels(&found, inventory, facts))
}

/// Writes changed labels and annotations. A failure is only logged, because labels must not keep a
/// host out, and the next attach tries again.
pub(super) async fn refresh_metadata(
    context: &Context,
    inventory: Arc<MachineInventory>,
    facts: &HostFacts,
) -> Arc<MachineInventory> {
    let Some(registration) = find_registration(context, &inventory) else { return inventory };
    let refreshed = store::refresh_metadata(&context.client, inventory.clone(), |inventory| {
        refresh_inventory(&registration, inventory, facts)
    });
    match refreshed.await {
        Ok(written) => written,
        Err(error) => {
            log_failure(&error);
            inventory
        }
    }
}

fn log_failure(error: &StoreError) {
    let error = chain(error);
    tracing::warn!(error, "cannot refresh labels and annotations of a host, keeping the current ones");
}
