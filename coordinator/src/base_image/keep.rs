//! Writes an arriving file into the cache, with its size and checksum.

use std::fs::File;
use std::io::{self, Read, Write as _};

use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

use super::BaseImageError;
use super::ledger::{self, InFlight, Ledger, Room};

const BLOCK: usize = 128 * 1024;

/// A complete file that has a temporary name.
pub(super) struct Arrived {
    pub(super) path: TempPath,
    pub(super) sha256: String,
    pub(super) size: u64,
    pub(super) in_flight: InFlight,
}

/// An incomplete file. Its name is unique even if replicas share the directory; dropping the writer
/// removes the file.
pub(super) struct Writer {
    file: File,
    path: TempPath,
    hash: Sha256,
    size: u64,
    limit: u64,
    in_flight: InFlight,
}

/// A failure to keep a file.
#[derive(Debug)]
pub(super) enum KeepError {
    TooLarge,
    Read(io::Error),
    Write(io::Error),
    /// The files in use leave no room.
    Full,
}

impl KeepError {
    /// The failure to keep the file of `url`.
    pub(super) fn describe(self, url: &str, ledger: &Ledger) -> BaseImageError {
        match self {
            Self::TooLarge => BaseImageError::TooLarge { url: url.to_owned() },
            Self::Read(source) => BaseImageError::Unreadable { url: url.to_owned(), source },
            Self::Write(source) => ledger.store_error(source),
            Self::Full => BaseImageError::Full,
        }
    }
}

/// Runs work on the disk on a thread of its own, because hosts wait for this one.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|stopped| Err(KeepError::Write(io::Error::other(stopped))))
}

impl Writer {
    pub(super) fn create(room: &Room) -> Result<Self, KeepError> {
        let made = tempfile::Builder::new().prefix(ledger::TEMPORARY).tempfile_in(room.ledger.directory());
        let (file, path) = made.map_err(KeepError::Write)?.into_parts();
        Ok(Self { file, path, hash: Sha256::new(), size: 0, limit: room.limit, in_flight: room.start_file() })
    }

    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), KeepError> {
        self.size += data.len() as u64;
        if self.size > self.limit {
            return Err(KeepError::TooLarge);
        }
        self.in_flight.grow_file(data.len() as u64).map_err(|_: BaseImageError| KeepError::Full)?;
        self.hash.update(data);
        self.file.write_all(data).map_err(KeepError::Write)
    }

    pub(super) fn finish(self) -> Result<Arrived, KeepError> {
        self.file.sync_all().map_err(KeepError::Write)?;
        let sha256 = hex::encode(self.hash.finalize());
        Ok(Arrived { path: self.path, sha256, size: self.size, in_flight: self.in_flight })
    }

    pub(super) fn copy_from(mut self, source: &mut impl Read) -> Result<Arrived, KeepError> {
        let mut block = vec![0; BLOCK];
        loop {
            match source.read(&mut block) {
                Ok(0) => return self.finish(),
                Ok(read) => self.write(&block[..read])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(KeepError::Read(error)),
            }
        }
    }
}
