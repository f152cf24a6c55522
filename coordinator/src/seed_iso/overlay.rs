//! A base image with one run of bytes replaced: which bytes come from where.

use bytes::Bytes;

use super::layout::Extent;

/// A base image and what lies over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    size: u64,
    at: u64,
    patch: Bytes,
}

/// A run of bytes and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// From the base image.
    Base(Extent),
    /// From memory.
    Patch(Bytes),
}

impl Overlay {
    /// Lays `patch` over a base of `size` bytes from `at` on; nothing when it
    /// would stick out.
    #[must_use]
    pub fn new(size: u64, at: u64, patch: Bytes) -> Option<Self> {
        let end = at.checked_add(patch.len() as u64)?;
        (end <= size).then_some(Self { size, at, patch })
    }

    /// Bytes of the whole, and of the base.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// First byte of the patch.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The pieces of a range, in order; a range that sticks out is cut.
    #[must_use]
    pub fn pieces(&self, range: Extent) -> Vec<Piece> {
        let end = range.at.saturating_add(range.len).min(self.size);
        let patch_end = self.at + self.patch.len() as u64;
        let mut pieces = vec![];
        let base = |from: u64, to: u64| {
            (from < to).then_some(Piece::Base(Extent { at: from, len: to.saturating_sub(from) }))
        };
        pieces.extend(base(range.at, end.min(self.at)));
        let (from, to) = (range.at.max(self.at), end.min(patch_end));
        if from < to {
            // In bounds: both lie within the patch, which is in memory.
            let index = |at: u64| usize::try_from(at - self.at).unwrap_or(usize::MAX);
            pieces.push(Piece::Patch(self.patch.slice(index(from)..index(to))));
        }
        pieces.extend(base(range.at.max(patch_end), end));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_is_cut_at_the_edges_of_the_patch() {
        let overlay = Overlay::new(10, 4, Bytes::from_static(b"abc")).unwrap();
        let base = |at, len| Piece::Base(Extent { at, len });
        let patch = |text: &'static str| Piece::Patch(Bytes::from_static(text.as_bytes()));
        for (name, (at, len), want) in [
            ("all", (0, 10), vec![base(0, 4), patch("abc"), base(7, 3)]),
            ("before", (1, 2), vec![base(1, 2)]),
            ("after", (8, 2), vec![base(8, 2)]),
            ("into", (3, 2), vec![base(3, 1), patch("a")]),
            ("within", (5, 1), vec![patch("b")]),
            ("out of", (6, 2), vec![patch("c"), base(7, 1)]),
            ("sticking out", (9, 5), vec![base(9, 1)]),
            ("beyond", (10, 1), vec![]),
            ("none", (4, 0), vec![]),
        ] {
            assert_eq!(overlay.pieces(Extent { at, len }), want, "{name}");
        }
        assert_eq!(Overlay::new(10, 8, Bytes::from_static(b"abc")), None);
        assert_eq!(Overlay::new(10, u64::MAX, Bytes::from_static(b"abc")), None);
    }

    proptest! {
        #[test]
        fn every_range_is_that_of_the_patched_whole(
            base in proptest::collection::vec(any::<u8>(), 1..64),
            at in 0_usize..64, patch in proptest::collection::vec(any::<u8>(), 0..16),
            from in 0_usize..80, len in 0_usize..80,
        ) {
            let size = base.len() as u64;
            if let Some(overlay) = Overlay::new(size, at as u64, patch.clone().into()) {
                let mut whole = base.clone();
                whole[at..at + patch.len()].copy_from_slice(&patch);
                let mut got = vec![];
                for piece in overlay.pieces(Extent { at: from as u64, len: len as u64 }) {
                    match piece {
                        Piece::Patch(bytes) => got.extend(bytes),
                        Piece::Base(extent) => {
                            let at = usize::try_from(extent.at).unwrap();
                            got.extend(&base[at..at + usize::try_from(extent.len).unwrap()]);
                        }
                    }
                }
                let end = (from + len).min(whole.len());
                prop_assert_eq!(got, whole.get(from..end).unwrap_or_default());
            }
        }
    }
}
