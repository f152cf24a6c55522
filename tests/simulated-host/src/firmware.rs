//! The SMBIOS tables that a kernel passes on.

/// What the firmware says of its host.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Serial number of the system.
    pub serial: &'a str,
    /// Last byte of its UUID; the rest is the same for all hosts.
    pub uuid_end: u8,
}

impl<'a> Identity<'a> {
    /// A host with this serial number, and a UUID that follows from it.
    pub fn of_serial(serial: &'a str) -> Self {
        Self { serial, uuid_end: serial.bytes().fold(0, u8::wrapping_add) }
    }

    /// As the kernel writes it.
    pub fn uuid(&self) -> String {
        format!("4c616200-0000-4000-8000-0000000000{:02x}", self.uuid_end)
    }
}

/// SMBIOS 3.0.
pub fn entry_point() -> Vec<u8> {
    let mut entry = b"_SM3_\0\x18\x03\x00\x00\x01\x00".to_vec();
    entry.extend(4096_u32.to_le_bytes());
    entry.extend(0_u64.to_le_bytes());
    let sum = entry.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    entry[5] = 0_u8.wrapping_sub(sum);
    entry
}

/// System information and the end.
pub fn tables(identity: Identity<'_>) -> Vec<u8> {
    // Manufacturer, product, version, serial number, UUID, wake-up, SKU, family.
    let mut table = vec![1, 27, 0, 1, 1, 2, 0, 3];
    // The first three fields of a UUID are little-endian.
    table.extend([0x00, 0x62, 0x61, 0x4c, 0, 0, 0x00, 0x40, 0x80, 0, 0, 0, 0, 0, 0]);
    table.push(identity.uuid_end);
    table.extend([6, 0, 0]);
    table.extend(b"Lab\0Simulated\0");
    table.extend(identity.serial.as_bytes());
    table.extend([0, 0]);
    table.extend([127, 4, 1, 1, 0, 0]);
    table
}

#[cfg(test)]
mod tests {
    use agent::ground::paths::Root;
    use agent::host::facts::smbios;

    use super::*;

    #[test]
    fn the_agent_reads_the_tables() {
        let directory = std::env::temp_dir().join(format!("simulated-host-{}", std::process::id()));
        let root = Root::at(&directory);
        let identity = Identity { serial: "S-1", uuid_end: 0xaa };
        let tables_directory = root.join("/sys/firmware/dmi/tables");
        std::fs::create_dir_all(&tables_directory).unwrap();
        std::fs::write(tables_directory.join("smbios_entry_point"), entry_point()).unwrap();
        std::fs::write(tables_directory.join("DMI"), tables(identity)).unwrap();
        let sections = smbios::read_sections(&root);
        std::fs::remove_dir_all(directory).unwrap();
        let system = sections.iter().find(|section| section.title == "System Information").unwrap();
        assert_eq!(
            (system.values["Serial Number"].as_str(), &system.values["UUID"]),
            ("S-1", &identity.uuid())
        );
    }
}
