//! Labels and annotations of a registration follow the host: they are rendered
//! again when it registers again, and when it attaches.

use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::{annotation, label};
use coordinator_api::registration::MachineRegistration;
use coordinator_core::inventory::{KeyClass, refresh_inventory};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::v1alpha1::HostFacts;

use super::{Context, RpcError};
use crate::store::registration as store;
use crate::telemetry::chain;

/// Writes how the key of a host that registers is held, and with it what
/// [`refresh_metadata`] would. The class has to be there, the rest is left to the
/// next attach where it cannot be written.
pub(super) async fn refresh_registered(
    context: &Context,
    inventory: Arc<MachineInventory>,
    facts: &HostFacts,
    class: KeyClass,
) -> Result<Arc<MachineInventory>, RpcError> {
    let registration = find_registration(context, &inventory);
    let decide = |inventory: &MachineInventory| {
        let refresh = registration.as_ref().and_then(|found| refresh_inventory(found, inventory, facts));
        if KeyClass::of(inventory) == Some(class) {
            return refresh;
        }
        let mut refresh = refresh.unwrap_or_default();
        refresh.labels.insert(label::IDENTITY_CLASS.to_owned(), class.as_str().to_owned());
        Some(refresh)
    };
    match store::refresh_metadata(&context.client, inventory.clone(), decide).await {
        Ok(written) => Ok(written),
        Err(error) => {
            tracing::warn!(error = chain(&error), "labels and annotations of a host stay as they were");
            Ok(store::show_class(&context.client, inventory, class).await?)
        }
    }
}

fn find_registration(context: &Context, inventory: &MachineInventory) -> Option<Arc<MachineRegistration>> {
    let name = inventory.annotations().get(annotation::REGISTRATION)?;
    context.caches.registrations.get(&ObjectRef::new(name).within(&inventory.namespace()?))
}

/// Writes what has changed, and nothing where nothing has. A host is not kept
/// out because of its labels: a failure is logged, and the next attach tries
/// again.
pub(super) async fn refresh_metadata(
    context: &Context,
    inventory: Arc<MachineInventory>,
    facts: &HostFacts,
) -> Arc<MachineInventory> {
    let Some(registration) = find_registration(context, &inventory) else { return inventory };
    let decide = |inventory: &MachineInventory| refresh_inventory(&registration, inventory, facts);
    match store::refresh_metadata(&context.client, inventory.clone(), decide).await {
        Ok(written) => written,
        Err(error) => {
            tracing::warn!(error = chain(&error), "labels and annotations of a host stay as they were");
            inventory
        }
    }
}
