//! Hardware of a host.

use std::path::{Path, PathBuf};

/// A network card, whose cable ends in a tap device of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    pub mac: String,
    /// Name of the tap device.
    pub tap: String,
}

/// A host before it is powered on.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Name in logs and errors.
    pub name: String,
    /// Private directory with `system.raw` and `console.log`. It survives the host.
    pub directory: PathBuf,
    /// SMBIOS system UUID.
    pub uuid: String,
    /// SMBIOS system serial number.
    pub serial: String,
    /// Memory in MiB. This machine gives the host a page when the host first writes to it.
    pub memory_mib: u32,
    /// Size of the system disk in GiB. The file has holes where nothing was written.
    pub disk_gib: u32,
    /// The ISO in the drive.
    pub cd: Option<PathBuf>,
    /// Read-only disks, which the host finds by the labels of their file systems.
    pub images: Vec<PathBuf>,
    /// Disks beside the system's, whose files the caller makes.
    pub data_disks: Vec<PathBuf>,
    /// Network cards, in order.
    pub nics: Vec<Nic>,
}

impl HostConfig {
    /// The disk that the system is installed on, as a raw image.
    pub fn system_disk(&self) -> PathBuf {
        self.directory.join("system.raw")
    }

    /// A host with 2 GiB of memory, a disk of 16 GiB, no CD, and a card at each of these tap devices. `number` makes UUID,
    /// serial number and MACs unique and lasting.
    pub fn new(name: &str, directory: &Path, number: u8, taps: &[&str]) -> Self {
        let nics = taps.iter().zip(1_u8..).map(|(tap, index)| Nic {
            mac: format!("52:54:00:4c:{number:02x}:{index:02x}"),
            tap: (*tap).to_owned(),
        });
        Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
            uuid: format!("4c616200-0000-4000-8000-0000000000{number:02x}"),
            serial: format!("LAB-{number:03}"),
            memory_mib: 2048,
            disk_gib: 16,
            cd: None,
            images: Vec::new(),
            data_disks: Vec::new(),
            nics: nics.collect(),
        }
    }
}
