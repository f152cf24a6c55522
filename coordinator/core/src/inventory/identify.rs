//! Identification of a host that registers.

use std::collections::BTreeSet;

use coordinator_api::inventory::{KeyClass, MachineInventory};
use coordinator_api::network::ObservedNetwork;
use coordinator_api::registration::MachineRegistration;
use proto::refusal::Refusal;
use proto::v1alpha1::HostFacts;

use super::{emulates_tpm, inventory_settings};
use crate::host::HostRecord;

/// The class of a TPM that has proven its keys. `chain` is the result of the check of its
/// certificate, `None` if the operator named no CAs. A known host stays admitted, because its key
/// is unchanged.
pub fn classify_tpm<E>(chain: Option<Result<(), E>>, is_known: bool) -> Result<KeyClass, E> {
    match chain {
        Some(Ok(())) => Ok(KeyClass::Hardware),
        Some(Err(error)) if !is_known => Err(error),
        Some(Err(_)) | None => Ok(KeyClass::Unverified),
    }
}

/// The proven identity of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// `spec.tpmHash`: SHA-256 of the public key.
    pub hash: &'a str,
    pub class: KeyClass,
}

/// Inventories that may belong to a host that registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Existing<'a> {
    /// The inventory with the key of the host, in any namespace.
    pub by_key: Option<&'a MachineInventory>,
    /// The inventory with the name of the host, in the namespace of the registration.
    pub by_name: Option<&'a MachineInventory>,
}

/// Result of the identification.
#[derive(Clone, Debug, PartialEq)]
pub enum Identified<'a> {
    /// A new host needs an inventory.
    Create,
    /// The host of this inventory.
    Known(&'a MachineInventory),
    /// The host of this inventory, which lost its former key before it was installed.
    Replaced(&'a MachineInventory),
    Refused(Refusal),
}

/// Identifies a host by its key, never by its name or its SMBIOS UUID. A known key is accepted even if
/// the registration admits no new hosts. Another key takes over a name only if the host was never
/// installed and the hardware is the same.
pub fn identify_host<'a>(
    existing: Existing<'a>,
    identity: Identity<'_>,
    hardware: &Hardware,
    registration: &MachineRegistration,
) -> Identified<'a> {
    // The index of keys may lag behind the read by name, so that a host may be found by its name alone
    // right after its first registration.
    let named = existing.by_name;
    let named = named.filter(|inventory| inventory.spec.tpm_hash.as_deref() == Some(identity.hash));
    let known = existing.by_key.or(named);
    match (known, refuse_key(identity.class, registration), existing.by_name) {
        (Some(known), _, _) => shut_out(known).map_or_else(|| Identified::Known(known), Identified::Refused),
        (None, Some(refusal), _) => Identified::Refused(refusal),
        (None, None, Some(named)) if was_never_installed(named) && hardware.is_same(&Hardware::of(named)) => {
            Identified::Replaced(named)
        }
        (None, None, Some(_)) => Identified::Refused(Refusal::NameTaken),
        (None, None, None) => Identified::Create,
    }
}

/// The refusal of a host that may not register. A host that waits for approval may register.
pub fn shut_out(inventory: &MachineInventory) -> Option<Refusal> {
    let refusal = HostRecord::parse(inventory)?.refusal();
    refusal.filter(|refusal| *refusal != Refusal::ApprovalPending)
}

/// Properties of a host that stay when its key is lost. They are a hint and never an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// SMBIOS UUID, unless it is a placeholder.
    pub system_uuid: Option<String>,
    /// Permanent MAC addresses of the interfaces.
    pub macs: BTreeSet<String>,
}

impl Hardware {
    pub fn reported(
        registration: &MachineRegistration,
        facts: &HostFacts,
        network: Option<&ObservedNetwork>,
    ) -> Self {
        let is_hidden = inventory_settings(registration).is_some_and(|settings| settings.no_smbios);
        let uuid = if is_hidden { None } else { proto::facts::system_uuid(facts) };
        Self { system_uuid: uuid, macs: permanent_macs(network) }
    }

    fn of(inventory: &MachineInventory) -> Self {
        let host = inventory.status.as_ref().and_then(|status| status.host.as_ref());
        Self {
            system_uuid: host.and_then(|host| host.system_uuid.clone()),
            macs: permanent_macs(inventory.spec.observed_network.as_ref()),
        }
    }

    /// Unknown hardware differs from any other.
    fn is_same(&self, other: &Self) -> bool {
        self.system_uuid.is_some() && !self.macs.is_empty() && self == other
    }
}

fn permanent_macs(network: Option<&ObservedNetwork>) -> BTreeSet<String> {
    let interfaces = network.into_iter().flat_map(|network| &network.interfaces);
    interfaces
        .filter_map(|interface| interface.permanent_mac.as_ref())
        .map(|mac| mac.to_lowercase())
        .collect()
}

/// The status shows a host that was never installed. A lost status does not show it.
fn was_never_installed(inventory: &MachineInventory) -> bool {
    let Some(record) = HostRecord::parse(inventory) else { return false };
    record.was_never_installed() && shut_out(inventory).is_none() && !record.is_deleting
}

/// The refusal of a class of keys by a registration, which is decided before any look-up.
pub fn refuse_key(class: KeyClass, registration: &MachineRegistration) -> Option<Refusal> {
    match class {
        KeyClass::Emulated if !emulates_tpm(registration) => Some(Refusal::TpmRequired),
        KeyClass::Hardware | KeyClass::Unverified | KeyClass::Emulated => None,
    }
}
