//! Every family of keys, by the names that manifests use.

use super::*;
use crate::v1alpha1::SmbiosSection;

fn section(title: &str, values: &[(&str, &str)]) -> SmbiosSection {
    let values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    SmbiosSection { title: title.to_owned(), values: values.collect() }
}

fn sections() -> Vec<SmbiosSection> {
    vec![
        section(
            "System Information",
            &[
                ("UUID", "4c4c4544-0000-4000-8000-000000000001"),
                ("Manufacturer", "Lab"),
                ("Product Name", "R1"),
                ("Serial Number", "S1"),
                ("SKU Number", "K1"),
                ("Family", "F1"),
                ("Version", "V1"),
            ],
        ),
        section("BIOS Information", &[("Vendor", "B"), ("Version", "1.2"), ("Release Date", "01/02/2024")]),
        section(
            "Base Board Information",
            &[
                ("Manufacturer", "M"),
                ("Product Name", "P"),
                ("Version", "V"),
                ("Serial Number", "S"),
                ("Asset Tag", "A"),
            ],
        ),
        section(
            "Chassis Information",
            &[
                ("Manufacturer", "C"),
                ("Type", "Rack Mount Chassis"),
                ("Version", "V"),
                ("Serial Number", "CS"),
                ("Asset Tag", "None"),
            ],
        ),
        section("Processor Information", &[("Socket Designation", "CPU 0")]),
        section("Processor Information", &[("Socket Designation", "CPU 1")]),
        section("OEM Strings", &[("String 1", "rack=7")]),
    ]
}

fn host() -> HostFacts {
    HostFacts {
        smbios: sections(),
        chassis_type: 23,
        hostname: "host-a".into(),
        memory_bytes: 1000,
        physical_memory_bytes: 1024,
        page_sizes: vec![2_097_152, 1_073_741_824],
        processors: (0..2)
            .map(|id| Processor {
                id,
                vendor: "GenuineIntel".into(),
                model: "Xeon".into(),
                cores: 4,
                threads: 8,
                capabilities: vec!["fpu".into(), "vmx".into()],
            })
            .collect(),
        graphics_cards: vec![GraphicsCard {
            driver: "nvidia".into(),
            vendor: "10de".into(),
            product: "20b0".into(),
        }],
        nics: vec![Nic {
            name: "eth0".into(),
            mac: "52:54:00:00:00:01".into(),
            speed_mbit: 1000,
            addresses: vec!["192.0.2.1".into(), "2001:db8::1".into(), "192.0.2.2".into(), "odd".into()],
            duplex: "full".into(),
            pci_address: "0000:00:03.0".into(),
        }],
        disks: vec![Disk {
            name: "nvme0n1".into(),
            size_bytes: 512,
            model: "D".into(),
            storage_controller: "NVMe".into(),
            ..Disk::default()
        }],
        ..HostFacts::default()
    }
}

/// Names and values of each family.
const WANT: &[(&str, &str)] = &[
    ("System Information/UUID", "4c4c4544-0000-4000-8000-000000000001"),
    ("System Information/Manufacturer", "Lab"),
    ("System Information/Product Name", "R1"),
    ("System Information/Serial Number", "S1"),
    ("BIOS Information/Vendor", "B"),
    ("Base Board Information/Serial Number", "S"),
    ("Chassis Information/Type", "Rack Mount Chassis"),
    ("Processor Information/Socket Designation", "CPU 1"),
    ("OEM Strings/String 1", "rack=7"),
    ("Product/Family", "F1"),
    ("Product/Name", "R1"),
    ("Product/SKU", "K1"),
    ("Product/SerialNumber", "S1"),
    ("Product/UUID", "4c4c4544-0000-4000-8000-000000000001"),
    ("Product/Vendor", "Lab"),
    ("Product/Version", "V1"),
    ("BIOS/Date", "01/02/2024"),
    ("BIOS/Vendor", "B"),
    ("BIOS/Version", "1.2"),
    ("BaseBoard/AssetTag", "A"),
    ("BaseBoard/Product", "P"),
    ("BaseBoard/SerialNumber", "S"),
    ("BaseBoard/Vendor", "M"),
    ("BaseBoard/Version", "V"),
    ("Chassis/SerialNumber", "CS"),
    ("Chassis/Type", "23"),
    ("Chassis/TypeDescription", "Rack Mount Chassis"),
    ("Chassis/Vendor", "C"),
    ("Chassis/Version", "V"),
    ("Memory/TotalPhysicalBytes", "1024"),
    ("Memory/TotalUsableBytes", "1000"),
    ("Memory/SupportedPageSizes", "2097152 1073741824"),
    ("CPU/TotalCores", "8"),
    ("CPU/TotalThreads", "16"),
    ("CPU/TotalProcessors", "2"),
    ("CPU/Processor/Model", "Xeon"),
    ("CPU/Processors/0/ID", "0"),
    ("CPU/Processors/1/ID", "1"),
    ("CPU/Processors/1/Model", "Xeon"),
    ("CPU/Processors/1/Vendor", "GenuineIntel"),
    ("CPU/Processors/1/NumCores", "4"),
    ("CPU/Processors/1/NumThreads", "8"),
    ("CPU/Processors/1/Capabilities", "fpu vmx"),
    ("GPU/TotalCards", "1"),
    ("GPU/GraphicsCards/0/Driver", "nvidia"),
    ("GPU/GraphicsCards/0/ProductName", "20b0"),
    ("GPU/GraphicsCards/0/VendorName", "10de"),
    ("Network/TotalNICs", "1"),
    ("Network/NICs/0/Name", "eth0"),
    ("Network/NICs/eth0/MacAddress", "52:54:00:00:00:01"),
    ("Network/NICs/52:54:00:00:00:01/Name", "eth0"),
    ("Network/NICs/0/IPv4Address", "192.0.2.1"),
    ("Network/NICs/eth0/IPv4Addresses/1", "192.0.2.2"),
    ("Network/NICs/eth0/IPv6Address", "2001:db8::1"),
    ("Network/NICs/0/IPv6Addresses/0", "2001:db8::1"),
    ("Network/NICs/0/IsVirtual", "false"),
    ("Network/NICs/0/Speed", "1000Mb/s"),
    ("Network/NICs/0/Duplex", "full"),
    ("Network/NICs/0/PCIAddress", "0000:00:03.0"),
    ("Storage/TotalDisks", "1"),
    ("Storage/Disks/0/Size", "512"),
    ("Storage/Disks/nvme0n1/Name", "nvme0n1"),
    ("Storage/Disks/0/DriveType", "SSD"),
    ("Storage/Disks/0/StorageController", "NVMe"),
    ("Storage/Disks/0/Removable", "false"),
    ("Storage/Disks/0/Model", "D"),
    ("Runtime/Hostname", "host-a"),
    ("System Data/Memory/Total Physical Bytes", "1024"),
    ("System Data/Memory/Total Usable Bytes", "1000"),
    ("System Data/CPU/Total Cores", "8"),
    ("System Data/CPU/Total Threads", "16"),
    ("System Data/CPU/Model", "Xeon"),
    ("System Data/CPU/Vendor", "GenuineIntel"),
    ("System Data/CPU/Capabilities", "fpu vmx"),
    ("System Data/GPU/Model", "20b0"),
    ("System Data/GPU/Vendor", "10de"),
    ("System Data/Network/Number Interfaces", "1"),
    ("System Data/Network/eth0/MacAddress", "52:54:00:00:00:01"),
    ("System Data/Network/eth0/IsVirtual", "false"),
    ("System Data/Block Devices/Number Devices", "1"),
    ("System Data/Block Devices/nvme0n1/Size", "512"),
    ("System Data/Block Devices/nvme0n1/Drive Type", "SSD"),
    ("System Data/Block Devices/nvme0n1/Storage Controller", "NVMe"),
    ("System Data/Runtime/Hostname", "host-a"),
];

#[test]
fn every_family_has_its_keys() {
    let values = fact_values(&host());
    for (key, want) in WANT.iter().copied() {
        assert_eq!(values.get(key).map(String::as_str), Some(want), "{key}");
    }
    assert_eq!(values.get("Chassis/AssetTag"), None, "a placeholder is no value");
}

#[test]
fn what_is_not_reported_has_no_key() {
    let values = fact_values(&HostFacts::default());
    let keys: Vec<_> = values.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "GPU/TotalCards",
            "Network/TotalNICs",
            "Storage/TotalDisks",
            "System Data/Block Devices/Number Devices",
            "System Data/Network/Number Interfaces",
        ]
    );
    let facts = HostFacts { cpu_threads: 4, cpu_model: "old".into(), ..HostFacts::default() };
    let values = fact_values(&facts);
    assert_eq!(values["CPU/TotalThreads"], "4", "of an older agent");
    assert_eq!(values["CPU/Processor/Model"], "old");
}

#[test]
fn name_of_every_unnamed_system_is_no_name() {
    for (hostname, want) in [
        ("node-7.rack.example", Some("node-7.rack.example")),
        ("localhost-7", Some("localhost-7")),
        ("localhost", None),
        ("LOCALHOST.localdomain", None),
        ("localhost6.localdomain6", None),
        ("(none)", None),
        ("", None),
    ] {
        let facts = HostFacts { hostname: hostname.to_owned(), ..HostFacts::default() };
        let values = fact_values(&facts);
        for key in ["Runtime/Hostname", "System Data/Runtime/Hostname"] {
            assert_eq!(values.get(key).map(String::as_str), want, "{hostname} {key}");
        }
    }
}
