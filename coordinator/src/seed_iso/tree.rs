//! A tree of files of an ISO 9660 image. An image has several trees: with plain names and Rock
//! Ridge, and with Joliet names. An image with partitions has both a second time, counted from the
//! first partition, for systems that mount the partition.

use std::io::{Read, Seek};

use super::changes::{Appended, Changes};
use super::layout::{BLOCK, Base, Extent, LayoutError, ReadError, both_endian, put, u32_at};
use super::overlay::Piece;
use super::path_table::{Order, PathTable};
use super::records::{Kind, Names, Record, Style, pack_records, parse_records};

/// Block of the first volume descriptor of a volume.
const DESCRIPTORS: u64 = 16;
/// Largest number of volume descriptors.
const DESCRIPTORS_MAX: u64 = 16;
/// Largest number of trees of a volume: plain, Joliet and enhanced names, and one to spare.
const TREES: usize = 4;
/// Largest path table, and largest root, in bytes: both are kept of each tree.
const TABLE_BYTES: u64 = 1 << 20;
/// Largest other directory that is read, in bytes. A directory of 10,000 packages has 3 MiB.
const DIRECTORY_BYTES: u64 = 4 << 20;
const DESCRIPTOR: LayoutError = LayoutError::Garbled("volume descriptor");

/// A file that a seed adds, with its place in the image.
#[derive(Clone, Copy, Debug)]
pub struct PlacedFile<'a> {
    /// A directory of the root, or the root itself.
    pub directory: Option<&'static str>,
    pub name: &'a str,
    /// Mode 0755.
    pub executable: bool,
    /// First block, counted in the whole image.
    pub block: u64,
    /// Bytes.
    pub len: u32,
}

#[derive(Debug)]
pub struct Tree {
    /// Block of the image from which the tree counts.
    volume: u64,
    /// Block of the image with the descriptor.
    at: u64,
    descriptor: Vec<u8>,
    style: Style,
    table: PathTable,
    root: Vec<Record>,
}

/// A volume begins at this block of the image.
pub fn is_volume<R: Read + Seek>(base: &mut Base<R>, volume: u64) -> Result<bool, ReadError> {
    match base.read_block(volume.saturating_add(DESCRIPTORS), "volume descriptor") {
        Ok(bytes) => Ok(bytes.starts_with(b"\x01CD001")),
        Err(ReadError::Layout(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Block of the image with the catalog of boot images.
pub fn find_boot_catalog<R: Read + Seek>(base: &mut Base<R>) -> Result<Option<u64>, ReadError> {
    for (_, descriptor) in read_descriptors(base, 0)? {
        if descriptor.starts_with(b"\x00CD001\x01EL TORITO SPECIFICATION") {
            return Ok(u32_at(&descriptor, 0x47).map(u64::from));
        }
    }
    Ok(None)
}

fn read_descriptors<R: Read + Seek>(
    base: &mut Base<R>,
    volume: u64,
) -> Result<Vec<(u64, Vec<u8>)>, ReadError> {
    let mut found = vec![];
    let first = volume.saturating_add(DESCRIPTORS);
    for at in first..first.saturating_add(DESCRIPTORS_MAX) {
        let descriptor = base.read_block(at, "volume descriptor")?;
        if !descriptor[1..].starts_with(b"CD001") || descriptor[0] == 255 {
            break;
        }
        found.push((at, descriptor));
    }
    Ok(found)
}

impl Tree {
    /// All trees of the volume that begins at `volume`.
    ///
    /// # Errors
    /// [`ReadError`]; [`LayoutError::NotIso`] if no volume begins there.
    pub fn read_all<R: Read + Seek>(base: &mut Base<R>, volume: u64) -> Result<Vec<Self>, ReadError> {
        if !is_volume(base, volume)? {
            return Err(LayoutError::NotIso.into());
        }
        let mut trees = vec![];
        for (at, descriptor) in read_descriptors(base, volume)? {
            if trees.len() == TREES {
                return Err(LayoutError::TooMany("4 trees in a volume").into());
            }
            let is_joliet = descriptor[88..90] == *b"%/" && b"@CE".contains(&descriptor[90]);
            match descriptor[0] {
                1 => trees.push(Self::read(base, Names::Plain, volume, (at, descriptor))?),
                2 if is_joliet => trees.push(Self::read(base, Names::Joliet, volume, (at, descriptor))?),
                _ => {}
            }
        }
        Ok(trees)
    }

    fn read<R: Read + Seek>(
        base: &mut Base<R>,
        names: Names,
        volume: u64,
        (at, descriptor): (u64, Vec<u8>),
    ) -> Result<Self, ReadError> {
        let table_at = (descriptor_number(&descriptor, 140)?, descriptor_number(&descriptor, 132)?);
        let table = read_content(base, volume, table_at, ("path table", TABLE_BYTES))?;
        let root_at = (descriptor_number(&descriptor, 158)?, descriptor_number(&descriptor, 166)?);
        let root = read_content(base, volume, root_at, ("root directory", TABLE_BYTES))?;
        let root = parse_records(&root)?;
        let style = Style::read(names, &root[0]);
        Ok(Self { volume, at, style, table: PathTable::parse(&table)?, root, descriptor })
    }

    /// The block of the image right behind the last file or directory.
    pub fn find_end<R: Read + Seek>(&self, base: &mut Base<R>) -> Result<u64, ReadError> {
        let mut end = 0;
        for directory in self.table.directories() {
            for record in self.read_directory(base, directory.block)? {
                let blocks = if record.content_len() == 0 {
                    0
                } else {
                    u64::from(record.content_len()).div_ceil(BLOCK)
                };
                let block = if blocks == 0 { 0 } else { self.volume + u64::from(record.block()) };
                end = end.max(block + blocks);
            }
        }
        Ok(end)
    }

    fn read_directory<R: Read + Seek>(
        &self,
        base: &mut Base<R>,
        block: u32,
    ) -> Result<Vec<Record>, ReadError> {
        let first = base.read_block(self.volume + u64::from(block), "directory")?;
        // The entry of the directory for itself has the length.
        let len = u32_at(&first, 10).map_or(0, u64::from);
        let bytes = read_content(base, self.volume, (u64::from(block), len), ("directory", DIRECTORY_BYTES))?;
        Ok(parse_records(&bytes)?)
    }

    /// Adds files. Changed directories and the path tables are appended again, and the references to
    /// the old ones are changed.
    pub fn add_files<R: Read + Seek>(
        &mut self,
        base: &mut Base<R>,
        files: &[PlacedFile<'_>],
        (appended, changes): (&mut Appended, &mut Changes),
    ) -> Result<(), ReadError> {
        let mut directories: Vec<_> = files.iter().filter_map(|file| file.directory).collect();
        directories.sort_unstable();
        directories.dedup();
        let mut root = std::mem::take(&mut self.root);
        self.put_files(&mut root, files, None)?;
        for name in &directories {
            self.put_directory(&mut root, name)?;
        }
        let root_at = appended.reserve(pack_records(&root).len() as u64);
        let (root_block, root_len) = (self.count(root_at)?, content_len(&pack_records(&root))?);
        let old_root = self.table.directories().next().map_or(0, |directory| directory.block);
        for name in directories {
            let Some(index) = self.find(&root, name) else { continue };
            let is_new = root[index].content_len() == 0;
            let mut records = if is_new {
                self.style.make_dots().to_vec()
            } else {
                self.read_directory(base, root[index].block())?
            };
            self.put_files(&mut records, files, Some(name))?;
            let bytes = pack_records(&records);
            let at = appended.reserve(bytes.len() as u64);
            let (block, len) = (self.count(at)?, content_len(&bytes)?);
            records[0].set_content(block, len);
            records[1].set_content(root_block, root_len);
            appended.fill(at, pack_records(&records))?;
            if is_new {
                self.table.insert(root[index].id(), block);
            } else {
                self.point_children((base, changes), root[index].block(), (block, len))?;
                self.table.relocate(root[index].block(), block);
            }
            root[index].set_content(block, len);
        }
        root[0].set_content(root_block, root_len);
        root[1].set_content(root_block, root_len);
        self.point_children((base, changes), old_root, (root_block, root_len))?;
        self.table.relocate(old_root, root_block);
        appended.fill(root_at, pack_records(&root))?;
        put(&mut self.descriptor, 158, &both_endian(root_block));
        put(&mut self.descriptor, 166, &both_endian(root_len));
        self.append_path_tables(appended)
    }

    fn find(&self, records: &[Record], name: &str) -> Option<usize> {
        let mut entries = records.iter().skip(2);
        let found = entries.position(|record| record.name(self.style.names, self.style.skip()) == name);
        found.map(|index| index + 2)
    }

    fn put_files(
        &self,
        records: &mut Vec<Record>,
        files: &[PlacedFile<'_>],
        directory: Option<&str>,
    ) -> Result<(), LayoutError> {
        for file in files.iter().filter(|file| file.directory == directory) {
            while let Some(index) = self.find(records, file.name) {
                records.remove(index);
            }
            let mut record = self.style.make(file.name, Kind::File { executable: file.executable });
            record.set_content(self.count(file.block)?, file.len);
            insert_sorted(records, record);
        }
        Ok(())
    }

    fn put_directory(&self, root: &mut Vec<Record>, name: &'static str) -> Result<(), LayoutError> {
        match self.find(root, name) {
            Some(index) if root[index].is_directory() => {}
            Some(_) => return Err(LayoutError::NoDirectory(name)),
            None => insert_sorted(root, self.style.make(name, Kind::Directory)),
        }
        Ok(())
    }

    /// Changes the place of the parent in the children of the directory at `from`. A child that was
    /// appended itself has the right place already.
    fn point_children<R: Read + Seek>(
        &self,
        (base, changes): (&mut Base<R>, &mut Changes),
        from: u32,
        (block, len): (u32, u32),
    ) -> Result<(), ReadError> {
        for child in self.table.children(from) {
            let at = self.volume + u64::from(child);
            if changes.is_appended(at) {
                continue;
            }
            let bytes = changes.edit(base, at)?;
            let parent = usize::from(bytes[0]);
            put(bytes, parent + 2, &both_endian(block));
            put(bytes, parent + 10, &both_endian(len));
        }
        Ok(())
    }

    fn append_path_tables(&mut self, appended: &mut Appended) -> Result<(), ReadError> {
        let little = self.table.render(Order::Little);
        let size = content_len(&little)?;
        let little = self.count(appended.append(Piece::Patch(little.into()))?)?;
        let big = self.table.render(Order::Big);
        let big = self.count(appended.append(Piece::Patch(big.into()))?)?;
        put(&mut self.descriptor, 132, &both_endian(size));
        // No optional copies.
        put(&mut self.descriptor, 140, &little.to_le_bytes());
        put(&mut self.descriptor, 144, &[0; 4]);
        put(&mut self.descriptor, 148, &big.to_be_bytes());
        put(&mut self.descriptor, 152, &[0; 4]);
        Ok(())
    }

    /// A block of the image, as this tree counts blocks.
    fn count(&self, block: u64) -> Result<u32, LayoutError> {
        super::layout::block_number(block.saturating_sub(self.volume))
    }

    /// Writes the descriptor of the volume, which has grown by the appended blocks.
    pub fn finish(mut self, appended: &Appended, changes: &mut Changes) -> Result<(), LayoutError> {
        let known = u32_at(&self.descriptor, 80).map_or(0, u64::from);
        let reached = appended.first().saturating_sub(self.volume);
        let size = super::layout::block_number(known.max(reached) + appended.blocks())?;
        put(&mut self.descriptor, 80, &both_endian(size));
        changes.replace(self.at, self.descriptor);
        Ok(())
    }
}

fn descriptor_number(descriptor: &[u8], at: usize) -> Result<u64, LayoutError> {
    u32_at(descriptor, at).map(u64::from).ok_or(DESCRIPTOR)
}

fn content_len(bytes: &[u8]) -> Result<u32, LayoutError> {
    u32::try_from(bytes.len()).map_err(|_| LayoutError::TooLarge)
}

fn read_content<R: Read + Seek>(
    base: &mut Base<R>,
    volume: u64,
    (block, len): (u64, u64),
    (what, most): (&'static str, u64),
) -> Result<Vec<u8>, ReadError> {
    if len == 0 || len > most {
        return Err(LayoutError::Garbled(what).into());
    }
    base.read(Extent { at: (volume + block).saturating_mul(BLOCK), len }, what)
}

/// Inserts a record in the order of the names, behind the entries for the directory itself and its
/// parent.
fn insert_sorted(records: &mut Vec<Record>, record: Record) {
    let behind = records.iter().skip(2).position(|known| known.id() > record.id());
    let index = behind.map_or(records.len(), |index| index + 2);
    records.insert(index, record);
}

#[cfg(test)]
impl Tree {
    /// The content of a file in the root, or in a directory of the root.
    pub(crate) fn content_of<R: Read + Seek>(
        &self,
        base: &mut Base<R>,
        (directory, name): (Option<&str>, &str),
    ) -> Option<Vec<u8>> {
        let listed = match directory {
            Some(directory) => {
                self.read_directory(base, self.root[self.find(&self.root, directory)?].block())
            }
            None => Ok(self.root.clone()),
        };
        let listed = listed.ok()?;
        let file = &listed[self.find(&listed, name)?];
        let place = (file.block().into(), file.content_len().into());
        read_content(base, self.volume, place, ("file", DIRECTORY_BYTES)).ok()
    }

    /// Every directory is where the path table, itself, its parent and its
    /// children say; and both path tables say the same.
    pub(crate) fn check<R: Read + Seek>(&self, base: &mut Base<R>) {
        let directories: Vec<_> = self.table.directories().collect();
        assert_eq!(directories[0].block, u32_at(&self.descriptor, 158).unwrap());
        for directory in &directories {
            let records = self.read_directory(base, directory.block).unwrap();
            assert_eq!(records[0].block(), directory.block);
            let below = records[2..].iter().filter(|record| record.is_directory()).map(Record::block);
            let mut below: Vec<_> = below.collect();
            let mut children: Vec<_> = self.table.children(directory.block).collect();
            below.sort_unstable();
            children.sort_unstable();
            assert_eq!(below, children);
            for child in children {
                let child = self.read_directory(base, child).unwrap();
                // libisofs lets each Joliet directory be its own parent.
                let by_libisofs = self.style.names == Names::Joliet && child[1].block() == child[0].block();
                let named = (child[1].block(), child[1].content_len());
                assert!(by_libisofs || named == (records[0].block(), records[0].content_len()));
            }
        }
        let size = u32_at(&self.descriptor, 132).unwrap();
        let big = u32::from_be_bytes(self.descriptor[148..152].try_into().unwrap());
        let big =
            read_content(base, self.volume, (big.into(), size.into()), ("path table", TABLE_BYTES)).unwrap();
        assert_eq!(big, self.table.render(Order::Big));
    }
}
