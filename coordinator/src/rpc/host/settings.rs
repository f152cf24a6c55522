//! URL and authorities of the coordinator. They are announced on the stream of each host that states
//! other ones.

use coordinator_api::conditions::join_text;
use coordinator_api::inventory::{CoordinatorSettingsState, CoordinatorStatus, MachineInventory};
use coordinator_api::names::annotation;
use coordinator_core::host::facts;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use proto::proof;
use proto::v1alpha1 as wire;

use super::statement::Statement;
use crate::rpc::{Context, RpcError, host_token};

/// The settings that the host should have; `None` while its registration is not ready.
pub(super) fn find_wanted(
    context: &Context,
    inventory: &MachineInventory,
) -> Option<wire::CoordinatorSettings> {
    let name = inventory.annotations().get(annotation::REGISTRATION)?;
    let key = ObjectRef::new(name).within(&inventory.namespace()?);
    let registration = context.caches.registrations.get(&key)?;
    let tpm_hash = inventory.spec.tpm_hash.as_deref()?;
    Some(wire::CoordinatorSettings {
        registration_url: host_token::render_url(&context.authority, &registration, tpm_hash)?,
        authorities: context.authority.certificates().to_owned(),
    })
}

/// The checksum that a host states; an agent of an older version states none.
pub(super) fn checksum(settings: &wire::CoordinatorSettings) -> String {
    proof::settings(&settings.registration_url, &settings.authorities)
}

/// The checksum that the status shows: the last part of the URL is of one host, and all hosts of a
/// registration that have the same settings show the same. It changes when the host has attached.
fn shown_checksum(
    inventory: &MachineInventory,
    wanted: Option<&wire::CoordinatorSettings>,
    statement: &Statement,
    state: CoordinatorSettingsState,
) -> String {
    if state == CoordinatorSettingsState::Current
        && let Some(wanted) = wanted
        && let Some((address, _)) = wanted.registration_url.rsplit_once('/')
    {
        return proof::settings(address, &wanted.authorities);
    }
    let known = find_shown(inventory);
    known.map_or_else(|| statement.stated.settings.clone(), |known| known.checksum.clone())
}

/// Compares the settings of the statement with the wanted ones, and gives the checksum for the status.
pub(super) fn compare_settings(
    context: &Context,
    inventory: &MachineInventory,
    statement: &Statement,
) -> Option<(CoordinatorSettingsState, String)> {
    let wanted = find_wanted(context, inventory)?;
    let stated = &statement.stated.settings;
    if stated.is_empty() {
        return None;
    }
    let state = if *stated == checksum(&wanted) {
        CoordinatorSettingsState::Current
    } else {
        CoordinatorSettingsState::Announced
    };
    Some((state, shown_checksum(inventory, Some(&wanted), statement, state)))
}

/// The state of the host's settings that the status has.
pub(super) fn find_shown(inventory: &MachineInventory) -> Option<&CoordinatorStatus> {
    inventory.status.as_ref()?.host.as_ref()?.coordinator.as_ref()
}

/// Records that the host did not take the settings.
pub(super) async fn record_refusal(
    context: &Context,
    statement: &Statement,
    refusal: wire::SettingsRefusal,
) -> Result<(), RpcError> {
    let failure = refusal.failure.unwrap_or_default();
    let message = join_text(&failure.message, &failure.next_action);
    tracing::warn!(cause = message, "host refused the settings of the coordinator");
    record(context, statement, CoordinatorSettingsState::Refused, &message).await
}

/// Stores the state of the host's settings.
pub(super) async fn record(
    context: &Context,
    statement: &Statement,
    state: CoordinatorSettingsState,
    message: &str,
) -> Result<(), RpcError> {
    let inventory = match context.find_inventory(&statement.peer).await {
        Err(error) if error.is_inventory_gone() => return Ok(()),
        read => read?,
    };
    let wanted = find_wanted(context, &inventory);
    let checksum = shown_checksum(&inventory, wanted.as_ref(), statement, state);
    let written = context.update_status(inventory, |status| {
        facts::record_settings(status, state, &checksum, message);
    });
    written.await.map(drop)
}
