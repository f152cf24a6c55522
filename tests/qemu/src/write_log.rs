//! What a guest wrote to its disk, as QEMU's driver `blklogwrites` records it in the format of
//! dm-log-writes, and the disk that a power cut at one of its flushes leaves.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
/// What an entry starts with.
const HEADER_BYTES: usize = 32;

/// What the guest asked its disk for, in order.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    /// Of the disk, in bytes.
    start: u64,
    length: u64,
    /// Where the log has the data.
    data_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    Discard,
    Flush,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the log of the disk's writes: {what}"))
}

/// Numbers of 64 bits, little-endian, from the start of `bytes`.
fn numbers<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut found = [0; COUNT];
    for (number, bytes) in found.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut fixed = [0; 8];
        fixed.copy_from_slice(bytes);
        *number = u64::from_le_bytes(fixed);
    }
    found
}

impl WriteLog {
    /// Reads the log of a boot that has ended: QEMU counts the entries when it closes the log.
    ///
    /// # Errors
    /// When the file is not such a log.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let [magic, version, count, sector] = numbers(&header);
        let sector = sector & 0xffff_ffff;
        if (magic, version) != (MAGIC, 1) || !sector.is_power_of_two() {
            return Err(damaged("it has another format"));
        }
        let mut entries = Vec::new();
        let mut at = sector;
        for _ in 0..count {
            file.read_exact_at(&mut header, at)?;
            let [start, sectors, flags, _] = numbers(&header);
            at += sector;
            let kind = match flags {
                0 => Kind::Write,
                FLUSH if sectors == 0 => Kind::Flush,
                DISCARD => Kind::Discard,
                _ => return Err(damaged("an entry of another kind")),
            };
            let (start, length) = (start * sector, sectors * sector);
            entries.push(Entry { kind, start, length, data_at: at });
            if kind == Kind::Write {
                at += length;
            }
        }
        Ok(Self { file, entries })
    }

    /// The first write whose data hold `marker`, by its position in the log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn find(&self, marker: &[u8]) -> io::Result<Option<usize>> {
        for (position, entry) in self.entries.iter().enumerate() {
            if entry.kind == Kind::Write && memchr::memmem::find(&self.data(entry)?, marker).is_some() {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    /// Flushes from `start` on, by their position, each after something was written.
    pub fn flushes_from(&self, start: usize) -> Vec<usize> {
        let mut is_changed = false;
        let mut flushes = Vec::new();
        for (position, entry) in self.entries.iter().enumerate() {
            let ends = entry.kind == Kind::Flush && is_changed;
            is_changed = !ends && (is_changed || entry.kind != Kind::Flush);
            if ends && position >= start {
                flushes.push(position);
            }
        }
        flushes
    }

    /// Does to a disk what these entries say, as far as there are any.
    ///
    /// # Errors
    /// When the log cannot be read, or the disk cannot be written.
    pub fn replay(&self, entries: Range<usize>, disk: &File) -> io::Result<()> {
        let end = entries.end.min(self.entries.len());
        for entry in self.entries.get(entries.start..end).unwrap_or_default() {
            match entry.kind {
                Kind::Write => disk.write_all_at(&self.data(entry)?, entry.start)?,
                Kind::Discard => punch_hole(disk, entry)?,
                Kind::Flush => {}
            }
        }
        Ok(())
    }

    fn data(&self, entry: &Entry) -> io::Result<Vec<u8>> {
        let mut data = vec![0; usize::try_from(entry.length).map_err(|_| damaged("an entry is too long"))?];
        self.file.read_exact_at(&mut data, entry.data_at)?;
        Ok(data)
    }
}

fn punch_hole(disk: &File, entry: &Entry) -> io::Result<()> {
    let range = (i64::try_from(entry.start), i64::try_from(entry.length));
    let (Ok(start), Ok(length)) = range else { return Err(damaged("a discard is too far")) };
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    Ok(fallocate(disk, flags, start, length)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn filled(disk: &File, at: u64) -> u8 {
        let mut byte = [0];
        disk.read_exact_at(&mut byte, at).unwrap();
        byte[0]
    }

    /// The real QEMU writes the log.
    #[test]
    fn disk_of_each_flush_is_replayed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (name, size) in [("disk", 8 * MIB), ("log", 0), ("replayed", 8 * MIB)] {
            File::create(path(name)).unwrap().set_len(size).unwrap();
        }
        let options = crate::arguments::recorded_drive(&path("disk"), &path("log"));
        let mut command = Command::new("qemu-io");
        command.args(["-c", &format!("open -o {options}")]);
        for action in ["write -P 1 0 4k", "flush", "flush", "write -P 2 1M 1M", "flush", "discard 0 4k"] {
            command.args(["-c", action]);
        }
        assert!(command.status().unwrap().success());
        let log = WriteLog::read(&path("log")).unwrap();
        let replayed = File::options().read(true).write(true).open(path("replayed")).unwrap();
        let seen = |replayed: &File| (filled(replayed, 100), filled(replayed, MIB + 100));
        let flushes = log.flushes_from(0);
        let mut from = 0;
        let wants = [(1, 0), (1, 2), (0, 2)];
        assert_eq!(flushes.len(), wants.len(), "one is sent when the disk is closed: {log:?}");
        for (flush, want) in flushes.into_iter().zip(wants) {
            log.replay(from..flush, &replayed).unwrap();
            assert_eq!(seen(&replayed), want, "at entry {flush}");
            from = flush;
        }
        let marked = log.find(&[2; 600]).unwrap().unwrap();
        assert_eq!(log.flushes_from(marked).len(), 2);
        assert!(log.find(&[3; 600]).unwrap().is_none());
        assert!(WriteLog::read(&path("disk")).is_err());
    }
}
