//! How a host holds its identity key.

use kube::ResourceExt as _;
use strum::{EnumString, IntoStaticStr};

use super::MachineInventory;
use crate::names::label;

/// How a host holds its identity key, the strongest first. The text is the
/// value of the label `baremetal.cluster.io/identity-class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString)]
pub enum KeyClass {
    /// In a TPM whose vendor's certificate was verified.
    Hardware,
    /// In a TPM without such a check, so that it may be an emulated one.
    Unverified,
    /// In a file.
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
}
