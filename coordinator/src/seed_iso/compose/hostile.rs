//! Images that were crafted to cost memory or time.

use std::io::Cursor;
use std::time::{Duration, Instant};

use super::tests::new_files;
use super::*;
use crate::seed_iso::layout::{Stop, both_endian};

const MIB: usize = 1 << 20;

/// An image in memory, of which pieces are written where they belong.
struct Crafted(Vec<u8>);

impl Crafted {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.0.resize(self.0.len().max(end.next_multiple_of(2048)), 0);
        self.0[at..end].copy_from_slice(bytes);
    }

    /// Appends bytes, and tells their block.
    fn append(&mut self, bytes: &[u8]) -> u32 {
        let at = self.0.len().next_multiple_of(2048);
        self.put(at, bytes);
        u32::try_from(at / 2048).unwrap()
    }

    fn descriptor(&mut self, index: usize, table: (u32, usize), root: (u32, usize)) {
        let mut descriptor = vec![0; 2048];
        descriptor[..6].copy_from_slice(b"\x01CD001");
        let len = |len: usize| both_endian(u32::try_from(len).unwrap());
        descriptor[132..140].copy_from_slice(&len(table.1));
        descriptor[140..144].copy_from_slice(&table.0.to_le_bytes());
        descriptor[158..166].copy_from_slice(&both_endian(root.0));
        descriptor[166..174].copy_from_slice(&len(root.1));
        self.put((16 + index) * 2048, &descriptor);
    }
}

fn record(block: u32, len: usize, name: &[u8]) -> Vec<u8> {
    let mut record = vec![0; 33];
    record[2..10].copy_from_slice(&both_endian(block));
    record[10..18].copy_from_slice(&both_endian(u32::try_from(len).unwrap()));
    record[25] = 2;
    record[32] = u8::try_from(name.len()).unwrap();
    record.extend(name);
    record.resize(record.len().next_multiple_of(2), 0);
    record[0] = u8::try_from(record.len()).unwrap();
    record
}

fn entry(block: u32) -> Vec<u8> {
    [&[1, 0][..], &block.to_le_bytes(), &[1, 0, b'A', 0]].concat()
}

/// A directory of this many bytes: records of 34 bytes in blocks of 2048.
fn directory(block: u32, bytes: usize) -> Vec<u8> {
    let mut all = vec![];
    while all.len() < bytes {
        let first = all.is_empty();
        let mut packed = vec![];
        while packed.len() + 34 <= 2048 {
            let name: &[u8] = if first && packed.is_empty() { &[0] } else { &[1] };
            packed.extend(record(block, bytes, name));
        }
        packed.resize(2048, 0);
        all.extend(packed);
    }
    all
}

/// Trees of their own tables and roots.
fn many_trees(trees: usize, table: usize, root: usize) -> Vec<u8> {
    let mut image = Crafted(vec![0; 64 * 2048]);
    for index in 0..trees {
        let block = u32::try_from(image.0.len() / 2048).unwrap();
        let root_at = image.append(&directory(block, root));
        let entries = [entry(root_at), entry(root_at).repeat(table / 10 - 1)].concat();
        let table_at = image.append(&entries);
        image.descriptor(index, (table_at, entries.len()), (root_at, root));
    }
    image.0
}

fn compose_image(image: &[u8]) -> Result<Overlay, ReadError> {
    compose(&mut Base::new(Cursor::new(image)).unwrap(), &new_files())
}

fn expect_refusal(what: &str, image: &[u8]) {
    let started = Instant::now();
    let composed = compose_image(image).map(|overlay| overlay.stored());
    assert!(matches!(composed, Err(ReadError::Layout(_))), "{what}: {composed:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{what}: {:?}", started.elapsed());
}

#[test]
fn crafted_images_are_refused() {
    expect_refusal("16 trees with 4 MiB each", &many_trees(16, 4 * MIB, 4 * MIB));
    expect_refusal("5 small trees", &many_trees(5, 1000, 2048));
    expect_refusal("419,430 directories", &many_trees(1, 4 * MIB, 2048));
    expect_refusal("a root of 4 MiB", &many_trees(1, 1000, 4 * MIB));
}

#[test]
fn children_of_the_root_are_bounded() {
    let mut image = Crafted(vec![0; 64 * 2048]);
    let root_at = image.append(&directory(64, 2048));
    let children = (0..9000).map(|index| entry(root_at + 1 + index)).collect::<Vec<_>>();
    let entries = [entry(root_at), children.concat()].concat();
    image.append(&vec![0; 9000 * 2048]);
    let table_at = image.append(&entries);
    image.descriptor(0, (table_at, entries.len()), (root_at, 2048));
    let composed = compose_image(&image.0).map(|overlay| overlay.stored());
    let is_bounded = matches!(composed, Err(ReadError::Layout(LayoutError::TooMany("16 MiB of changes"))));
    assert!(is_bounded, "{composed:?}");
}

/// A volume in a partition, so that the end of all files is looked for in every directory.
#[test]
fn directories_are_read_up_to_a_bound() {
    let mut image = Crafted(vec![0; 64 * 2048]);
    let big = image.append(&directory(64, 4 * MIB));
    let root_at = image.append(&directory(u32::try_from(image.0.len() / 2048).unwrap(), 2048));
    let entries = [entry(root_at), entry(big).repeat(10_000)].concat();
    let table_at = image.append(&entries);
    image.descriptor(0, (table_at, entries.len()), (root_at, 2048));
    let mut base = Base::new(Cursor::new(&image.0)).unwrap();
    let trees = Tree::read_all(&mut base, 0).unwrap();
    let found = find_end(&mut base, &trees);
    let is_bounded = matches!(found, Err(ReadError::Layout(LayoutError::TooMany("64 MiB of directories"))));
    assert!(is_bounded, "{found:?}");
}

#[test]
fn overlay_of_the_largest_trees_stays_small() {
    let overlay = compose_image(&many_trees(4, 100_000, MIB / 2)).unwrap();
    assert!(overlay.stored() < super::super::changes::KEPT_BYTES, "{}", overlay.stored());
}

#[test]
fn late_or_abandoned_work_stops() {
    let image = many_trees(1, 1000, 2048);
    let compose_until = |stop: Stop| {
        let mut base = Base::new(Cursor::new(&image)).unwrap().until(stop);
        compose(&mut base, &new_files()).map(|overlay| overlay.stored())
    };
    let far = Instant::now() + Duration::from_hours(1);
    let (stop, waiting) = Stop::at(far);
    assert!(compose_until(stop.clone()).is_ok());
    drop(waiting);
    assert!(matches!(compose_until(stop), Err(ReadError::Io(_))), "nobody waits");
    let (stop, _waiting) = Stop::at(Instant::now());
    assert!(matches!(compose_until(stop), Err(ReadError::Io(_))), "it is late");
}
