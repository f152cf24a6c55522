//! The pieces of a download, and the source of each.

use bytes::Bytes;

use super::layout::Extent;

/// A run of bytes and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// From the base image.
    Base(Extent),
    /// From the agent's file.
    Agent(Extent),
    Patch(Bytes),
}

impl Piece {
    /// Bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Base(extent) | Self::Agent(extent) => extent.len,
            Self::Patch(bytes) => bytes.len() as u64,
        }
    }

    /// A part of the piece; the caller stays within its bounds.
    fn cut(&self, from: u64, len: u64) -> Self {
        match self {
            Self::Base(extent) => Self::Base(Extent { at: extent.at + from, len }),
            Self::Agent(extent) => Self::Agent(Extent { at: extent.at + from, len }),
            Self::Patch(bytes) => Self::Patch(bytes.slice(index(from)..index(from + len))),
        }
    }
}

/// An index of bytes in memory, which `usize` can always hold.
fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// A whole image, in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Each piece with its offset, in order and without gaps.
    pieces: Vec<(u64, Piece)>,
    size: u64,
}

impl Overlay {
    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Piece) {
        let len = piece.size();
        if len > 0 {
            self.pieces.push((self.size, piece));
            self.size += len;
        }
    }

    /// Adds zeros up to an offset.
    pub fn pad(&mut self, to: u64) {
        let missing = usize::try_from(to.saturating_sub(self.size)).unwrap_or_default();
        self.push(Piece::Patch(vec![0; missing].into()));
    }

    /// Bytes of the whole.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in memory.
    pub fn stored(&self) -> u64 {
        let held = self.pieces.iter().filter(|(_, piece)| matches!(piece, Piece::Patch(_)));
        held.map(|(_, piece)| piece.size()).sum()
    }

    /// The pieces of a range, in order; a range beyond the end is cut.
    pub fn pieces(&self, range: Extent) -> Vec<Piece> {
        let end = range.at.saturating_add(range.len).min(self.size);
        let first = self.pieces.partition_point(|(at, piece)| at + piece.size() <= range.at);
        let within = self.pieces.iter().skip(first).take_while(|(at, _)| *at < end);
        let cut = within.map(|(at, piece)| {
            let (from, to) = (range.at.max(*at), end.min(at + piece.size()));
            piece.cut(from - at, to.saturating_sub(from))
        });
        cut.filter(|piece| piece.size() > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_cut_at_the_edges_of_pieces() {
        let base = |at, len| Piece::Base(Extent { at, len });
        let patch = |text: &'static str| Piece::Patch(Bytes::from_static(text.as_bytes()));
        let mut overlay = Overlay::default();
        for piece in [base(0, 4), patch(""), patch("abc"), base(4, 3)] {
            overlay.push(piece);
        }
        assert_eq!((overlay.size(), overlay.stored()), (10, 3));
        for (name, (at, len), want) in [
            ("all", (0, 10), vec![base(0, 4), patch("abc"), base(4, 3)]),
            ("before", (1, 2), vec![base(1, 2)]),
            ("after", (8, 2), vec![base(5, 2)]),
            ("into", (3, 2), vec![base(3, 1), patch("a")]),
            ("within", (5, 1), vec![patch("b")]),
            ("out of", (6, 2), vec![patch("c"), base(4, 1)]),
            ("sticking out", (9, 5), vec![base(6, 1)]),
            ("beyond", (10, 1), vec![]),
            ("none", (4, 0), vec![]),
        ] {
            assert_eq!(overlay.pieces(Extent { at, len }), want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_range_is_that_of_the_whole(
            base in proptest::collection::vec(any::<u8>(), 1..64),
            parts in proptest::collection::vec((any::<bool>(), 0_usize..16), 0..8),
            from in 0_usize..160, len in 0_usize..160,
        ) {
            let (mut overlay, mut whole) = (Overlay::default(), vec![]);
            for (is_base, len) in parts {
                let len = len.min(base.len());
                if is_base {
                    overlay.push(Piece::Base(Extent { at: 0, len: len as u64 }));
                    whole.extend(&base[..len]);
                } else {
                    overlay.push(Piece::Patch(vec![7; len].into()));
                    whole.extend(vec![7; len]);
                }
            }
            let mut got = vec![];
            for piece in overlay.pieces(Extent { at: from as u64, len: len as u64 }) {
                match piece {
                    Piece::Patch(bytes) => got.extend(bytes),
                    Piece::Base(extent) | Piece::Agent(extent) => {
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
