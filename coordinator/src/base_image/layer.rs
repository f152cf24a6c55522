//! Scans the files of a layer while it arrives as a stream of tar, compressed or not.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use bytes::{Buf as _, Bytes};
use coordinator_core::seed_image::image_files::{Ambiguous, EntryKind, Search};
use flate2::bufread::MultiGzDecoder;
use tokio::sync::mpsc;

use super::keep::{Arrived, KeepError, Writer};
use super::ledger::Room;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes of a skippable frame, with which some tools begin a zstd stream.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// Offset of the identifier of an ISO 9660 image.
const MAGIC_AT: usize = 32769;
const MAGIC: &[u8] = b"CD001";
/// Largest window of zstd: 32 MiB, which the decoder keeps in memory. The best compression of the tools that
/// build images needs as much.
const WINDOW_LOG: u32 = 25;
/// Bytes to which an image may unpack at any size, and bytes for each byte that arrives above that. Empty
/// blocks of a file system shrink to a thousandth, whole images to a fifth.
const UNPACKED_BYTES: u64 = 1 << 30;
const RATIO: u64 = 100;
/// Largest size in bytes of an extension, which has a long name.
const EXTENSION: u64 = 1 << 20;

/// A failure to read a layer.
#[derive(Debug)]
pub(super) enum LayerError {
    /// The sender of the bytes stopped, and has the cause.
    Stopped,
    Malformed(String),
    Keep(KeepError),
}

impl LayerError {
    fn malformed(reason: &str) -> Self {
        Self::Malformed(reason.to_owned())
    }
}

impl From<KeepError> for LayerError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Read(error) => error.into(),
            error => Self::Keep(error),
        }
    }
}

impl From<io::Error> for LayerError {
    fn from(error: io::Error) -> Self {
        match error.get_ref() {
            Some(inner) if inner.is::<Stopped>() => Self::Stopped,
            Some(inner) if inner.is::<Oversized>() => Self::Keep(KeepError::TooLarge),
            _ => Self::Malformed(error.to_string()),
        }
    }
}

/// Bytes of a layer, for a thread that may block; `None` is the end of the layer.
pub(super) type Pieces = mpsc::Receiver<Option<Bytes>>;

struct Arriving {
    pieces: Pieces,
    piece: Bytes,
    ended: bool,
    /// Bytes of all layers so far.
    arrived: Rc<Cell<u64>>,
}

/// The channel was closed before the end of the layer.
#[derive(Debug, thiserror::Error)]
#[error("the layer stopped")]
struct Stopped;

/// The layer unpacks to more bytes than allowed.
#[derive(Debug, thiserror::Error)]
#[error("the layer is too large")]
struct Oversized;

impl Read for Arriving {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => {
                    self.arrived.set(self.arrived.get().saturating_add(piece.len() as u64));
                    self.piece = piece;
                }
                Some(None) => self.ended = true,
                None => return Err(io::Error::other(Stopped)),
            }
        }
        let count = out.len().min(self.piece.len());
        out[..count].copy_from_slice(&self.piece[..count]);
        self.piece.advance(count);
        Ok(count)
    }
}

/// Bounds the output of the decoder.
struct Bounded<R> {
    inner: R,
    left: u64,
    /// Bytes of all layers that were unpacked.
    unpacked: u64,
    arrived: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other(Oversized))?;
        self.unpacked += count as u64;
        if self.unpacked > UNPACKED_BYTES.saturating_add(self.arrived.get().saturating_mul(RATIO)) {
            return Err(io::Error::other(Oversized));
        }
        Ok(count)
    }
}

/// The search for the base ISO of one image.
pub(super) struct Extraction {
    /// Where the ISO is written.
    room: Room,
    /// Bytes to which the remaining layers may unpack.
    left: u64,
    /// Bytes that arrived, and bytes that they were unpacked to.
    arrived: u64,
    unpacked: u64,
    search: Search,
    kept: Option<Arrived>,
}

impl Extraction {
    pub(super) fn new(room: Room) -> Self {
        let left = room.limit.saturating_mul(2);
        Self { room, left, arrived: 0, unpacked: 0, search: Search::default(), kept: None }
    }

    /// Reads a layer to its end; layers come from the top down.
    pub(super) fn scan_layer(&mut self, pieces: Pieces) -> Result<(), LayerError> {
        let arrived = Rc::new(Cell::new(self.arrived));
        let mut arriving = Arriving { pieces, piece: Bytes::new(), ended: false, arrived: arrived.clone() };
        let scanned = self.scan_pieces(&mut arriving);
        if matches!(scanned, Err(LayerError::Malformed(_))) {
            // The rest is read, because the sender can check the digest only at the end.
            io::copy(&mut arriving, &mut io::sink())?;
        }
        self.arrived = arrived.get();
        self.search.end_layer();
        scanned
    }

    pub(super) fn finish(self) -> Result<Arrived, Ambiguous> {
        self.search.finish()?;
        self.kept.ok_or_else(Ambiguous::default)
    }

    fn scan_pieces(&mut self, arriving: &mut Arriving) -> Result<(), LayerError> {
        let (left, unpacked, arrived) = (self.left, self.unpacked, arriving.arrived.clone());
        let mut unpacked = Bounded { inner: open_decoder(arriving)?, left, unpacked, arrived };
        let mut archive = tar::Archive::new(&mut unpacked);
        let mut name = None;
        // Extensions are read here, because the crate would hold them in memory at any size.
        for entry in archive.entries()?.raw(true) {
            let entry = entry?;
            match read_extension(entry)? {
                Entry::Name(long) => name = Some(long),
                Entry::Other => {}
                Entry::Itself(entry) => self.scan_entry(*entry, name.take())?,
            }
        }
        // The bytes after the end of the archive are part of the layer.
        io::copy(&mut unpacked, &mut io::sink())?;
        (self.left, self.unpacked) = (unpacked.left, unpacked.unpacked);
        drop(unpacked);
        io::copy(arriving, &mut io::sink())?;
        Ok(())
    }

    fn scan_entry(
        &mut self,
        mut entry: tar::Entry<'_, impl Read>,
        name: Option<Vec<u8>>,
    ) -> Result<(), LayerError> {
        let path = name.unwrap_or_else(|| entry.header().path_bytes().into_owned());
        let path = String::from_utf8_lossy(&path).into_owned();
        let kind = entry.header().entry_type();
        let (is_file, is_directory) = (kind.is_file(), kind.is_dir());
        let kind = if is_directory { EntryKind::Directory } else { EntryKind::Other };
        let seen = self.search.see_entry(&path, kind);
        let seen = seen.map_err(|_| LayerError::malformed("its names are too many"))?;
        let mut head = vec![0; MAGIC_AT + MAGIC.len()];
        let is_file = is_file && entry.size() > head.len() as u64;
        let Some(path) = seen.filter(|_| is_file) else { return Ok(()) };
        entry.read_exact(&mut head)?;
        if !head.ends_with(MAGIC) || !self.search.record_iso(&path) {
            return Ok(());
        }
        let mut writer = Writer::create(&self.room)?;
        writer.write(&head)?;
        self.kept = Some(writer.copy_from(&mut entry)?);
        Ok(())
    }
}

/// An entry of the archive, by its purpose.
enum Entry<'a, R: Read> {
    /// The long name of the next entry.
    Name(Vec<u8>),
    /// An extension without a name.
    Other,
    /// A file, a directory or the like.
    Itself(Box<tar::Entry<'a, R>>),
}

fn read_extension<R: Read>(mut entry: tar::Entry<'_, R>) -> Result<Entry<'_, R>, LayerError> {
    let kind = entry.header().entry_type();
    let is_name = kind.is_gnu_longname();
    if !is_name && !kind.is_pax_local_extensions() {
        let is_other = kind.is_gnu_longlink() || kind.is_pax_global_extensions();
        return Ok(if is_other { Entry::Other } else { Entry::Itself(Box::new(entry)) });
    }
    if entry.size() > EXTENSION {
        return Err(LayerError::malformed("a name is too long"));
    }
    let mut bytes = vec![];
    entry.read_to_end(&mut bytes)?;
    if is_name {
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        return Ok(Entry::Name(bytes));
    }
    let mut name = None;
    for extension in tar::PaxExtensions::new(&bytes) {
        let extension = extension?;
        match extension.key_bytes() {
            b"path" => name = Some(extension.value_bytes().to_owned()),
            b"size" if is_oversized(extension.value_bytes()) => {
                return Err(LayerError::malformed("it has a file of 8 GiB or more"));
            }
            _ => {}
        }
    }
    Ok(name.map_or(Entry::Other, Entry::Name))
}

/// The size does not fit into the header of an entry.
fn is_oversized(size: &[u8]) -> bool {
    let size = str::from_utf8(size).ok().and_then(|size| size.parse::<u64>().ok());
    size.is_none_or(|size| size >= 1 << 33)
}

/// Chooses the decoder by the first bytes, because media types are often wrong.
fn open_decoder<'a>(arriving: &'a mut Arriving) -> Result<Box<dyn Read + 'a>, LayerError> {
    let mut reader = BufReader::with_capacity(128 * 1024, arriving);
    let start = reader.fill_buf()?;
    if start.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(reader)));
    }
    if start.starts_with(&ZSTD) || start.get(1..4) == Some(&ZSTD_SKIPPED) {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
        decoder.window_log_max(WINDOW_LOG)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(reader))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use super::super::ledger::Ledger;
    use super::*;

    type Check = fn(&LayerError) -> bool;

    fn iso(fill: u8) -> Vec<u8> {
        let mut iso = vec![fill; 40_000];
        iso[MAGIC_AT..MAGIC_AT + MAGIC.len()].copy_from_slice(MAGIC);
        iso
    }

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(vec![]);
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A frame that asks for a window of 128 MiB.
    fn wide_zstd() -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(vec![], 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
        encoder.finish().unwrap()
    }

    /// A file of 2 GiB in 64 KiB, of which the first GiB is unpacked.
    fn packed_zeros() -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_size(2 << 30);
        header.set_path("a").unwrap();
        header.set_cksum();
        let mut encoder = zstd::stream::write::Encoder::new(vec![], 1).unwrap();
        encoder.write_all(header.as_bytes()).unwrap();
        io::copy(&mut io::repeat(0).take(2 << 30), &mut encoder).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).unwrap()
    }

    struct Scan {
        directory: tempfile::TempDir,
        extraction: Extraction,
    }

    impl Scan {
        fn new(limit: u64) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let ledger = Arc::new(Ledger::open(directory.path(), 1 << 20).unwrap());
            Self {
                directory,
                extraction: Extraction::new(Room { ledger, namespace: "fleet".to_owned(), limit }),
            }
        }

        fn layer(&mut self, bytes: &[u8], is_whole: bool) -> Result<(), LayerError> {
            let (sender, pieces) = mpsc::channel(1024);
            for piece in bytes.chunks(1000) {
                sender.blocking_send(Some(Bytes::copy_from_slice(piece))).unwrap();
            }
            if is_whole {
                sender.blocking_send(None).unwrap();
            }
            drop(sender);
            self.extraction.scan_layer(pieces)
        }

        fn files(&self) -> usize {
            std::fs::read_dir(self.directory.path()).unwrap().count()
        }
    }

    #[test]
    fn iso_is_found_in_every_compression() {
        let plain = tar(&[("etc/hosts", b"x"), ("elemental-iso/base.iso", &iso(1)), ("x.iso", b"no")]);
        let mut frames = vec![0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9];
        let (first, second) = plain.split_at(20_000);
        frames.extend([zstd(first), zstd(second)].concat());
        let members = [gzip(first), gzip(second)].concat();
        for layer in [plain.clone(), gzip(&plain), members, zstd(&plain), frames] {
            let mut scan = Scan::new(1 << 20);
            scan.layer(&layer, true).unwrap();
            let arrived = scan.extraction.finish().unwrap();
            assert_eq!(std::fs::read(&arrived.path).unwrap(), iso(1));
            assert_eq!(arrived.size, 40_000);
        }
    }

    #[test]
    fn long_names_are_read_and_bounded() {
        let long = format!("elemental-iso/{}.iso", "x".repeat(200));
        let mut pax = tar::Builder::new(vec![]);
        pax.append_pax_extensions([("path", long.as_bytes()), ("mtime", b"1")]).unwrap();
        let mut whole = pax.into_inner().unwrap();
        whole.truncate(whole.len() - 1024);
        whole.extend(tar(&[("short", &iso(2))]));
        for layer in [tar(&[(&long, &iso(2))]), whole] {
            let mut scan = Scan::new(1 << 20);
            scan.layer(&[layer, tar(&[("other.iso", &iso(3))])].concat(), true).unwrap();
            let kept = scan.extraction.finish().unwrap();
            assert_eq!(std::fs::read(kept.path).unwrap(), iso(2));
        }
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_size(EXTENSION + 1);
        header.set_cksum();
        let error = Scan::new(1 << 30).layer(header.as_bytes(), true).unwrap_err();
        assert!(matches!(error, LayerError::Malformed(_)), "{error:?}");
    }

    #[test]
    fn better_candidate_replaces_the_file_that_was_kept() {
        let mut scan = Scan::new(1 << 20);
        scan.layer(&tar(&[("os.img", &iso(1)), ("elemental-iso/base.iso", &iso(2))]), true).unwrap();
        assert_eq!(scan.files(), 1);
        scan.layer(&tar(&[("elemental-iso/.wh.old.iso", b"")]), true).unwrap();
        scan.layer(&tar(&[("elemental-iso/base.iso", &iso(3))]), true).unwrap();
        assert_eq!(std::fs::read(scan.extraction.finish().unwrap().path).unwrap(), iso(2));
    }

    #[test]
    fn odd_layers_leave_no_file() {
        let whole = tar(&[("a.iso", &iso(1)), ("b", &vec![0; 60_000])]);
        let large = tar(&[("a", &vec![0; 100_000])]);
        let garbled = [&gzip(&whole)[..200], b"nonsense"].concat();
        let cases: [(&str, &[u8], bool, u64, Check); 8] = [
            ("wide window", &wide_zstd(), true, 1 << 30, |error| matches!(error, LayerError::Malformed(_))),
            ("packed zeros", &packed_zeros(), true, 1 << 33, |error| {
                matches!(error, LayerError::Keep(KeepError::TooLarge))
            }),
            ("stopped", &whole[..30_000], false, 1 << 20, |error| matches!(error, LayerError::Stopped)),
            ("garbled", &garbled, true, 1 << 20, |error| matches!(error, LayerError::Malformed(_))),
            ("no tar", &[9; 5000], true, 1 << 20, |error| matches!(error, LayerError::Malformed(_))),
            ("large iso", &whole, true, 39_999, |error| {
                matches!(error, LayerError::Keep(KeepError::TooLarge))
            }),
            ("large layer", &large, true, 45_000, |error| {
                matches!(error, LayerError::Keep(KeepError::TooLarge))
            }),
            ("cut", &whole[..60_000], true, 1 << 20, |error| matches!(error, LayerError::Malformed(_))),
        ];
        for (name, layer, is_whole, limit, want) in cases {
            let mut scan = Scan::new(limit);
            let error = scan.layer(layer, is_whole).unwrap_err();
            assert!(want(&error), "{name}: {error:?}");
            let directory = scan.directory;
            drop(scan.extraction);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{name}");
        }
    }
}
