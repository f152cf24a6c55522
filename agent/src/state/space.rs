//! Room for the agent's own state on the persistent partition, which the node's programs fill as well.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::fcntl::posix_fallocate;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, access};

use crate::ground::failure::{Failure, OnPath as _};
use crate::ground::paths::StateDir;

/// Size of the ballast, bytes: the journal and the identity need a part of it.
const BALLAST: u64 = 1 << 20;

/// Makes the ballast, unless it exists or the partition is nearly full.
pub fn keep_ballast(state: &StateDir) {
    let ballast = state.ballast();
    if ballast.exists() || read_free_bytes(state).unwrap_or(0) < 4 * BALLAST {
        return;
    }
    if let Err(error) = allocate_ballast(&ballast) {
        tracing::warn!(%error, "cannot make the ballast");
        let _ = fs::remove_file(&ballast);
    }
}

fn allocate_ballast(path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    posix_fallocate(file.as_fd(), 0, BALLAST.try_into().unwrap_or(i64::MAX))?;
    file.sync_all()
}

/// Why the agent cannot write its state, or can write it only in the place of the ballast. The text
/// has no figures, so that it stays the same while the cause lasts.
pub fn find_failure(state: &StateDir) -> Option<Failure> {
    let path = state.path();
    if let Err(error) = access(path, AccessFlags::W_OK) {
        return Some(Failure::of_file("write to", path, &error.into()));
    }
    match read_free_bytes(state) {
        Ok(free) if free < BALLAST => {
            Some(Failure::of_file("write to", path, &io::ErrorKind::StorageFull.into()))
        }
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

/// Zero where no file can be made.
fn read_free_bytes(state: &StateDir) -> Result<u64, Failure> {
    let path = state.path();
    let directory = File::open(path).on("open", path)?;
    let statistics = fstatvfs(&directory).map_err(io::Error::from).on("read the free space of", path)?;
    // A file system without a limit of files states none at all.
    let has_files = statistics.files() == 0 || statistics.files_free() > 0;
    let free = statistics.blocks_free().saturating_mul(statistics.fragment_size());
    Ok(if has_files { free } else { 0 })
}
