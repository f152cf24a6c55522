//! The hardware of a host, as its inventory shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the host reported of its hardware when it registered or attached last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HardwareStatus {
    /// As the kernel names it: `x86_64`, `aarch64`. Empty when unknown.
    pub architecture: String,
    /// Model of the first processor.
    pub cpu_model: String,
    /// Threads of all processors.
    pub cpu_threads: i64,
    /// Memory that the kernel can use, bytes.
    pub memory_bytes: i64,
    /// Disks, also those that are not the install device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskStatus>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskStatus {
    /// Path of the device.
    pub name: String,
    /// Bytes.
    pub size_bytes: i64,
    /// Model, where it tells one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Serial number, where it tells one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
    /// Whether it has platters.
    pub rotational: bool,
}
