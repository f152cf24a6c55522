//! The tables that firmware passes to the kernel. User Mode Linux has none: `lab-firmware.service` of `iso/uml` lays these
//! where the kernel shows them.

use crate::config::HostConfig;

/// System information: identity of the host (DSP0134, type 1).
const SYSTEM: u8 = 1;
const END: u8 = 127;

/// The table of a host. A UUID that is none becomes zeroes, which mean that it is absent.
pub(crate) fn build_table(config: &HostConfig) -> Vec<u8> {
    // Numbers of the strings below: manufacturer, product, version, serial number.
    let mut body = vec![1, 2, 0, 3];
    body.extend(encode_uuid(&config.uuid));
    // Wake-up type, SKU, family.
    body.extend([6, 0, 0]);
    let mut table = structure(SYSTEM, &body, &["lab", "lab host", &config.serial]);
    table.extend(structure(END, &[], &[]));
    table
}

fn structure(kind: u8, body: &[u8], strings: &[&str]) -> Vec<u8> {
    let length = u8::try_from(body.len() + 4).unwrap_or(u8::MAX);
    let mut bytes = vec![kind, length, 0, 0];
    bytes.extend(body);
    for string in strings {
        bytes.extend(string.as_bytes());
        bytes.push(0);
    }
    bytes.extend(if strings.is_empty() { &[0, 0][..] } else { &[0] });
    bytes
}

/// The first three parts are little-endian since version 2.6.
fn encode_uuid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(|char| *char != '-').collect();
    let mut bytes = u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_table_has_uuid_and_serial_number() {
        let config = HostConfig::new("one", Path::new("/d"), 7, &[]);
        let table = build_table(&config);
        assert_eq!(table[..8], [1, 27, 0, 0, 1, 2, 0, 3]);
        assert_eq!(table[8..24], [0, 0x62, 0x61, 0x4c, 0, 0, 0, 0x40, 0x80, 0, 0, 0, 0, 0, 0, 7]);
        assert!(table[27..].starts_with(b"lab\0lab host\0LAB-007\0\0"));
        assert!(table.ends_with(&[127, 4, 0, 0, 0, 0]));
    }
}
