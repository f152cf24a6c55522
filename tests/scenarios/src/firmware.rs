//! The tables that a host's firmware passes on.

/// SMBIOS 3.0.
pub(crate) fn entry_point() -> Vec<u8> {
    let mut entry = b"_SM3_\0\x18\x03\x00\x00\x01\x00".to_vec();
    entry.extend(4096_u32.to_le_bytes());
    entry.extend(0_u64.to_le_bytes());
    let sum = entry.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    entry[5] = 0_u8.wrapping_sub(sum);
    entry
}

/// System information with this serial number, and the end.
pub(crate) fn tables(serial: &str) -> Vec<u8> {
    // Manufacturer, product, version, serial number, UUID, wake-up, SKU, family.
    let mut table = vec![1, 27, 0, 1, 1, 2, 0, 3];
    table.extend([0x00, 0x62, 0x61, 0x4c, 0, 0, 0x00, 0x40, 0x80, 0, 0, 0, 0, 0, 0]);
    table.push(serial.bytes().fold(0, u8::wrapping_add));
    table.extend([6, 0, 0]);
    table.extend(b"Lab\0Simulated\0");
    table.extend(serial.as_bytes());
    table.extend([0, 0]);
    table.extend([127, 4, 1, 1, 0, 0]);
    table
}
