//! Overwrites secrets before their files are removed, for disks that do not discard blocks. No link
//! is followed, because a name may be replaced by a link at any time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

const NO_LINK: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK);

/// Overwrites the files below `path`. A file that cannot be overwritten is still removed by the
/// caller.
pub fn overwrite_directory(path: &Path) {
    match open(path, OFlag::O_DIRECTORY | NO_LINK, Mode::empty()) {
        Ok(directory) => overwrite_entries(directory),
        Err(nix::Error::ENOENT) => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot overwrite secret file before deleting it");
        }
    }
}

fn overwrite_entries(directory: OwnedFd) {
    let mut pending = vec![directory];
    while let Some(directory) = pending.pop() {
        // The directory is read through its descriptor, because its name may lead elsewhere by now.
        let listed = fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        for entry in listed.into_iter().flatten().flatten() {
            let name = entry.file_name();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let flags = OFlag::O_DIRECTORY | NO_LINK;
                pending.extend(openat(&directory, name.as_os_str(), flags, Mode::empty()));
            } else if let Ok(file) =
                openat(&directory, name.as_os_str(), OFlag::O_WRONLY | NO_LINK, Mode::empty())
                && let Err(error) = overwrite_file(File::from(file))
            {
                tracing::warn!(?name, %error, "cannot overwrite secret file before deleting it");
            }
        }
    }
}

/// Overwrites the file `path`, if it exists.
pub fn overwrite_path(path: &Path) {
    if let Ok(file) = open(path, OFlag::O_WRONLY | NO_LINK, Mode::empty())
        && let Err(error) = overwrite_file(File::from(file))
    {
        tracing::warn!(path = %path.display(), %error, "cannot overwrite secret file before deleting it");
    }
}

/// A file with another name is left alone, because that name may belong to somebody else.
fn overwrite_file(mut file: File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Ok(());
    }
    io::copy(&mut io::Read::take(io::repeat(0), metadata.len()), &mut file)?;
    file.flush()?;
    file.sync_all()
}
