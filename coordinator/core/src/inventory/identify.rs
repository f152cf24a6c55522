//! Who a host that registers is.

use std::collections::BTreeSet;

use coordinator_api::inventory::{InstallState, MachineInventory};
use coordinator_api::names::label;
use coordinator_api::network::ObservedNetwork;
use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt as _;
use proto::refusal::Refusal;
use proto::v1alpha1::HostFacts;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::{emulates_tpm, inventory_settings};
use crate::host::HostRecord;

/// How a host holds its identity key, the strongest first. The text is the
/// value of the label `baremetal.cluster.io/identity-class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString, VariantArray)]
pub enum KeyClass {
    /// In a TPM whose vendor's certificate was verified.
    Hardware,
    /// In a TPM without such a check: whether it is a real one is unknown.
    Unverified,
    Emulated,
}

impl KeyClass {
    /// Value of the label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The class that an inventory shows.
    pub fn of(inventory: &MachineInventory) -> Option<Self> {
        inventory.labels().get(label::IDENTITY_CLASS)?.parse().ok()
    }

    /// The class of a TPM that has proven its keys. `chain` is the judgement of
    /// its certificate, `None` where the operator named no CAs. A known host
    /// stays: its key is the same as ever.
    pub fn of_tpm<E>(chain: Option<Result<(), E>>, is_known: bool) -> Result<Self, E> {
        match chain {
            Some(Ok(())) => Ok(Self::Hardware),
            Some(Err(error)) if !is_known => Err(error),
            Some(Err(_)) | None => Ok(Self::Unverified),
        }
    }
}

/// Who a host has proven to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// `spec.tpmHash`: SHA-256 of the public key.
    pub hash: &'a str,
    /// How the key is held.
    pub class: KeyClass,
}

/// What is known of a host that registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Existing<'a> {
    /// The inventory with its key, in any namespace.
    pub by_key: Option<&'a MachineInventory>,
    /// The inventory with its name in the registration's namespace.
    pub by_name: Option<&'a MachineInventory>,
}

/// What a host that registers is.
#[derive(Clone, Debug, PartialEq)]
pub enum Identified<'a> {
    /// New: make an inventory.
    Create,
    /// The host of this inventory.
    Known(&'a MachineInventory),
    /// The host of this inventory, whose former key was lost before anything
    /// was installed.
    Replaced(&'a MachineInventory),
    Refused(Refusal),
}

/// Decides who a host is: by its key, never by its name or its SMBIOS. A known
/// key stays, whatever the registration takes of new hosts. A name goes to
/// another key only while nothing was installed, and with the same hardware.
pub fn identify_host<'a>(
    existing: Existing<'a>,
    identity: Identity<'_>,
    hardware: &Hardware,
    registration: &MachineRegistration,
) -> Identified<'a> {
    let has_key = |inventory: &&MachineInventory| inventory.spec.tpm_hash.as_deref() == Some(identity.hash);
    // The name is looked up by a fresh read, the key by an index that may be
    // behind: right after its first registration a host is found by name.
    let known = existing.by_key.or(existing.by_name.filter(has_key));
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

/// Why the host of this inventory may not register at all. One that waits for
/// approval may.
pub fn shut_out(inventory: &MachineInventory) -> Option<Refusal> {
    let refusal = HostRecord::parse(inventory)?.refusal();
    refusal.filter(|refusal| *refusal != Refusal::ApprovalPending)
}

/// What stays of a host that lost its key. A hint, and never an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// SMBIOS UUID, where it means something.
    pub system_uuid: Option<String>,
    /// Permanent addresses of the interfaces.
    pub macs: BTreeSet<String>,
}

impl Hardware {
    /// Of a host that registers.
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

    /// What is unknown is not the same.
    fn is_same(&self, other: &Self) -> bool {
        self.system_uuid.is_some() && !self.macs.is_empty() && self == other
    }
}

fn permanent_macs(network: Option<&ObservedNetwork>) -> BTreeSet<String> {
    let interfaces = network.map(|network| network.interfaces.iter()).into_iter().flatten();
    interfaces
        .filter_map(|interface| interface.permanent_mac.as_ref())
        .map(|mac| mac.to_lowercase())
        .collect()
}

/// By what its status says: a status that was lost says nothing.
fn was_never_installed(inventory: &MachineInventory) -> bool {
    let Some(record) = HostRecord::parse(inventory) else { return false };
    let is_begun = record.install.as_ref().is_some_and(|install| match install.state {
        InstallState::Registered
        | InstallState::Waiting
        | InstallState::Installing
        | InstallState::Failed => true,
        InstallState::Installed | InstallState::LiveBootAfterInstall => false,
    });
    let is_usable = shut_out(inventory).is_none();
    let is_unused = record.claim.is_none() && record.plan.is_none() && record.carried.is_none();
    is_begun && is_unused && record.session.is_none() && is_usable && !record.is_deleting
}

/// Whether the registration takes this class of key; decided before anything
/// is looked up.
pub fn refuse_key(class: KeyClass, registration: &MachineRegistration) -> Option<Refusal> {
    match class {
        KeyClass::Emulated if !emulates_tpm(registration) => Some(Refusal::TpmRequired),
        KeyClass::Hardware | KeyClass::Unverified | KeyClass::Emulated => None,
    }
}
