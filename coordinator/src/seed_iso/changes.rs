//! The changes of a seed to its base: blocks of the base that differ, and new blocks.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::layout::{BLOCK, Base, LayoutError, ReadError};
use super::overlay::Piece;

/// Most bytes of a seed that are kept in memory, as long as its object lives.
pub const KEPT_BYTES: u64 = 16 << 20;
const KEPT: LayoutError = LayoutError::TooMany("16 MiB of changes");

/// Blocks of the base with other bytes.
#[derive(Debug, Default)]
pub struct Changes {
    blocks: BTreeMap<u64, Vec<u8>>,
    /// First new block.
    appended: u64,
}

impl Changes {
    /// New blocks begin at `appended`.
    pub fn new(appended: u64) -> Self {
        Self { blocks: BTreeMap::new(), appended }
    }

    /// The bytes of a block, for a change.
    pub fn edit<R: Read + Seek>(&mut self, base: &mut Base<R>, block: u64) -> Result<&mut [u8], ReadError> {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.blocks.entry(block) {
            entry.insert(base.read_block(block, "directory")?);
        }
        if self.blocks.len() as u64 > KEPT_BYTES / BLOCK {
            return Err(KEPT.into());
        }
        Ok(self.blocks.entry(block).or_default())
    }

    pub fn replace(&mut self, block: u64, bytes: Vec<u8>) {
        self.blocks.insert(block, bytes);
    }

    pub fn is_appended(&self, block: u64) -> bool {
        block >= self.appended
    }

    /// All changed blocks, in order.
    pub fn into_blocks(self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.blocks.into_iter()
    }
}

/// New blocks, one after the other.
#[derive(Debug)]
pub struct Appended {
    first: u64,
    next: u64,
    contents: BTreeMap<u64, Piece>,
    /// Bytes in memory.
    kept: u64,
}

impl Appended {
    pub fn new(first: u64) -> Self {
        Self { first, next: first, contents: BTreeMap::new(), kept: 0 }
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number of the new blocks.
    pub fn blocks(&self) -> u64 {
        self.next - self.first
    }

    /// Reserves blocks for `len` bytes.
    pub fn reserve(&mut self, len: u64) -> u64 {
        let at = self.next;
        self.next += len.div_ceil(BLOCK);
        at
    }

    /// Fills reserved blocks.
    pub fn fill(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), LayoutError> {
        self.insert(at, Piece::Patch(bytes.into()))
    }

    pub fn append(&mut self, piece: Piece) -> Result<u64, LayoutError> {
        let at = self.reserve(piece.size());
        self.insert(at, piece)?;
        Ok(at)
    }

    fn insert(&mut self, at: u64, piece: Piece) -> Result<(), LayoutError> {
        if matches!(piece, Piece::Patch(_)) {
            self.kept += piece.size();
        }
        self.contents.insert(at, piece);
        if self.kept > KEPT_BYTES { Err(KEPT) } else { Ok(()) }
    }

    /// All contents and their places, in order.
    pub fn into_contents(self) -> impl Iterator<Item = (u64, Piece)> {
        self.contents.into_iter()
    }
}
