//! The hardware of a host, as its inventory shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hardware and platform that the host reported when it registered or attached last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareStatus {
    /// Architecture by its name in the kernel, for example `x86_64` or `aarch64`. Empty:
    /// unknown.
    pub architecture: String,
    /// Model of the first processor.
    pub cpu_model: String,
    /// Threads of all processors.
    pub cpu_threads: i64,
    /// Memory that the kernel can use, in bytes.
    pub memory_bytes: i64,
    /// All disks of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskStatus>,
    /// What the running system lacks of the minimum, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub below_minimum: Vec<String>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskStatus {
    /// Path of the device.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: i64,
    /// Model, if the disk reports one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Serial number, if the disk reports one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
    /// The disk has rotating platters.
    pub rotational: bool,
}
