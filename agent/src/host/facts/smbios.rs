//! The firmware's tables, with the titles and keys of `dmidecode`, so that name templates written
//! for `dmidecode` work.
//!
//! Every structure holds its own length, and firmware often writes shorter structures than its
//! version promises, so a field exists only if the length covers it. Values are kept unchanged,
//! even if they are known to be placeholders; an empty string is left out.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;

use proto::limits;
use proto::v1alpha1::SmbiosSection;

use crate::ground::paths::Root;

const TABLES: &str = "/sys/firmware/dmi/tables";
const HEADER: usize = 4;
/// Since this version the first three parts of the UUID are little-endian.
const UUID_LITTLE_ENDIAN: (u8, u8) = (2, 6);
const UUID_AT: usize = 8;
const OEM_STRINGS: u8 = 11;
const CHASSIS: u8 = 3;

/// Type, title, and the offsets of string fields (DSP0134).
type Section = (u8, &'static str, &'static [(usize, &'static str)]);
const SECTIONS: [Section; 6] = [
    (0, "BIOS Information", &[(4, "Vendor"), (5, "Version"), (8, "Release Date")]),
    (
        1,
        "System Information",
        &[
            (4, "Manufacturer"),
            (5, "Product Name"),
            (6, "Version"),
            (7, "Serial Number"),
            (0x19, "SKU Number"),
            (0x1a, "Family"),
        ],
    ),
    (
        2,
        "Base Board Information",
        &[
            (4, "Manufacturer"),
            (5, "Product Name"),
            (6, "Version"),
            (7, "Serial Number"),
            (8, "Asset Tag"),
            (0xa, "Location In Chassis"),
        ],
    ),
    (
        CHASSIS,
        "Chassis Information",
        &[(4, "Manufacturer"), (6, "Version"), (7, "Serial Number"), (8, "Asset Tag")],
    ),
    (
        4,
        "Processor Information",
        &[
            (4, "Socket Designation"),
            (7, "Manufacturer"),
            (0x10, "Version"),
            (0x20, "Serial Number"),
            (0x21, "Asset Tag"),
            (0x22, "Part Number"),
        ],
    ),
    (OEM_STRINGS, "OEM Strings", &[]),
];

/// Chassis types from 1 on, in the words of dmidecode(8).
const CHASSIS_TYPES: [&str; 36] = [
    "Other",
    "Unknown",
    "Desktop",
    "Low Profile Desktop",
    "Pizza Box",
    "Mini Tower",
    "Tower",
    "Portable",
    "Laptop",
    "Notebook",
    "Hand Held",
    "Docking Station",
    "All In One",
    "Sub Notebook",
    "Space-saving",
    "Lunch Box",
    "Main Server Chassis",
    "Expansion Chassis",
    "Sub Chassis",
    "Bus Expansion Chassis",
    "Peripheral Chassis",
    "RAID Chassis",
    "Rack Mount Chassis",
    "Sealed-case PC",
    "Multi-system",
    "CompactPCI",
    "AdvancedTCA",
    "Blade",
    "Blade Enclosing",
    "Tablet",
    "Convertible",
    "Detachable",
    "IoT Gateway",
    "Embedded PC",
    "Mini PC",
    "Stick PC",
];

/// Reads the tables that the kernel exports; empty on a machine without them.
pub fn read_sections(root: &Root) -> Vec<SmbiosSection> {
    let directory = root.join(TABLES);
    let Ok(table) = fs::read(directory.join("DMI")) else {
        return Vec::new();
    };
    let entry = fs::read(directory.join("smbios_entry_point")).unwrap_or_default();
    parse_table(&table, parse_version(&entry))
}

pub fn read_uuid(root: &Root) -> Option<String> {
    let sections = read_sections(root);
    let system = sections.into_iter().find(|section| section.title == "System Information");
    system.and_then(|mut section| section.values.remove("UUID"))
}

/// The version in an entry point of either format.
pub fn parse_version(entry: &[u8]) -> (u8, u8) {
    match entry {
        [b'_', b'S', b'M', b'3', b'_', _, _, major, minor, ..]
        | [b'_', b'S', b'M', b'_', _, _, major, minor, ..] => (*major, *minor),
        // Every machine of the last fifteen years has version 3.
        _ => (3, 0),
    }
}

/// Parses the table up to its end, or to the first structure with a wrong length.
fn parse_table(mut table: &[u8], version: (u8, u8)) -> Vec<SmbiosSection> {
    let mut sections = Vec::new();
    while let Some((structure, rest)) = next_structure(table) {
        table = rest;
        sections.extend(translate_structure(&structure, version));
        if sections.len() == limits::SMBIOS_SECTIONS {
            break;
        }
    }
    sections
}

struct Structure<'a> {
    kind: u8,
    formatted: &'a [u8],
    strings: Vec<String>,
}

impl Structure<'_> {
    fn string_at(&self, offset: usize) -> Option<&String> {
        let index = usize::from(*self.formatted.get(offset)?);
        self.strings.get(index.checked_sub(1)?)
    }
}

fn next_structure(table: &[u8]) -> Option<(Structure<'_>, &[u8])> {
    let [kind, length, ..] = *table.first_chunk::<HEADER>()?;
    if usize::from(length) < HEADER {
        return None;
    }
    let (formatted, rest) = table.split_at_checked(usize::from(length))?;
    // An empty string ends the strings; a structure without strings has two zeroes.
    let end = rest.windows(2).position(|pair| pair == [0, 0])?;
    let strings = rest[..end]
        .split(|byte| *byte == 0)
        .filter(|bytes| !bytes.is_empty())
        .map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned())
        .collect();
    Some((Structure { kind, formatted, strings }, &rest[end + 2..]))
}

fn translate_structure(structure: &Structure<'_>, version: (u8, u8)) -> Option<SmbiosSection> {
    let (_, title, fields) = SECTIONS.iter().find(|(kind, ..)| *kind == structure.kind)?;
    let mut values: HashMap<String, String> = fields
        .iter()
        .filter_map(|(offset, key)| Some(((*key).to_owned(), structure.string_at(*offset)?.clone())))
        .collect();
    match structure.kind {
        1 => values.extend(format_uuid(structure.formatted, version).map(|uuid| ("UUID".to_owned(), uuid))),
        CHASSIS => {
            values.extend(chassis_type(structure.formatted).map(|kind| ("Type".to_owned(), kind.to_owned())));
        }
        OEM_STRINGS => {
            let numbered = (1..).zip(&structure.strings);
            values.extend(numbered.map(|(number, text)| (format!("String {number}"), text.clone())));
        }
        _ => {}
    }
    values.retain(|_, value| !value.is_empty());
    Some(SmbiosSection { title: (*title).to_owned(), values })
}

fn format_uuid(formatted: &[u8], version: (u8, u8)) -> Option<String> {
    let mut bytes: [u8; 16] = *formatted.get(UUID_AT..)?.first_chunk()?;
    if bytes == [0; 16] || bytes == [0xff; 16] {
        return None;
    }
    if version >= UUID_LITTLE_ENDIAN {
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..8].reverse();
    }
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

fn chassis_type(formatted: &[u8]) -> Option<&'static str> {
    // The highest bit means that the chassis has a lock.
    let kind = usize::from(formatted.get(5)? & 0x7f);
    CHASSIS_TYPES.get(kind.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn structure(kind: u8, body: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![kind, u8::try_from(HEADER + body.len()).unwrap(), 0, 1];
        bytes.extend(body);
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        bytes.extend(if strings.is_empty() { [0, 0].as_slice() } else { &[0] });
        bytes
    }

    fn system(uuid: [u8; 16]) -> Vec<u8> {
        let mut body = vec![1, 2, 0, 3];
        body.extend(uuid);
        body.extend([6, 0, 4]);
        structure(1, &body, &["QEMU", "Standard PC", "  S-1 ", "fam"])
    }

    fn value<'a>(sections: &'a [SmbiosSection], title: &str, key: &str) -> Option<&'a str> {
        let section = sections.iter().find(|section| section.title == title)?;
        section.values.get(key).map(String::as_str)
    }

    const UUID: [u8; 16] =
        [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];

    #[test]
    fn a_system_is_told_as_dmidecode_tells_it() {
        let sections = parse_table(&system(UUID), (2, 8));
        for (key, want) in [
            ("Manufacturer", Some("QEMU")),
            ("Product Name", Some("Standard PC")),
            ("Version", None),
            ("Serial Number", Some("S-1")),
            ("Family", Some("fam")),
            ("UUID", Some("00112233-4455-6677-8899-aabbccddeeff")),
        ] {
            assert_eq!(value(&sections, "System Information", key), want, "{key}");
        }
    }

    #[test]
    fn the_uuid_follows_the_version_of_the_tables() {
        for (name, bytes, version, want) in [
            ("old order", UUID, (2, 5), Some("33221100-5544-7766-8899-aabbccddeeff")),
            ("new order", UUID, (3, 2), Some("00112233-4455-6677-8899-aabbccddeeff")),
            ("not settable", [0; 16], (3, 2), None),
            ("not present", [0xff; 16], (3, 2), None),
        ] {
            let sections = parse_table(&system(bytes), version);
            assert_eq!(value(&sections, "System Information", "UUID"), want, "{name}");
        }
        assert_eq!(parse_version(b"_SM_\x00\x1f\x02\x05\x00"), (2, 5));
        assert_eq!(parse_version(b"_SM3_\x00\x18\x03\x02\x00"), (3, 2));
        assert_eq!(parse_version(b""), (3, 0));
    }

    #[test]
    fn structures_after_each_other_are_all_told() {
        let mut table = structure(0, &[1, 2, 0, 0, 3], &["SeaBIOS", "1.16", "04/01/2014"]);
        table.extend(structure(126, &[], &[]));
        table.extend(structure(3, &[1, 0x97, 0, 0, 0], &["QEMU"]));
        table.extend(structure(11, &[2], &["rack=7", "u=12"]));
        let sections = parse_table(&table, (2, 8));
        assert_eq!(value(&sections, "BIOS Information", "Release Date"), Some("04/01/2014"));
        assert_eq!(value(&sections, "Chassis Information", "Type"), Some("Rack Mount Chassis"));
        assert_eq!(value(&sections, "OEM Strings", "String 2"), Some("u=12"));
    }

    /// Structures of each kind that is told, and where each ends.
    fn table() -> (Vec<u8>, Vec<usize>) {
        let structures = [
            structure(0, &[1, 2, 0, 0, 3], &["SeaBIOS", "1.16", "04/01/2014"]),
            system(UUID),
            structure(3, &[1, 0x97, 0, 2, 3], &["QEMU", "C-1", "rack 7"]),
            structure(11, &[2], &["rack=7", "u=12"]),
            structure(11, &[1], &["x"]),
        ];
        let ends = structures.iter().scan(0, |end, one| {
            *end += one.len();
            Some(*end)
        });
        (structures.concat(), ends.collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damaged_table_is_read_up_to_damage(
            at in any::<prop::sample::Index>(), byte: u8, removed in 0..3_usize, added in 0..2_usize,
        ) {
            let (mut table, ends) = table();
            let whole = parse_table(&table, (2, 8));
            let at = at.index(table.len());
            let end = (at + removed).min(table.len());
            table.splice(at..end, std::iter::repeat_n(byte, added));
            let told = parse_table(&table, (2, 8));
            let before = ends.iter().filter(|end| **end <= at).count();
            prop_assert_eq!(told.get(..before), Some(&whole[..before]));
            let text = String::from_utf8_lossy(&table).into_owned();
            for section in &told {
                prop_assert!(SECTIONS.iter().any(|(_, title, _)| *title == section.title));
                for (key, value) in &section.values {
                    let is_made = (key == "UUID" && value.len() == 36) || key == "Type";
                    prop_assert!(!value.is_empty() && (is_made || text.contains(value)), "{}: {}", key, value);
                }
            }
        }
    }

    #[test]
    fn a_truncated_table_is_read_partially() {
        let (table, ends) = table();
        let whole = parse_table(&table, (2, 8));
        assert_eq!(whole.len(), ends.len());
        for length in 0..=table.len() {
            let complete = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(parse_table(&table[..length], (2, 8)), whole[..complete], "{length} bytes");
        }
        let short = structure(1, &[1, 9], &["only"]);
        let sections = parse_table(&short, (3, 0));
        assert_eq!(value(&sections, "System Information", "Manufacturer"), Some("only"));
        assert_eq!(sections[0].values.len(), 1, "a string index past the strings is no string");
    }
}
