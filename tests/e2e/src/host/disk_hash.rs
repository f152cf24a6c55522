//! Hashes of the disks of a virtual machine: whether anything was written to them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

const BLOCK: usize = 1 << 20;
const SECTOR: u64 = 512;

/// A hash of contents.
pub type Hash = [u8; 32];

/// Hash of a disk.
///
/// # Errors
/// When it cannot be read.
pub fn hash_disk(disk: &Path) -> io::Result<Hash> {
    hash_ranges(disk, std::iter::once(0..u64::MAX))
}

/// Hash of a disk without one of its partitions, by the name in its partition table.
///
/// # Errors
/// When it cannot be read, or has no such partition.
pub fn hash_around(disk: &Path, partition: &str) -> anyhow::Result<Hash> {
    let columns = ["--raw", "--noheadings", "--output", "NAME,START,END"];
    let listed = Command::new("partx").args(columns).arg(disk).output().context("start partx")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let without =
        parse_extent(&listed, partition).with_context(|| format!("no {partition} in {listed:?}"))?;
    Ok(hash_ranges(disk, [0..without.start, without.end..u64::MAX])?)
}

/// Bytes of a partition, by the lines of partx.
fn parse_extent(listed: &str, partition: &str) -> Option<Range<u64>> {
    listed.lines().find_map(|line| {
        let mut columns = line.split_whitespace();
        columns.next().filter(|name| *name == partition)?;
        let (first, last) = (columns.next()?.parse::<u64>().ok()?, columns.next()?.parse::<u64>().ok()?);
        Some(first * SECTOR..(last + 1) * SECTOR)
    })
}

fn hash_ranges(disk: &Path, ranges: impl IntoIterator<Item = Range<u64>>) -> io::Result<Hash> {
    let mut disk = File::open(disk)?;
    let (mut hash, mut block) = (Sha256::new(), Vec::with_capacity(BLOCK));
    for Range { start, end } in ranges {
        disk.seek(SeekFrom::Start(start))?;
        let mut left = disk.by_ref().take(end - start);
        while left.by_ref().take(BLOCK as u64).read_to_end(&mut block)? > 0 {
            hash.update(&block);
            block.clear();
        }
    }
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn only_writes_outside_the_partition_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let disk = File::create_new(&path).unwrap();
        disk.set_len(16 << 20).unwrap();
        let parts = ["-n1:2048:4095", "-c1:state", "-n2:4096:8191", "-c2:persistent"];
        assert!(Command::new("sgdisk").args(parts).arg(&path).status().unwrap().success());
        let around = hash_around(&path, "persistent").unwrap();
        let whole = hash_disk(&path).unwrap();
        for (name, sector, is_outside) in [
            ("first of the partition", 4096, false),
            ("last of the partition", 8191, false),
            ("before it", 4095, true),
            ("after it", 8192, true),
        ] {
            disk.write_all_at(b"x", sector * SECTOR).unwrap();
            assert_eq!(hash_around(&path, "persistent").unwrap() != around, is_outside, "{name}");
            assert_ne!(hash_disk(&path).unwrap(), whole, "{name}");
            disk.write_all_at(b"\0", sector * SECTOR).unwrap();
        }
        assert!(hash_around(&path, "oem").is_err());
    }
}
