//! What a host reports, by the keys that templates use: those of the elemental
//! operator, of all its versions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::v1alpha1::{Disk, GraphicsCard, HostFacts, Nic, Processor};

/// Keys of the second family and the SMBIOS value that they mean.
const PRODUCT: [(&str, &str); 20] = [
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
    ("Chassis/Version", "Chassis Information/Version"),
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

type IsFamily = fn(&IpAddr) -> bool;

/// Facts by the keys of templates.
struct Values(BTreeMap<String, String>);

/// Every key with a usable value.
pub fn fact_values(facts: &HostFacts) -> BTreeMap<String, String> {
    let mut values = Values(smbios_values(facts));
    for (key, source) in PRODUCT {
        if let Some(value) = values.0.get(source).cloned() {
            values.0.insert(key.to_owned(), value);
        }
    }
    values.set_number("Chassis/Type", facts.chassis_type.into());
    for key in ["Runtime/Hostname", "System Data/Runtime/Hostname"] {
        values.set(key, &facts.hostname);
    }
    values.set_memory(facts);
    values.set_processors(facts);
    values.set_graphics(&facts.graphics_cards);
    values.set_nics(&facts.nics);
    values.set_disks(&facts.disks);
    values.0
}

/// The SMBIOS UUID, unless many hosts have it.
pub fn system_uuid(facts: &HostFacts) -> Option<String> {
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

impl Values {
    fn set(&mut self, key: &str, value: &str) {
        if means_something(value) {
            self.0.insert(key.to_owned(), value.trim().to_owned());
        }
    }

    /// Zero is unknown.
    fn set_number(&mut self, key: &str, number: u64) {
        if number > 0 {
            self.set(key, &number.to_string());
        }
    }

    fn set_memory(&mut self, facts: &HostFacts) {
        let usable = facts.memory_bytes;
        let physical = facts.physical_memory_bytes.max(usable);
        for (key, legacy, bytes) in [
            ("TotalPhysicalBytes", "Total Physical Bytes", physical),
            ("TotalUsableBytes", "Total Usable Bytes", usable),
        ] {
            self.set_number(&format!("Memory/{key}"), bytes);
            self.set_number(&format!("System Data/Memory/{legacy}"), bytes);
        }
        let sizes: Vec<_> = facts.page_sizes.iter().map(u64::to_string).collect();
        self.set("Memory/SupportedPageSizes", &sizes.join(" "));
    }

    fn set_processors(&mut self, facts: &HostFacts) {
        // Of an agent that does not tell sockets apart.
        let unnamed =
            Processor { model: facts.cpu_model.clone(), threads: facts.cpu_threads, ..Processor::default() };
        let is_named = facts.cpu_threads > 0 || !facts.cpu_model.is_empty();
        let processors = match facts.processors.as_slice() {
            [] if is_named => std::slice::from_ref(&unnamed),
            processors => processors,
        };
        let sum = |count: fn(&Processor) -> u32| {
            processors.iter().map(|found| u64::from(count(found))).sum::<u64>()
        };
        let (cores, threads) = (sum(|found| found.cores), sum(|found| found.threads));
        for (key, legacy, count) in
            [("TotalCores", "Total Cores", cores), ("TotalThreads", "Total Threads", threads)]
        {
            self.set_number(&format!("CPU/{key}"), count);
            self.set_number(&format!("System Data/CPU/{legacy}"), count);
        }
        self.set_number("CPU/TotalProcessors", facts.processors.len() as u64);
        for (index, processor) in processors.iter().enumerate() {
            let capabilities = processor.capabilities.join(" ");
            let first = (index == 0).then(|| "Processor".to_owned());
            for place in first.into_iter().chain([format!("Processors/{index}")]) {
                let mut set = |key: &str, value: &str| self.set(&format!("CPU/{place}/{key}"), value);
                set("ID", &processor.id.to_string());
                set("Model", &processor.model);
                set("Vendor", &processor.vendor);
                set("Capabilities", &capabilities);
                self.set_number(&format!("CPU/{place}/NumCores"), processor.cores.into());
                self.set_number(&format!("CPU/{place}/NumThreads"), processor.threads.into());
            }
            if index == 0 {
                self.set("System Data/CPU/Model", &processor.model);
                self.set("System Data/CPU/Vendor", &processor.vendor);
                self.set("System Data/CPU/Capabilities", &capabilities);
            }
        }
    }

    fn set_graphics(&mut self, cards: &[GraphicsCard]) {
        self.set("GPU/TotalCards", &cards.len().to_string());
        for (index, card) in cards.iter().enumerate() {
            let place = format!("GPU/GraphicsCards/{index}");
            self.set(&format!("{place}/Driver"), &card.driver);
            self.set(&format!("{place}/ProductName"), &card.product);
            self.set(&format!("{place}/VendorName"), &card.vendor);
        }
        if let Some(card) = cards.first() {
            self.set("System Data/GPU/Model", &card.product);
            self.set("System Data/GPU/Vendor", &card.vendor);
        }
    }

    /// By index, name and address.
    fn set_nics(&mut self, nics: &[Nic]) {
        let total = nics.len().to_string();
        self.set("Network/TotalNICs", &total);
        self.set("System Data/Network/Number Interfaces", &total);
        for (index, nic) in nics.iter().enumerate() {
            for place in [&index.to_string(), &nic.name, &nic.mac] {
                if !place.is_empty() {
                    self.set_nic(&format!("Network/NICs/{place}"), nic);
                }
            }
            let legacy = format!("System Data/Network/{}", nic.name);
            self.set(&format!("{legacy}/Name"), &nic.name);
            self.set(&format!("{legacy}/MacAddress"), &nic.mac);
            self.set(&format!("{legacy}/IsVirtual"), "false");
        }
    }

    fn set_nic(&mut self, place: &str, nic: &Nic) {
        let mut set = |key: &str, value: &str| self.set(&format!("{place}/{key}"), value);
        set("Name", &nic.name);
        set("MacAddress", &nic.mac);
        // Interfaces without a device are not reported.
        set("IsVirtual", "false");
        set("Duplex", &nic.duplex);
        set("PCIAddress", &nic.pci_address);
        if nic.speed_mbit > 0 {
            set("Speed", &format!("{}Mb/s", nic.speed_mbit));
        }
        let addresses = || nic.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        let families: [(&str, IsFamily); 2] = [("IPv4", IpAddr::is_ipv4), ("IPv6", IpAddr::is_ipv6)];
        for (family, is_meant) in families {
            for (index, address) in addresses().filter(is_meant).enumerate() {
                let address = address.to_string();
                if index == 0 {
                    set(&format!("{family}Address"), &address);
                }
                set(&format!("{family}Addresses/{index}"), &address);
            }
        }
    }

    fn set_disks(&mut self, disks: &[Disk]) {
        let total = disks.len().to_string();
        self.set("Storage/TotalDisks", &total);
        self.set("System Data/Block Devices/Number Devices", &total);
        for (index, disk) in disks.iter().enumerate() {
            let size = disk.size_bytes.to_string();
            let kind = if disk.rotational { "HDD" } else { "SSD" };
            let removable = disk.removable.to_string();
            for place in [&index.to_string(), &disk.name] {
                let mut set =
                    |key: &str, value: &str| self.set(&format!("Storage/Disks/{place}/{key}"), value);
                set("Name", &disk.name);
                set("Size", &size);
                set("Model", &disk.model);
                set("Removable", &removable);
                set("DriveType", kind);
                set("StorageController", &disk.storage_controller);
            }
            let legacy = format!("System Data/Block Devices/{}", disk.name);
            let mut set = |key: &str, value: &str| self.set(&format!("{legacy}/{key}"), value);
            set("Name", &disk.name);
            set("Size", &size);
            set("Removable", &removable);
            set("Drive Type", kind);
            set("Storage Controller", &disk.storage_controller);
        }
    }
}

#[cfg(test)]
mod tests;
