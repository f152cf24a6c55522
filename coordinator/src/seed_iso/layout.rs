//! Places, numbers and errors that all readers of a base image share.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Bytes of a logical block (ECMA-119).
pub const BLOCK: u64 = 2048;

/// A run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// An image to which no file can be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No primary volume descriptor.
    #[error("the base image is no ISO 9660 image")]
    NotIso,
    /// Offsets or lengths lead out of the image.
    #[error("the {0} of the base image is garbled")]
    Garbled(&'static str),
    /// A file of the base has the name of a directory that a seed needs.
    #[error("the base image has a file where a seed needs the directory /{0}")]
    NoDirectory(&'static str),
    /// More than an ISO that boots has, so that a crafted one costs no memory.
    #[error("the base image has more than {0}")]
    TooMany(&'static str),
    /// More blocks than ISO 9660 can number.
    #[error("the base image is too large")]
    TooLarge,
}

/// A failure to read a base image.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Bytes of all tables and directories that are read of a base. A DVD with 10,000 packages has 5 MiB.
const READ_BYTES: u64 = 64 << 20;

/// The end of a work that a thread does: its deadline, or the end of all who wait for its result.
#[derive(Clone, Debug)]
pub struct Stop {
    deadline: Instant,
    waiting: Weak<()>,
}

impl Stop {
    /// Work that may go on until `deadline`, and as long as the second value lives.
    pub fn at(deadline: Instant) -> (Self, Arc<()>) {
        let waiting = Arc::new(());
        (Self { deadline, waiting: Arc::downgrade(&waiting) }, waiting)
    }

    /// # Errors
    /// When the work is to end.
    pub fn check(&self) -> io::Result<()> {
        if self.waiting.strong_count() == 0 {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        if Instant::now() >= self.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long"));
        }
        Ok(())
    }
}

/// A base image that is being read.
#[derive(Debug)]
pub struct Base<R> {
    reader: R,
    size: u64,
    /// Bytes that may still be read.
    left: u64,
    stop: Option<Stop>,
}

impl<R: Read + Seek> Base<R> {
    pub fn new(mut reader: R) -> io::Result<Self> {
        let size = reader.seek(SeekFrom::End(0))?;
        Ok(Self { reader, size, left: READ_BYTES, stop: None })
    }

    /// Ends each read with `stop`.
    pub fn until(self, stop: Stop) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads bytes of the image; the caller bounds `len`.
    ///
    /// # Errors
    /// [`LayoutError::Garbled`] if the image ends before the extent does.
    pub fn read(&mut self, extent: Extent, what: &'static str) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![];
        if extent.at.checked_add(extent.len).is_none_or(|end| end > self.size) {
            return Err(LayoutError::Garbled(what).into());
        }
        self.stop.as_ref().map_or(Ok(()), Stop::check)?;
        self.left = self.left.checked_sub(extent.len).ok_or(LayoutError::TooMany("64 MiB of directories"))?;
        self.reader.seek(SeekFrom::Start(extent.at))?;
        let got = (&mut self.reader).take(extent.len).read_to_end(&mut bytes)?;
        if got as u64 != extent.len {
            return Err(LayoutError::Garbled(what).into());
        }
        Ok(bytes)
    }

    pub fn read_block(&mut self, block: u64, what: &'static str) -> Result<Vec<u8>, ReadError> {
        self.read(Extent { at: block.saturating_mul(BLOCK), len: BLOCK }, what)
    }
}

/// The little-endian number at an offset; `None` beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The little-endian number at an offset; `None` beyond the end.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Writes bytes at an offset, unless they would reach beyond the end.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at.saturating_add(value.len())) {
        place.copy_from_slice(value);
    }
}

/// A number in both byte orders, as ISO 9660 stores most numbers.
pub fn both_endian(value: u32) -> [u8; 8] {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&value.to_le_bytes());
    both[4..].copy_from_slice(&value.to_be_bytes());
    both
}

/// A block number as ISO 9660 stores it.
pub fn block_number(block: u64) -> Result<u32, LayoutError> {
    u32::try_from(block).map_err(|_| LayoutError::TooLarge)
}
