//! What a host reports, by the keys that templates use.

use std::collections::BTreeMap;

use proto::v1alpha1::HostFacts;

/// Keys of the second family and the SMBIOS value that they mean.
const PRODUCT: [(&str, &str); 19] = [
    ("Product/Family", "System Information/Family"),
    ("Product/Name", "System Information/Product Name"),
    ("Product/SKU", "System Information/SKU Number"),
    ("Product/SerialNumber", "System Information/Serial Number"),
    ("Product/UUID", "System Information/UUID"),
    ("Product/Vendor", "System Information/Manufacturer"),
    ("Product/Version", "System Information/Version"),
    ("BIOS/Date", "BIOS Information/Release Date"),
    ("BIOS/Vendor", "BIOS Information/Vendor"),
    ("BIOS/Version", "BIOS Information/Version"),
    ("BaseBoard/AssetTag", "Base Board Information/Asset Tag"),
    ("BaseBoard/Product", "Base Board Information/Product Name"),
    ("BaseBoard/SerialNumber", "Base Board Information/Serial Number"),
    ("BaseBoard/Vendor", "Base Board Information/Manufacturer"),
    ("BaseBoard/Version", "Base Board Information/Version"),
    ("Chassis/AssetTag", "Chassis Information/Asset Tag"),
    ("Chassis/SerialNumber", "Chassis Information/Serial Number"),
    ("Chassis/TypeDescription", "Chassis Information/Type"),
    ("Chassis/Vendor", "Chassis Information/Manufacturer"),
];

/// What vendors write where they mean nothing. Rendered, it would give two
/// hosts one name.
const PLACEHOLDERS: [&str; 10] = [
    "not specified",
    "not present",
    "not settable",
    "none",
    "unknown",
    "unspecified",
    "default string",
    "to be filled by o.e.m.",
    "system serial number",
    "0123456789",
];

/// UUIDs that whole series of boards share.
const SHARED_UUIDS: [&str; 3] = [
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "03000200-0400-0500-0006-000700080009",
];

/// Every key with a usable value.
pub(super) fn fact_values(facts: &HostFacts) -> BTreeMap<String, String> {
    let mut values = smbios_values(facts);
    for (key, source) in PRODUCT {
        if let Some(value) = values.get(source).cloned() {
            values.insert(key.to_owned(), value);
        }
    }
    let mut set = |key: &str, value: String| {
        if means_something(&value) {
            values.insert(key.to_owned(), value.trim().to_owned());
        }
    };
    set("Runtime/Hostname", facts.hostname.clone());
    set("System Data/Runtime/Hostname", facts.hostname.clone());
    set("Memory/TotalPhysicalBytes", facts.memory_bytes.to_string());
    set("Memory/TotalUsableBytes", facts.memory_bytes.to_string());
    set("CPU/TotalThreads", facts.cpu_threads.to_string());
    set("CPU/Processor/Model", facts.cpu_model.clone());
    set("CPU/Processors/0/Model", facts.cpu_model.clone());
    set("Network/TotalNICs", facts.nics.len().to_string());
    for (index, nic) in facts.nics.iter().enumerate() {
        for place in [index.to_string(), nic.name.clone()] {
            set(&format!("Network/NICs/{place}/Name"), nic.name.clone());
            set(&format!("Network/NICs/{place}/MacAddress"), nic.mac.clone());
            if nic.speed_mbit > 0 {
                set(&format!("Network/NICs/{place}/Speed"), format!("{}Mb/s", nic.speed_mbit));
            }
        }
    }
    set("Storage/TotalDisks", facts.disks.len().to_string());
    for (index, disk) in facts.disks.iter().enumerate() {
        for place in [index.to_string(), disk.name.clone()] {
            set(&format!("Storage/Disks/{place}/Name"), disk.name.clone());
            set(&format!("Storage/Disks/{place}/Size"), disk.size_bytes.to_string());
            set(&format!("Storage/Disks/{place}/Model"), disk.model.clone());
            set(&format!("Storage/Disks/{place}/Removable"), disk.removable.to_string());
            let kind = if disk.rotational { "HDD" } else { "SSD" };
            set(&format!("Storage/Disks/{place}/DriveType"), kind.to_owned());
        }
    }
    values
}

/// The SMBIOS UUID, unless many hosts have it.
pub(super) fn system_uuid(facts: &HostFacts) -> Option<String> {
    smbios_values(facts).remove("System Information/UUID")
}

/// Sections by their titles; the last of a title counts, as a whole.
fn smbios_values(facts: &HostFacts) -> BTreeMap<String, String> {
    let sections: BTreeMap<_, _> =
        facts.smbios.iter().map(|section| (&section.title, &section.values)).collect();
    let entries =
        sections.into_iter().flat_map(|(title, values)| values.iter().map(move |entry| (title, entry)));
    entries
        .filter(|(_, (_, value))| means_something(value))
        .map(|(title, (key, value))| (format!("{title}/{key}"), value.trim().to_owned()))
        .collect()
}

fn means_something(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    !value.is_empty() && !PLACEHOLDERS.contains(&value.as_str()) && !SHARED_UUIDS.contains(&value.as_str())
}
