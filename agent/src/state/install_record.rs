//! The record of a completed install, on the disk that was installed.

use std::fs;
use std::io;

use proto::v1alpha1::InstallDone;
use serde::{Deserialize, Serialize};

use crate::ground::durable::DurableError;
use crate::ground::paths::StateDir;

/// `install.json`: this disk is ours and was installed completely. Written
/// last, so that an install that was cut off has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallRecord {
    /// The disk as the install knew it.
    pub device: String,
    /// The image that was installed.
    pub image: String,
    /// `namespace/name` of the host's `MachineInventory`.
    pub inventory: String,
    /// UUID of the host's firmware; empty in records of older agents, and
    /// where the firmware has none.
    pub smbios_uuid: String,
    /// World wide name of the disk.
    pub wwn: String,
    /// Serial number of the disk.
    pub serial: String,
}

impl InstallRecord {
    /// The record of `state`; nothing where no install was completed. One that
    /// cannot be parsed is still a record.
    ///
    /// # Errors
    /// [`DurableError`] when it cannot be read.
    pub fn read(state: &StateDir) -> Result<Option<Self>, DurableError> {
        let path = state.install_record();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(serde_json::from_str(&text).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DurableError { attempt: "read", path, source }),
        }
    }

    /// Whether it names another host than the one with this UUID. Two UUIDs
    /// that are known must differ for that.
    pub fn is_of_another_host(&self, uuid: Option<&str>) -> bool {
        let other = |uuid: &str| !self.smbios_uuid.eq_ignore_ascii_case(uuid);
        !self.smbios_uuid.is_empty() && uuid.is_some_and(other)
    }
}

impl From<InstallRecord> for InstallDone {
    fn from(record: InstallRecord) -> Self {
        Self { device: record.device, image: record.image }
    }
}
