//! The record of a completed install, on the disk that was installed.

use proto::v1alpha1::InstallDone;
use serde::{Deserialize, Serialize};

use crate::ground::durable;
use crate::ground::failure::Failure;
use crate::ground::paths::StateDir;

/// `install.json`: this agent installed the disk completely. The record is written last, so that an
/// interrupted install has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallRecord {
    /// The device that the install was asked to use.
    pub device: String,
    pub image: String,
    /// `namespace/name` of the host's `MachineInventory`.
    pub inventory: String,
    /// UUID of the host's firmware; empty in records of older agents, and if the firmware has none.
    pub smbios_uuid: String,
    pub wwn: String,
    pub serial: String,
}

impl InstallRecord {
    /// The record in `state`; `None` if no install was completed. A damaged record still counts as
    /// one.
    pub fn read(state: &StateDir) -> Result<Option<Self>, Failure> {
        let text = durable::read_text(&state.install_record())?;
        Ok(text.map(|text| serde_json::from_str(&text).unwrap_or_default()))
    }

    /// True if the record names another host than the one with this UUID. The hosts are different
    /// only if both UUIDs are known and differ.
    pub fn is_of_another_host(&self, uuid: Option<&str>) -> bool {
        let known = uuid.filter(|_| !self.smbios_uuid.is_empty());
        known.is_some_and(|uuid| !self.smbios_uuid.eq_ignore_ascii_case(uuid))
    }
}

impl From<InstallRecord> for InstallDone {
    fn from(record: InstallRecord) -> Self {
        Self { device: record.device, image: record.image }
    }
}
