//! Images with bytes that are not theirs: nothing is added to them, or every file is found.

use std::io::Cursor;

use proptest::prelude::*;

use super::tests::{new_files, render};
use super::*;
use crate::seed_iso::tests::by_hand;

const SECTOR: usize = 512;

/// An image with a GUID partition table, whose partition is no volume; and the bytes of it that
/// say where something is.
fn image() -> (Vec<u8>, Vec<usize>) {
    let mut iso = by_hand();
    let sectors = u64::try_from(iso.len() / SECTOR).unwrap();
    let mut put = |at: usize, bytes: &[u8]| iso[at..at + bytes.len()].copy_from_slice(bytes);
    put(SECTOR, b"EFI PART");
    put(SECTOR + 12, &92_u32.to_le_bytes());
    put(SECTOR + 32, &(sectors - 1).to_le_bytes());
    put(SECTOR + 72, &2_u64.to_le_bytes());
    put(SECTOR + 80, &[4_u32.to_le_bytes(), 128_u32.to_le_bytes()].concat());
    put(2 * SECTOR, &[0xaf; 16]);
    put(2 * SECTOR + 32, &[96_u64.to_le_bytes(), 119_u64.to_le_bytes()].concat());
    let block = |block: usize, bytes: std::ops::Range<usize>| {
        let from = block * 2048;
        from + bytes.start..from + bytes.end
    };
    let live = [
        SECTOR..SECTOR + 92,
        2 * SECTOR..2 * SECTOR + 48,
        block(16, 0..190),
        block(18, 0..112),
        block(19, 0..12),
    ];
    (iso, live.into_iter().flatten().collect())
}

fn content(file: &NewFile) -> &[u8] {
    match &file.content {
        Content::Text(bytes) => bytes,
        Content::Agent { .. } => super::tests::AGENT,
    }
}

#[test]
fn image_is_valid_before_it_is_spoilt() {
    let (iso, _) = image();
    let overlay = compose(&mut Base::new(Cursor::new(&iso)).unwrap(), &new_files()).unwrap();
    let made = render(&overlay, &iso);
    let mut base = Base::new(Cursor::new(&made)).unwrap();
    for tree in Tree::read_all(&mut base, 0).unwrap() {
        tree.check(&mut base);
    }
}

#[test]
fn table_that_reaches_the_volume_descriptors_is_refused() {
    let (mut iso, _) = image();
    // 4 entries of 8064 bytes end behind the first volume descriptor.
    iso[SECTOR + 33] = 1;
    iso[SECTOR + 85] = 31;
    let composed = compose(&mut Base::new(Cursor::new(&iso)).unwrap(), &new_files());
    assert!(matches!(composed, Err(ReadError::Layout(_))), "{composed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoilt_base_is_refused_or_gets_every_file(
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let (mut iso, live) = image();
        for (at, byte) in spoilt {
            iso[*at.get(&live)] = byte;
        }
        if let Some(cut) = cut {
            iso.truncate(cut.index(iso.len()));
        }
        let files = new_files();
        match compose(&mut Base::new(Cursor::new(&iso)).unwrap(), &files) {
            Err(error) => prop_assert!(matches!(error, ReadError::Layout(_)), "{:?}", error),
            Ok(overlay) => {
                prop_assert!(overlay.stored() < 250_000, "{} bytes are held", overlay.stored());
                let made = render(&overlay, &iso);
                let mut base = Base::new(Cursor::new(&made)).unwrap();
                let trees = Tree::read_all(&mut base, 0);
                prop_assert!(trees.is_ok(), "{:?}", trees);
                for tree in trees.unwrap() {
                    for file in &files {
                        let found = tree.content_of(&mut base, (file.directory, file.name));
                        prop_assert!(found.as_deref() == Some(content(file)), "{:?} {}", file.directory, file.name);
                    }
                    let kernel = tree.content_of(&mut base, (None, "kernel"));
                    prop_assert!(kernel.is_none_or(|kernel| kernel.len() as u64 <= base.size()));
                }
            }
        }
    }
}
