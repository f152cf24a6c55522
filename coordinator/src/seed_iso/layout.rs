//! Where the reserved file lies in an ISO 9660 image: just enough of the format
//! to find one file of the root directory (ECMA-119, Rock Ridge IEEE P1282).

/// Bytes of a logical sector.
pub const SECTOR: u64 = 2048;
/// Sector of the primary volume descriptor.
pub const DESCRIPTOR: u64 = 16;
/// Largest root directory that is read, bytes.
pub const ROOT_BYTES: u64 = 1024 * 1024;

/// A run of bytes in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// Why the reserved file cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No primary volume descriptor.
    #[error("the base image is no ISO 9660 image")]
    NotIso,
    /// Offsets that lead nowhere.
    #[error("the root directory of the base image is garbled")]
    Garbled,
    /// Not there.
    #[error("the base image has no file {0}")]
    Missing(String),
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let raw = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(raw.try_into().ok()?))
}

/// Reads extent and length of a directory record.
fn parse_extent(record: &[u8]) -> Option<Extent> {
    let (sector, len) = (u32_at(record, 2)?, u32_at(record, 10)?);
    Some(Extent { at: u64::from(sector) * SECTOR, len: u64::from(len) })
}

/// The root directory, from the primary volume descriptor.
///
/// # Errors
/// [`LayoutError`].
pub fn parse_root(descriptor: &[u8]) -> Result<Extent, LayoutError> {
    if descriptor.len() < 190 || descriptor[0] != 1 || descriptor[1..6] != *b"CD001" {
        return Err(LayoutError::NotIso);
    }
    let root = parse_extent(&descriptor[156..190]).ok_or(LayoutError::Garbled)?;
    if root.len == 0 || root.len > ROOT_BYTES {
        return Err(LayoutError::Garbled);
    }
    Ok(root)
}

/// The extent of the file `name` in a root directory's bytes.
///
/// # Errors
/// [`LayoutError`].
pub fn parse_file(root: &[u8], name: &str) -> Result<Extent, LayoutError> {
    let mut at = 0;
    while at < root.len() {
        let len = usize::from(root[at]);
        if len == 0 {
            // Records do not cross sectors: the rest of this one is padding.
            at = (at / 2048 + 1) * 2048;
            continue;
        }
        let record = root.get(at..at + len).ok_or(LayoutError::Garbled)?;
        if is_named(record, name).ok_or(LayoutError::Garbled)? {
            return plain_file(record).ok_or(LayoutError::Garbled);
        }
        at += len;
    }
    Err(LayoutError::Missing(name.to_owned()))
}

/// A file in one piece: bits 1 and 7 of the flags are directory and more to
/// come.
fn plain_file(record: &[u8]) -> Option<Extent> {
    (record.get(25)? & 0x82 == 0).then(|| parse_extent(record)).flatten()
}

fn is_named(record: &[u8], name: &str) -> Option<bool> {
    let len = usize::from(*record.get(32)?);
    let plain = record.get(33..33 + len)?;
    // The name is padded to an even offset.
    let system_use = record.get(33 + len + (1 - len % 2)..).unwrap_or_default();
    let known = rock_ridge_name(system_use).unwrap_or_else(|| plain.to_vec());
    let text = String::from_utf8_lossy(&known);
    let text = text.strip_suffix(";1").unwrap_or(&text);
    Some(text.eq_ignore_ascii_case(name))
}

/// The NM entries of a record, joined; nothing without Rock Ridge.
fn rock_ridge_name(mut entries: &[u8]) -> Option<Vec<u8>> {
    let mut name: Option<Vec<u8>> = None;
    while let [one, two, len, _, rest @ ..] = entries {
        let len = usize::from(*len);
        if len < 4 || len > entries.len() {
            break;
        }
        if (*one, *two) == (b'N', b'M') && len > 5 {
            name.get_or_insert_default().extend(&rest[1..len - 4]);
        }
        entries = &entries[len..];
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(name: &[u8], system_use: &[u8], flags: u8) -> Vec<u8> {
        let mut record = vec![0; 33];
        record[2..6].copy_from_slice(&100_u32.to_le_bytes());
        record[10..14].copy_from_slice(&65536_u32.to_le_bytes());
        record[25] = flags;
        record[32] = u8::try_from(name.len()).unwrap();
        record.extend(name);
        if name.len().is_multiple_of(2) {
            record.push(0);
        }
        record.extend(system_use);
        record[0] = u8::try_from(record.len()).unwrap();
        record
    }

    fn nm(name: &[u8]) -> Vec<u8> {
        let len = u8::try_from(name.len() + 5).unwrap();
        [b"NM", &[len, 1, 0][..], name].concat()
    }

    #[test]
    fn a_file_is_found_by_its_real_name_or_its_plain_one() {
        let want = Ok(Extent { at: 204_800, len: 65536 });
        let name = "livecd-cloud-config.yaml";
        let missing = Err(LayoutError::Missing(name.to_owned()));
        let dots = record(&[0], b"", 2);
        let (long, short) = (nm(name.as_bytes()), nm(b"other.yaml"));
        let split = [nm(b"livecd-cloud"), nm(b"-config.yaml")].concat();
        let mut padded = dots.clone();
        padded.resize(2048, 0);
        for (case, root, want) in [
            ("Rock Ridge", record(b"LIVECD_C.YAM;1", &long, 0), want.clone()),
            ("Rock Ridge in two entries", record(b"LIVECD_C.YAM;1", &split, 0), want.clone()),
            (
                "after an attribute",
                record(b"L", &[b"PX\x08\x01\0\0\0\0", &long[..]].concat(), 0),
                want.clone(),
            ),
            ("plain", record(b"LIVECD-CLOUD-CONFIG.YAML;1", b"", 0), want.clone()),
            (
                "after another",
                [dots.clone(), record(b"O", &short, 0), record(b"L", &long, 0)].concat(),
                want.clone(),
            ),
            ("in the next sector", [padded, record(b"L", &long, 0)].concat(), want),
            ("only another", record(b"LIVECD_C.YAM;1", &short, 0), missing.clone()),
            ("empty", vec![], missing),
            ("a directory", record(b"L", &long, 2), Err(LayoutError::Garbled)),
            ("in several pieces", record(b"L", &long, 0x80), Err(LayoutError::Garbled)),
            ("cut short", record(b"L", &long, 0)[..40].to_vec(), Err(LayoutError::Garbled)),
        ] {
            assert_eq!(parse_file(&root, name), want, "{case}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail_badly(
            descriptor in proptest::collection::vec(any::<u8>(), 0..256),
            root in proptest::collection::vec(any::<u8>(), 0..4096),
        ) {
            let _ = parse_root(&descriptor);
            let _ = parse_file(&root, "livecd-cloud-config.yaml");
        }
    }
}
