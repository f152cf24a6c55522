//! The path table of a tree: all directories, by level, parent and name
//! (ECMA-119 9.4).

use super::layout::LayoutError;

/// Largest number of directories of a tree. A live ISO has some hundred.
const DIRECTORIES: usize = 16 * 1024;
const GARBLED: LayoutError = LayoutError::Garbled("path table");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Name of the directory; the name of the root is a zero byte.
    pub id: Vec<u8>,
    /// First block of its records.
    pub block: u32,
    /// Number of the parent directory; the root is 1.
    parent: u16,
}

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

/// All directories; the first is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTable(Vec<Directory>);

impl PathTable {
    /// Reads the table with little-endian numbers.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, LayoutError> {
        let mut directories = vec![];
        while let [len, _, b0, b1, b2, b3, p0, p1, rest @ ..] = bytes {
            let len = usize::from(*len);
            if len == 0 {
                break;
            }
            if directories.len() == DIRECTORIES {
                return Err(LayoutError::TooMany("16384 directories"));
            }
            let id = rest.get(..len).ok_or(GARBLED)?.to_vec();
            let block = u32::from_le_bytes([*b0, *b1, *b2, *b3]);
            let parent = u16::from_le_bytes([*p0, *p1]);
            directories.push(Directory { id, block, parent });
            bytes = rest.get(len + len % 2..).unwrap_or(&[]);
        }
        if directories.is_empty() {
            return Err(GARBLED);
        }
        Ok(Self(directories))
    }

    pub fn render(&self, order: Order) -> Vec<u8> {
        let mut bytes = vec![];
        for directory in &self.0 {
            bytes.extend([u8::try_from(directory.id.len()).unwrap_or(u8::MAX), 0]);
            let (block, parent) = (directory.block, directory.parent);
            match order {
                Order::Little => {
                    bytes.extend(block.to_le_bytes());
                    bytes.extend(parent.to_le_bytes());
                }
                Order::Big => {
                    bytes.extend(block.to_be_bytes());
                    bytes.extend(parent.to_be_bytes());
                }
            }
            bytes.extend(&directory.id);
            bytes.resize(bytes.len().next_multiple_of(2), 0);
        }
        bytes
    }

    pub fn directories(&self) -> impl Iterator<Item = &Directory> {
        self.0.iter()
    }

    /// Blocks of the directories in the directory at `block`.
    pub fn children(&self, block: u32) -> impl Iterator<Item = u32> {
        let number = self.0.iter().position(|directory| directory.block == block);
        let number = number.and_then(|index| u16::try_from(index + 1).ok());
        let others = self.0.iter().skip(1);
        others.filter(move |child| Some(child.parent) == number).map(|child| child.block)
    }

    /// Changes the block of a directory whose records were appended again.
    pub fn relocate(&mut self, from: u32, to: u32) {
        for directory in &mut self.0 {
            if directory.block == from {
                directory.block = to;
            }
        }
    }

    /// Adds a directory to the root, in the order of the names, and numbers the others again.
    pub fn insert(&mut self, id: &[u8], block: u32) {
        let mut others = self.0.iter().skip(1);
        let found = others.position(|known| known.parent != 1 || known.id.as_slice() > id);
        let index = found.map_or(self.0.len(), |found| found + 1);
        for directory in &mut self.0 {
            if usize::from(directory.parent) > index {
                directory.parent = directory.parent.saturating_add(1);
            }
        }
        self.0.insert(index, Directory { id: id.to_vec(), block, parent: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn directory(id: &[u8], block: u32, parent: u16) -> Directory {
        Directory { id: id.to_vec(), block, parent }
    }

    #[test]
    fn new_directory_sorts_in_and_shifts_numbers() {
        let known = [
            directory(&[0], 20, 1),
            directory(b"BOOT", 21, 1),
            directory(b"EFI", 22, 1),
            directory(b"GRUB", 23, 2),
            directory(b"BOOT", 24, 3),
            directory(b"FONTS", 25, 4),
        ];
        let inserted = |id: &[u8]| {
            let mut table = PathTable(known.to_vec());
            table.insert(id, 9);
            table.0.into_iter().map(|directory| (directory.id, directory.parent)).collect::<Vec<_>>()
        };
        let text = |id: &[u8], parent: u16| (id.to_vec(), parent);
        let rest = |boot, efi, grub| [text(b"GRUB", boot), text(b"BOOT", efi), text(b"FONTS", grub)];
        for (id, first, behind) in [
            (&b"A"[..], [text(b"A", 1), text(b"BOOT", 1), text(b"EFI", 1)], rest(3, 4, 5)),
            (b"CONFIG", [text(b"BOOT", 1), text(b"CONFIG", 1), text(b"EFI", 1)], rest(2, 4, 5)),
            (b"ISO", [text(b"BOOT", 1), text(b"EFI", 1), text(b"ISO", 1)], rest(2, 3, 5)),
        ] {
            let want = [&[text(&[0], 1)], &first[..], &behind[..]].concat();
            assert_eq!(inserted(id), want, "{}", String::from_utf8_lossy(id));
        }
        let table = PathTable(known.to_vec());
        assert_eq!(table.children(20).collect::<Vec<_>>(), [21, 22]);
        assert_eq!(table.children(21).collect::<Vec<_>>(), [23]);
        assert_eq!(table.children(99).count(), 0);
        assert_eq!(PathTable::parse(&table.render(Order::Little)).unwrap(), table);
    }

    prop_compose! {
        /// The bytes of a table: the root, and directories behind their parents.
        fn valid_table()(below in prop::collection::vec(("[A-Z]{1,8}", any::<prop::sample::Index>()), 0..12)) -> Vec<u8> {
            let parents = below.iter().enumerate().map(|(before, (_, parent))| parent.index(before + 1) + 1);
            let mut parents: Vec<_> = parents.collect();
            parents.sort_unstable();
            let mut table = vec![directory(&[0], 20, 1)];
            for ((block, (id, _)), parent) in (21..).zip(&below).zip(parents) {
                table.push(directory(id.as_bytes(), block, u16::try_from(parent).unwrap()));
            }
            PathTable(table).render(Order::Little)
        }
    }

    /// Name and block of a directory, and those of its parent, where there is one.
    type Link = (Directory, Option<(Vec<u8>, u32)>);

    fn links(table: &PathTable) -> Vec<Link> {
        let parent = |number: u16| {
            let parent = table.0.get(usize::from(number).checked_sub(1)?)?;
            Some((parent.id.clone(), parent.block))
        };
        let link = |known: &Directory| (Directory { parent: 0, ..known.clone() }, parent(known.parent));
        table.0.iter().map(link).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn spoilt_table_is_refused_or_keeps_its_directories(
            mut bytes in valid_table(),
            spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            for (at, byte) in spoilt {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let Ok(mut table) = PathTable::parse(&bytes) else { return Ok(()) };
            prop_assert_eq!(PathTable::parse(&table.render(Order::Little)), Ok(table.clone()));
            let before = links(&table);
            table.insert(b"X", 9);
            let mut after = links(&table);
            let root = (table.0[0].id.clone(), table.0[0].block);
            let new = (Directory { id: b"X".to_vec(), block: 9, parent: 0 }, Some(root));
            let at = after.iter().position(|link| *link == new);
            prop_assert!(at.is_some(), "{:?}", table);
            after.remove(at.unwrap());
            prop_assert_eq!(after, before);
        }
    }
}
