//! The partition tables of an image that also boots from a disk. Partitions behind the new blocks
//! are moved, and the backup table goes to the new end (UEFI Specification 5, sectors of 512 bytes).

use std::io::{Read, Seek};
use std::ops::Range;

use super::layout::{BLOCK, Base, Extent, LayoutError, ReadError, put, u32_at, u64_at};
use super::tree;

/// Bytes of a sector of a disk.
pub const SECTOR: u64 = 512;
const PER_BLOCK: u64 = BLOCK / SECTOR;
/// End in bytes of the area that ISO 9660 leaves to boot loaders and partition tables. The volume
/// descriptors follow, so a longer table would overwrite them.
const SYSTEM_AREA_END: u64 = 16 * BLOCK;
const HEADER: usize = 512;
const GARBLED: LayoutError = LayoutError::Garbled("partition table");

/// The place of new blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First block of a partition that is a volume of its own, and grows by
    /// the new blocks.
    pub volume: Option<u64>,
    /// The first new block.
    pub block: u64,
    /// End in bytes of the part of the base that is kept; the backup table is behind it.
    pub kept: u64,
}

/// The growth of the image, in sectors.
#[derive(Clone, Copy, Debug)]
struct Shift {
    volume: Option<u64>,
    at: u64,
    by: u64,
}

impl Shift {
    /// The range of a partition afterwards. A partition that ends where the new blocks begin grows if
    /// it is the volume, or begins with the image.
    fn apply(self, range: Range<u64>) -> Range<u64> {
        let grows = range.end > self.at
            || (range.end == self.at && (range.start == 0 || Some(range.start) == self.volume));
        if range.start >= self.at {
            range.start + self.by..range.end + self.by
        } else if grows {
            range.start..range.end + self.by
        } else {
            range
        }
    }
}

/// The tables of a base.
#[derive(Debug)]
pub struct Partitions {
    master: Vec<u8>,
    guid: Option<Guid>,
}

/// A GUID partition table.
#[derive(Debug)]
struct Guid {
    header: Vec<u8>,
    /// Sector of the entries.
    entries_at: u64,
    entries: Vec<u8>,
    /// Bytes of an entry.
    entry: usize,
    /// First sector of the backup, which has entries and header.
    backup_at: u64,
}

impl Guid {
    /// `None` if the base has no table.
    fn read<R: Read + Seek>(base: &mut Base<R>) -> Result<Option<Self>, ReadError> {
        let header = base.read(Extent { at: SECTOR, len: SECTOR }, "partition table")?;
        if !header.starts_with(b"EFI PART") {
            return Ok(None);
        }
        let backup = u64_at(&header, 32).ok_or(GARBLED)?;
        let entries_at = u64_at(&header, 72).ok_or(GARBLED)?;
        let count = u32_at(&header, 80).ok_or(GARBLED)?;
        let entry = u32_at(&header, 84).ok_or(GARBLED)?;
        let len = u64::from(count) * u64::from(entry);
        let header_len = u32_at(&header, 12).ok_or(GARBLED)?;
        let at = entries_at.checked_mul(SECTOR).ok_or(GARBLED)?;
        let is_inside = at.checked_add(len).is_some_and(|end| end <= SYSTEM_AREA_END);
        let is_sane = entry >= 128 && len > 0 && is_inside && (92..=512).contains(&header_len);
        let backup_at = backup.checked_sub(len.div_ceil(SECTOR)).filter(|_| is_sane).ok_or(GARBLED)?;
        let entries = base.read(Extent { at, len }, "partition table")?;
        let entry = usize::try_from(entry).map_err(|_| GARBLED)?;
        let guid = Self { header, entries_at, entries, entry, backup_at };
        // Bytes behind the start of the backup are not kept.
        let is_behind = guid.partitions().all(|partition| partition.end <= backup_at);
        (is_behind && backup_at >= entries_at).then_some(Some(guid)).ok_or(GARBLED.into())
    }

    fn partitions(&self) -> impl Iterator<Item = Range<u64>> {
        let used = self.entries.chunks_exact(self.entry).filter(|entry| entry[..16] != [0; 16]);
        used.filter_map(|entry| Some(u64_at(entry, 32)?..u64_at(entry, 40)?.checked_add(1)?))
    }

    fn shift(&mut self, shift: Shift) {
        for entry in self.entries.chunks_exact_mut(self.entry).filter(|entry| entry[..16] != [0; 16]) {
            let (Some(first), Some(last)) = (u64_at(entry, 32), u64_at(entry, 40)) else { continue };
            let moved = shift.apply(first..last.saturating_add(1));
            put(entry, 32, &moved.start.to_le_bytes());
            put(entry, 40, &moved.end.saturating_sub(1).to_le_bytes());
        }
    }

    /// The first or the backup header for an image of `sectors`.
    fn header(&self, sectors: u64, is_backup: bool) -> Vec<u8> {
        let mut header = self.header.clone();
        let len = self.entries_len();
        let (backup, backup_entries) = (sectors - 1, sectors - 1 - len);
        let (own, other, entries) =
            if is_backup { (backup, 1, backup_entries) } else { (1, backup, self.entries_at) };
        put(&mut header, 24, &own.to_le_bytes());
        put(&mut header, 32, &other.to_le_bytes());
        put(&mut header, 48, &(backup_entries - 1).to_le_bytes());
        put(&mut header, 72, &entries.to_le_bytes());
        put(&mut header, 88, &crc32fast::hash(&self.entries).to_le_bytes());
        put(&mut header, 16, &[0; 4]);
        let covered = u32_at(&header, 12).and_then(|len| usize::try_from(len).ok()).unwrap_or(HEADER);
        let crc = crc32fast::hash(header.get(..covered).unwrap_or(&header));
        put(&mut header, 16, &crc.to_le_bytes());
        header
    }

    /// Sectors of the entries.
    fn entries_len(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(SECTOR)
    }
}

impl Partitions {
    /// Reads the tables of a base.
    pub fn read<R: Read + Seek>(base: &mut Base<R>) -> Result<Self, ReadError> {
        if base.size() < 2 * SECTOR {
            return Err(LayoutError::NotIso.into());
        }
        let master = base.read(Extent { at: 0, len: SECTOR }, "partition table")?;
        Ok(Self { master, guid: Guid::read(base)? })
    }

    fn partitions(&self) -> Vec<Range<u64>> {
        match &self.guid {
            Some(guid) => guid.partitions().collect(),
            None => master_entries(&self.master).map(|(_, range)| range).collect(),
        }
    }

    /// The place is behind the first partition that is a volume of its own, because a system on a USB
    /// stick mounts that partition and reads nothing behind it; else at the end of the image.
    pub fn find_place<R: Read + Seek>(&self, base: &mut Base<R>) -> Result<Place, ReadError> {
        let backup = self.guid.as_ref().map(|guid| guid.backup_at.saturating_mul(SECTOR));
        let kept = backup.unwrap_or(base.size()).min(base.size());
        for range in self.partitions() {
            let is_aligned = range.start > 0 && range.start % PER_BLOCK == 0 && range.end % PER_BLOCK == 0;
            let (volume, block) = (range.start / PER_BLOCK, range.end / PER_BLOCK);
            if is_aligned && range.end.saturating_mul(SECTOR) <= kept && tree::is_volume(base, volume)? {
                return Ok(Place { volume: Some(volume), block, kept });
            }
        }
        Ok(Place { volume: None, block: kept.div_ceil(BLOCK), kept })
    }

    /// Changes the tables in the first blocks. Returns the offset and the bytes of the tail behind the
    /// kept part of the base.
    pub fn move_for<R: Read + Seek>(
        mut self,
        base: &mut Base<R>,
        (place, added): (Place, u64),
        changes: &mut super::changes::Changes,
    ) -> Result<(u64, Vec<u8>), ReadError> {
        let kept_end = place.kept.max(place.block * BLOCK) + added * BLOCK;
        let backup = self.guid.as_ref().map_or(0, |guid| guid.entries_len() + 1);
        let sectors = (kept_end.div_ceil(SECTOR) + backup).next_multiple_of(PER_BLOCK);
        let volume = place.volume.map(|block| block * PER_BLOCK);
        let shift = Shift { volume, at: place.block * PER_BLOCK, by: added * PER_BLOCK };
        self.shift_master(shift, sectors);
        write_sectors(base, changes, 0, &self.master)?;
        let Some(guid) = &mut self.guid else { return Ok((sectors * SECTOR, vec![])) };
        guid.shift(shift);
        write_sectors(base, changes, SECTOR, &guid.header(sectors, false))?;
        write_sectors(base, changes, guid.entries_at * SECTOR, &guid.entries)?;
        let mut tail = guid.entries.clone();
        tail.resize(tail.len().next_multiple_of(HEADER), 0);
        tail.extend(guid.header(sectors, true));
        Ok((sectors * SECTOR - tail.len() as u64, tail))
    }

    fn shift_master(&mut self, shift: Shift, sectors: u64) {
        let moved: Vec<_> = master_entries(&self.master).collect();
        for (at, range) in moved {
            // An entry of type 0xEE protects a GUID partition table, and covers the whole image.
            let is_protective = self.master.get(at + 4) == Some(&0xee);
            let moved = if is_protective { range.start..sectors } else { shift.apply(range) };
            put(&mut self.master, at + 8, &master_number(moved.start));
            put(&mut self.master, at + 12, &master_number(moved.end.saturating_sub(moved.start)));
        }
    }
}

/// A number of sectors in a master boot record; a larger one is written as the maximum.
fn master_number(sectors: u64) -> [u8; 4] {
    u32::try_from(sectors).unwrap_or(u32::MAX).to_le_bytes()
}

/// The used entries of a master boot record, with the offset of each.
fn master_entries(master: &[u8]) -> impl Iterator<Item = (usize, Range<u64>)> {
    let is_there = master.get(510..512) == Some(&[0x55, 0xaa]);
    let places = (446..510).step_by(16).filter(move |_| is_there);
    places.filter_map(|at| {
        let (start, len) = (u32_at(master, at + 8)?, u32_at(master, at + 12)?);
        let is_used = master.get(at + 4) != Some(&0) && len > 0;
        is_used.then(|| (at, u64::from(start)..u64::from(start) + u64::from(len)))
    })
}

fn write_sectors<R: Read + Seek>(
    base: &mut Base<R>,
    changes: &mut super::changes::Changes,
    at: u64,
    bytes: &[u8],
) -> Result<(), ReadError> {
    let mut at = at;
    for sector in bytes.chunks(HEADER) {
        let block = changes.edit(base, at / BLOCK)?;
        put(block, usize::try_from(at % BLOCK).unwrap_or_default(), sector);
        at += SECTOR;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_move_or_grow_with_what_they_cover() {
        let shift = |volume| Shift { volume, at: 100, by: 8 };
        for (name, volume, range, want) in [
            ("before", None, 10..50, 10..50),
            ("the volume", Some(64), 64..100, 64..108),
            ("ends there, no volume", None, 64..100, 64..100),
            ("begins with the image", None, 0..100, 0..108),
            ("all of it", None, 1..200, 1..208),
            ("behind", Some(64), 100..120, 108..128),
        ] {
            assert_eq!(shift(volume).apply(range), want, "{name}");
        }
    }
}
