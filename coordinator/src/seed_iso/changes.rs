//! What a seed changes of its base: blocks of the base that differ, and blocks
//! that are new.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::layout::{BLOCK, Base, ReadError};
use super::overlay::Piece;

/// Blocks of the base with other bytes.
#[derive(Debug, Default)]
pub struct Changes {
    blocks: BTreeMap<u64, Vec<u8>>,
    /// First block that is new, none of which is in the base.
    appended: u64,
}

impl Changes {
    /// None yet; `appended` is where new blocks begin.
    pub fn new(appended: u64) -> Self {
        Self { blocks: BTreeMap::new(), appended }
    }

    /// The bytes of a block, to be changed.
    pub fn edit<R: Read + Seek>(&mut self, base: &mut Base<R>, block: u64) -> Result<&mut [u8], ReadError> {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.blocks.entry(block) {
            entry.insert(base.read_block(block, "directory")?);
        }
        Ok(self.blocks.entry(block).or_default())
    }

    /// A block with these bytes.
    pub fn replace(&mut self, block: u64, bytes: Vec<u8>) {
        self.blocks.insert(block, bytes);
    }

    /// Whether the block is a new one.
    pub fn is_appended(&self, block: u64) -> bool {
        block >= self.appended
    }

    /// All of them, in order.
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
}

impl Appended {
    /// None yet; the first is to be `first`.
    pub fn new(first: u64) -> Self {
        Self { first, next: first, contents: BTreeMap::new() }
    }

    /// The place of the first.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many there are.
    pub fn blocks(&self) -> u64 {
        self.next - self.first
    }

    /// Takes blocks for so many bytes.
    pub fn reserve(&mut self, len: u64) -> u64 {
        let at = self.next;
        self.next += len.div_ceil(BLOCK);
        at
    }

    /// Gives reserved blocks their bytes.
    pub fn fill(&mut self, at: u64, bytes: Vec<u8>) {
        self.contents.insert(at, Piece::Patch(bytes.into()));
    }

    pub fn append(&mut self, piece: Piece) -> u64 {
        let at = self.reserve(piece.size());
        self.contents.insert(at, piece);
        at
    }

    /// All contents and their places, in order.
    pub fn into_contents(self) -> impl Iterator<Item = (u64, Piece)> {
        self.contents.into_iter()
    }
}
