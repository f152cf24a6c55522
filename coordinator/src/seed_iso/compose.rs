//! Composes an image from a base and added files, without a copy: the result lists the blocks that
//! differ, the new blocks, and the place of each in the download.

use std::io::{Read, Seek};

use bytes::Bytes;

use super::changes::{Appended, Changes, KEPT_BYTES};
use super::layout::{BLOCK, Base, Extent, LayoutError, ReadError, put, u32_at};
use super::overlay::{Overlay, Piece};
use super::partitions::{Partitions, Place};
use super::tree::{self, PlacedFile, Tree};

/// A file that a seed adds to its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// A directory of the root, or the root itself.
    pub directory: Option<&'static str>,
    /// A file of the base with this name is replaced.
    pub name: &'static str,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Text(Bytes),
    /// The agent's file, which is equal in every seed and is read during the download.
    Agent {
        /// Bytes.
        len: u64,
    },
}

/// Adds `files` to a base.
pub fn compose<R: Read + Seek>(base: &mut Base<R>, files: &[NewFile]) -> Result<Overlay, ReadError> {
    let partitions = Partitions::read(base)?;
    let mut trees = Tree::read_all(base, 0)?;
    let mut place = partitions.find_place(base)?;
    // Files behind the first partition would have to move. In this case the partition stays, and
    // the image has to be mounted as a whole.
    if place.volume.is_some() && find_end(base, &trees)? > place.block {
        place = Place { volume: None, block: place.kept.div_ceil(BLOCK), ..place };
    }
    if let Some(volume) = place.volume {
        trees.extend(Tree::read_all(base, volume)?);
    }
    let (mut appended, mut changes) = (Appended::new(place.block), Changes::new(place.block));
    let placed: Result<Vec<_>, _> = files.iter().map(|file| place_file(file, &mut appended)).collect();
    let placed = placed?;
    for tree in &mut trees {
        tree.add_files(base, &placed, (&mut appended, &mut changes))?;
    }
    for tree in trees {
        tree.finish(&appended, &mut changes)?;
    }
    move_boot_images(base, &appended, &mut changes)?;
    let tail = partitions.move_for(base, (place, appended.blocks()), &mut changes)?;
    let overlay = assemble(place, changes, appended, tail);
    if overlay.stored() > KEPT_BYTES {
        return Err(LayoutError::TooMany("16 MiB of changes").into());
    }
    Ok(overlay)
}

fn find_end<R: Read + Seek>(base: &mut Base<R>, trees: &[Tree]) -> Result<u64, ReadError> {
    trees.iter().try_fold(0, |end, tree| Ok(end.max(tree.find_end(base)?)))
}

fn place_file<'a>(file: &'a NewFile, appended: &mut Appended) -> Result<PlacedFile<'a>, LayoutError> {
    let (piece, executable) = match &file.content {
        Content::Text(bytes) => (Piece::Patch(bytes.clone()), false),
        Content::Agent { len } => (Piece::Agent(Extent { at: 0, len: *len }), true),
    };
    let len = u32::try_from(piece.size()).map_err(|_| LayoutError::TooLarge)?;
    let block = appended.append(piece)?;
    Ok(PlacedFile { directory: file.directory, name: file.name, executable, block, len })
}

/// Moves boot images of El Torito that lie behind the new blocks, such as the EFI partition.
fn move_boot_images<R: Read + Seek>(
    base: &mut Base<R>,
    appended: &Appended,
    changes: &mut Changes,
) -> Result<(), ReadError> {
    let Some(catalog) = tree::find_boot_catalog(base)? else { return Ok(()) };
    let bytes = changes.edit(base, catalog)?;
    for entry in bytes.chunks_exact_mut(32).skip(1) {
        let block = u32_at(entry, 8).map_or(0, u64::from);
        if matches!(entry[0], 0x88 | 0) && block >= appended.first() {
            let moved = super::layout::block_number(block + appended.blocks())?;
            put(entry, 8, &moved.to_le_bytes());
        }
    }
    Ok(())
}

fn assemble(place: Place, changes: Changes, appended: Appended, (end, tail): (u64, Vec<u8>)) -> Overlay {
    let mut overlay = Overlay::default();
    let (at, grown) = (place.block * BLOCK, appended.blocks() * BLOCK);
    let mut from = 0;
    for (block, bytes) in changes.into_blocks() {
        overlay.push(piece_of_base(from, block * BLOCK));
        from = block * BLOCK + bytes.len() as u64;
        overlay.push(Piece::Patch(bytes.into()));
    }
    overlay.push(piece_of_base(from, at.min(place.kept)));
    for (block, piece) in appended.into_contents() {
        overlay.pad(block * BLOCK);
        overlay.push(piece);
    }
    overlay.pad(at + grown);
    overlay.push(piece_of_base(at, place.kept));
    overlay.pad(end);
    overlay.push(Piece::Patch(tail.into()));
    overlay
}

fn piece_of_base(from: u64, to: u64) -> Piece {
    Piece::Base(Extent { at: from, len: to.saturating_sub(from) })
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod spoilt;
#[cfg(test)]
mod tests;
