//! Facts of a host by the keys of templates. The keys are the keys of all versions of the
//! elemental operator.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::v1alpha1::{Disk, GraphicsCard, HostFacts, Nic, Processor};

/// Keys of the newer versions, with the older key of the same SMBIOS value.
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

/// Placeholders of vendors for unknown values. They are left out because two hosts would get
/// the same name from them.
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

/// First labels of host names that systems have when DHCP gives them none.
const UNNAMED: [&str; 4] = ["localhost", "localhost4", "localhost6", "(none)"];

/// UUIDs that all boards of a series share.
const SHARED_UUIDS: [&str; 3] = [
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "03000200-0400-0500-0006-000700080009",
];

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
        if is_host_name(&facts.hostname) {
            values.set(key, &facts.hostname);
        }
    }
    values.set_memory(facts);
    values.set_processors(facts);
    values.set_graphics(&facts.graphics_cards);
    values.set_nics(&facts.nics);
    values.set_disks(&facts.disks);
    values.0
}

/// The SMBIOS UUID, unless it is a placeholder.
pub fn system_uuid(facts: &HostFacts) -> Option<String> {
    smbios_values(facts).remove("System Information/UUID")
}

/// SMBIOS values by title and key. Only the last section of each title counts.
fn smbios_values(facts: &HostFacts) -> BTreeMap<String, String> {
    let sections: BTreeMap<_, _> =
        facts.smbios.iter().map(|section| (&section.title, &section.values)).collect();
    let entries =
        sections.into_iter().flat_map(|(title, values)| values.iter().map(move |entry| (title, entry)));
    entries
        .filter(|(_, (_, value))| is_known(value))
        .map(|(title, (key, value))| (format!("{title}/{key}"), value.trim().to_owned()))
        .collect()
}

/// The name is the host's own, and not one that every system without a name has.
fn is_host_name(name: &str) -> bool {
    let first = name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    !UNNAMED.contains(&first.as_str())
}

fn is_known(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    !value.is_empty() && !PLACEHOLDERS.contains(&value.as_str()) && !SHARED_UUIDS.contains(&value.as_str())
}

impl Values {
    fn set(&mut self, key: &str, value: &str) {
        if is_known(value) {
            self.0.insert(key.to_owned(), value.trim().to_owned());
        }
    }

    fn set_below<const N: usize>(&mut self, place: &str, values: [(&str, &str); N]) {
        for (key, value) in values {
            self.set(&format!("{place}/{key}"), value);
        }
    }

    /// Zero stands for an unknown number.
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
        // An older agent reports all sockets as one.
        let unnamed =
            Processor { model: facts.cpu_model.clone(), threads: facts.cpu_threads, ..Processor::default() };
        let is_named = facts.cpu_threads > 0 || !facts.cpu_model.is_empty();
        let processors = match facts.processors.as_slice() {
            [] if is_named => std::slice::from_ref(&unnamed),
            processors => processors,
        };
        let cores = processors.iter().map(|processor| u64::from(processor.cores)).sum();
        let threads = processors.iter().map(|processor| u64::from(processor.threads)).sum();
        for (key, legacy, count) in
            [("TotalCores", "Total Cores", cores), ("TotalThreads", "Total Threads", threads)]
        {
            self.set_number(&format!("CPU/{key}"), count);
            self.set_number(&format!("System Data/CPU/{legacy}"), count);
        }
        self.set_number("CPU/TotalProcessors", facts.processors.len() as u64);
        for (index, processor) in processors.iter().enumerate() {
            let capabilities = processor.capabilities.join(" ");
            let named: [(&str, &str); 3] =
                [("Model", &processor.model), ("Vendor", &processor.vendor), ("Capabilities", &capabilities)];
            let first = (index == 0).then(|| "CPU/Processor".to_owned());
            for place in first.into_iter().chain([format!("CPU/Processors/{index}")]) {
                self.set(&format!("{place}/ID"), &processor.id.to_string());
                self.set_below(&place, named);
                self.set_number(&format!("{place}/NumCores"), processor.cores.into());
                self.set_number(&format!("{place}/NumThreads"), processor.threads.into());
            }
            if index == 0 {
                self.set_below("System Data/CPU", named);
            }
        }
    }

    fn set_graphics(&mut self, cards: &[GraphicsCard]) {
        self.set("GPU/TotalCards", &cards.len().to_string());
        for (index, card) in cards.iter().enumerate() {
            let place = format!("GPU/GraphicsCards/{index}");
            let [driver, product, vendor] = [&card.driver, &card.product, &card.vendor];
            self.set_below(&place, [("Driver", driver), ("ProductName", product), ("VendorName", vendor)]);
        }
        if let Some(card) = cards.first() {
            self.set_below("System Data/GPU", [("Model", &card.product), ("Vendor", &card.vendor)]);
        }
    }

    /// Each interface has keys by its index, its name and its MAC address.
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
            self.set_below(&legacy, [("Name", &nic.name), ("MacAddress", &nic.mac), ("IsVirtual", "false")]);
        }
    }

    fn set_nic(&mut self, place: &str, nic: &Nic) {
        let values: [(&str, &str); 5] = [
            ("Name", &nic.name),
            ("MacAddress", &nic.mac),
            // Virtual interfaces are not reported.
            ("IsVirtual", "false"),
            ("Duplex", &nic.duplex),
            ("PCIAddress", &nic.pci_address),
        ];
        self.set_below(place, values);
        if nic.speed_mbit > 0 {
            self.set(&format!("{place}/Speed"), &format!("{}Mb/s", nic.speed_mbit));
        }
        let addresses = nic.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
        let (v4, v6): (Vec<_>, Vec<_>) = addresses.partition(IpAddr::is_ipv4);
        for (family, addresses) in [("IPv4", v4), ("IPv6", v6)] {
            for (index, address) in addresses.iter().enumerate() {
                let address = address.to_string();
                if index == 0 {
                    self.set(&format!("{place}/{family}Address"), &address);
                }
                self.set(&format!("{place}/{family}Addresses/{index}"), &address);
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
            let values: [(&str, &str); 3] =
                [("Name", &disk.name), ("Size", &size), ("Removable", &removable)];
            for place in [&index.to_string(), &disk.name] {
                let place = format!("Storage/Disks/{place}");
                self.set_below(&place, values);
                self.set_below(
                    &place,
                    [
                        ("Model", &disk.model),
                        ("DriveType", kind),
                        ("StorageController", &disk.storage_controller),
                    ],
                );
            }
            let legacy = format!("System Data/Block Devices/{}", disk.name);
            self.set_below(&legacy, values);
            self.set_below(&legacy, [("Drive Type", kind), ("Storage Controller", &disk.storage_controller)]);
        }
    }
}

#[cfg(test)]
mod tests;
