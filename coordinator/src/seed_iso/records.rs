//! Directory records of ISO 9660, with the names of Rock Ridge and Joliet
//! (ECMA-119 9.1, IEEE P1281, IEEE P1282, Joliet Specification).

use super::layout::{BLOCK, LayoutError, both_endian, put, u32_at};

const GARBLED: LayoutError = LayoutError::Garbled("directory");
const DIRECTORY: u8 = 2;

/// Form of the names of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// ASCII, possibly with Rock Ridge.
    Plain,
    /// Big-endian UCS-2.
    Joliet,
}

/// The bytes of an entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Vec<u8>);

impl Record {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let record = Self(bytes.to_vec());
        let id = usize::from(*bytes.get(32)?);
        (id > 0 && bytes.len() >= 33 + id).then_some(record)
    }

    /// Name of the file as the record sorts it.
    pub fn id(&self) -> &[u8] {
        self.0.get(33..33 + usize::from(self.0[32])).unwrap_or(&[])
    }

    /// The bytes behind the name, which Rock Ridge and its like use.
    pub fn system_use(&self) -> &[u8] {
        let id = usize::from(self.0[32]);
        // The name is padded to an even offset.
        self.0.get(33 + id + (1 - id % 2)..).unwrap_or(&[])
    }

    pub fn is_directory(&self) -> bool {
        self.0[25] & DIRECTORY != 0
    }

    /// First block of the content, counted from the start of the tree's volume.
    pub fn block(&self) -> u32 {
        u32_at(&self.0, 2).unwrap_or(0)
    }

    /// Bytes of the content.
    pub fn content_len(&self) -> u32 {
        u32_at(&self.0, 10).unwrap_or(0)
    }

    /// Bytes of the record itself.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Points the record to another content.
    pub fn set_content(&mut self, block: u32, len: u32) {
        put(&mut self.0, 2, &both_endian(block));
        put(&mut self.0, 10, &both_endian(len));
    }

    /// The name that a reader of the tree shows.
    pub fn name(&self, names: Names, skip: usize) -> String {
        let name = match names {
            Names::Plain => {
                let entries = self.system_use().get(skip..).unwrap_or(&[]);
                if let Some(name) = rock_ridge_name(entries) {
                    return String::from_utf8_lossy(&name).into_owned();
                }
                String::from_utf8_lossy(self.id()).to_ascii_lowercase()
            }
            Names::Joliet => {
                let units = self.id().chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
                char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
        };
        let name = name.strip_suffix(";1").unwrap_or(&name);
        name.strip_suffix('.').unwrap_or(name).to_owned()
    }
}

/// The joined NM entries of a record; `None` if the record has no Rock Ridge.
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

/// Form of the new records of a tree, read from its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    pub names: Names,
    rock_ridge: Option<RockRidge>,
    /// Date of the root, because a seed has no clock of its own.
    date: [u8; 7],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RockRidge {
    /// Bytes before the entries of each record.
    skip: usize,
    /// 36 (RRIP 1.10) or 44 (1.12, with a serial number).
    px: u8,
}

/// Kind of a new record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mode 0644, or 0755 if executable.
    File { executable: bool },
    /// Mode 0755.
    Directory,
}

impl Style {
    /// Reads the style from the root's entry for itself.
    pub fn read(names: Names, root: &Record) -> Self {
        let mut date = [0; 7];
        date.copy_from_slice(root.0.get(18..25).unwrap_or(&[0; 7]));
        let system_use = root.system_use();
        let marked = names == Names::Plain && system_use.starts_with(b"SP\x07\x01\xbe\xef");
        let skip = system_use.get(6).map_or(0, |skip| usize::from(*skip));
        let px = system_use.windows(4).find(|entry| entry.starts_with(b"PX")).filter(|_| marked);
        let rock_ridge = px.map(|entry| RockRidge { skip, px: entry[2].clamp(36, 44) });
        Self { names, rock_ridge, date }
    }

    /// Bytes before the Rock Ridge entries of each record.
    pub fn skip(&self) -> usize {
        self.rock_ridge.as_ref().map_or(0, |style| style.skip)
    }

    fn id(&self, name: &str, kind: Kind) -> Vec<u8> {
        let version = if kind == Kind::Directory { "" } else { ";1" };
        match self.names {
            // The standard allows fewer characters, but every system reads them.
            Names::Plain => format!("{}{version}", name.to_ascii_uppercase()).into_bytes(),
            Names::Joliet => format!("{name}{version}").encode_utf16().flat_map(u16::to_be_bytes).collect(),
        }
    }

    /// A record whose content is placed later.
    pub fn make(&self, name: &str, kind: Kind) -> Record {
        self.make_with_id(&self.id(name, kind), Some(name), kind)
    }

    /// The entries of a new directory for itself and for its parent.
    pub fn make_dots(&self) -> [Record; 2] {
        [0, 1].map(|id| self.make_with_id(&[id], None, Kind::Directory))
    }

    fn make_with_id(&self, id: &[u8], name: Option<&str>, kind: Kind) -> Record {
        let mut record = vec![0; 33];
        record[18..25].copy_from_slice(&self.date);
        record[25] = if kind == Kind::Directory { DIRECTORY } else { 0 };
        // Volume 1 of the set, in both byte orders.
        record[28..32].copy_from_slice(&[1, 0, 0, 1]);
        record[32] = u8::try_from(id.len()).unwrap_or(u8::MAX);
        record.extend(id);
        record.resize(record.len().next_multiple_of(2), 0);
        if let Some(style) = &self.rock_ridge {
            record.resize(record.len() + style.skip, 0);
            record.extend(posix_attributes(kind, style.px));
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                record.extend([b'N', b'M', u8::try_from(name.len() + 5).unwrap_or(u8::MAX), 1, 0]);
                record.extend(name.as_bytes());
            }
        }
        record.resize(record.len().next_multiple_of(2), 0);
        record[0] = u8::try_from(record.len()).unwrap_or(u8::MAX);
        Record(record)
    }
}

fn posix_attributes(kind: Kind, len: u8) -> Vec<u8> {
    let (mode, links) = match kind {
        Kind::File { executable: false } => (0o100_644, 1),
        Kind::File { executable: true } => (0o100_755, 1),
        Kind::Directory => (0o040_755, 1),
    };
    let mut entry = vec![b'P', b'X', len, 1];
    entry.extend(both_endian(mode));
    entry.extend(both_endian(links));
    // Zeros: owner and group root, and no serial number.
    entry.resize(usize::from(len), 0);
    entry
}

/// All records of a directory.
///
/// # Errors
/// [`LayoutError::Garbled`], also if the entries of the directory for itself and its parent are
/// missing.
pub fn parse_records(bytes: &[u8]) -> Result<Vec<Record>, LayoutError> {
    let mut records = vec![];
    for block in bytes.chunks(2048) {
        let mut rest = block;
        // A length of zero ends a block, because records do not cross blocks.
        while let Some(len) = rest.first().copied().filter(|len| *len > 0) {
            let record = rest.get(..usize::from(len)).and_then(Record::parse);
            records.push(record.ok_or(GARBLED)?);
            rest = &rest[usize::from(len)..];
        }
    }
    if records.get(..2).is_none_or(|dots| dots[0].id() != [0] || dots[1].id() != [1]) {
        return Err(GARBLED);
    }
    Ok(records)
}

/// The bytes of a directory, in whole blocks.
pub fn pack_records(records: &[Record]) -> Vec<u8> {
    let block = usize::try_from(BLOCK).unwrap_or(usize::MAX);
    let mut bytes = vec![];
    for record in records {
        if bytes.len() % block + record.0.len() > block {
            bytes.resize(bytes.len().next_multiple_of(block), 0);
        }
        bytes.extend(&record.0);
    }
    bytes.resize(bytes.len().next_multiple_of(block), 0);
    bytes
}
