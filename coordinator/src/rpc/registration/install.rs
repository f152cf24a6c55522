//! The next step of a registered host.

use coordinator_api::inventory::MachineInventory;
use coordinator_api::names::annotation;
use coordinator_api::object::Namespace;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::host::HostRecord;
use coordinator_core::inventory;
use coordinator_core::registry_access::read_access;
use kube::ResourceExt as _;
use proto::plan::RegistryAccess;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use wire::complete_response::Next;

use super::{Context, RpcError, inventories};
use crate::store::secret::read_secret;

/// An installed host boots its disk, unless an operator asks for a reinstall. Any other host is
/// installed, with access to the registry of the image if it runs a live system and has a disk (`can_install`).
pub(super) async fn next_step(
    context: &Context,
    registration: Option<&MachineRegistration>,
    inventory: &MachineInventory,
    can_install: bool,
) -> Result<Next, RpcError> {
    let is_installed = HostRecord::parse(inventory).is_some_and(|record| record.carried.is_some());
    if is_installed && inventory::reinstall_device(inventory).is_none() {
        return Ok(Next::BootDisk(wire::BootDisk {}));
    }
    let Some(registration) = registration else { return Err(inventories::refuse_closed()) };
    // The Secret is for hosts that pull the image: approved live systems that report a disk.
    let registry = if can_install { read_registry(context, registration).await? } else { None };
    let install = inventory::install_message(registration, inventory, registry.as_ref()).map_err(|error| {
        let next = format!(
            "correct spec.config of the MachineRegistration {}, or spec.network of the MachineInventory, and boot the seed ISO again",
            registration.name_any()
        );
        RpcError::refused_with(Refusal::BadTemplate, error.to_string(), next)
    })?;
    Ok(Next::Install(install))
}

/// The access to the registry of the image; `None` if the live system brings the image.
async fn read_registry(
    context: &Context,
    registration: &MachineRegistration,
) -> Result<Option<RegistryAccess>, RpcError> {
    let named = registration.annotations().get(annotation::REGISTRY_SECRET).filter(|name| !name.is_empty());
    let (Some(name), Some(image)) = (named, inventory::system_image(registration)) else { return Ok(None) };
    let namespace = Namespace::of(registration);
    let read = read_secret(&context.client, &namespace, name).await?;
    let access = match read {
        Some(secret) => read_access(&secret, image).map_err(|error| error.to_string()),
        None => Err("does not exist".to_owned()),
    };
    access.map(Some).map_err(|problem| {
        let detail = format!(
            "Secret {name}, which the annotation {} of the MachineRegistration {} names, {problem}",
            annotation::REGISTRY_SECRET,
            registration.name_any()
        );
        let next = format!("create or correct the Secret {namespace}/{name}; the host continues by itself");
        RpcError::refused_with(Refusal::BadTemplate, detail, next)
    })
}
