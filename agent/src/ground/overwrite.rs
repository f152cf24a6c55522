//! Overwrites secrets before their files are removed, for disks that do not discard blocks. No link
//! is followed, because a name may be replaced by a link at any time.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom as Extent, openat, seek, statat};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::ground::tree::{Visited, Visitor, open_directory, walk_tree};

/// A secret that stays readable on the disk, and why.
#[derive(Debug)]
pub struct Readable {
    pub path: PathBuf,
    pub error: io::Error,
}

/// Time at which the zeros must be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// At the end of each file.
    Files,
    /// The caller flushes the file system, once for any number of files.
    Later,
}

/// Overwrites the files below `path`.
pub fn overwrite_directory(path: &Path, flush: Flush) -> Vec<Readable> {
    overwrite_below(path, flush, true)
}

/// Overwrites the files directly in `path`, and none in its subdirectories.
pub fn overwrite_files(path: &Path, flush: Flush) -> Vec<Readable> {
    overwrite_below(path, flush, false)
}

fn overwrite_below(path: &Path, flush: Flush, enters: bool) -> Vec<Readable> {
    let mut overwriter = Overwriter { flush, enters, readable: Vec::new() };
    match open_directory(CWD, path) {
        Ok(opened) => {
            if let Err((path, error)) = walk_tree(opened, path, &mut overwriter) {
                overwriter.keep(&path, error);
            }
        }
        Err(error) => overwriter.keep(path, error),
    }
    overwriter.readable
}

/// Overwrites the file `path`, if it exists.
pub fn overwrite_path(path: &Path, flush: Flush) -> Vec<Readable> {
    let mut overwriter = Overwriter { flush, enters: false, readable: Vec::new() };
    overwriter.overwrite(CWD, path, path);
    overwriter.readable
}

struct Overwriter {
    flush: Flush,
    enters: bool,
    readable: Vec<Readable>,
}

impl Overwriter {
    /// A missing file holds nothing, and neither does a link, a socket or a pipe.
    fn keep(&mut self, path: &Path, error: io::Error) {
        if !matches!(
            Errno::from_io_error(&error),
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO)
        ) {
            self.readable.push(Readable { path: path.to_owned(), error });
        }
    }

    fn overwrite(&mut self, parent: impl AsFd, name: impl Arg, path: &Path) {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(parent, name, flags, Mode::empty()).map_err(io::Error::from);
        if let Err(error) = opened.and_then(|file| overwrite_file(File::from(file), self.flush)) {
            self.keep(path, error);
        }
    }
}

impl Visitor for Overwriter {
    const REMOVES: bool = false;

    fn visit(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<Visited> {
        match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory if self.enters => return Ok(Visited::Enter),
                FileType::RegularFile => self.overwrite(parent, name, path),
                _ => {}
            },
            Err(error) => self.keep(path, error.into()),
        }
        Ok(Visited::Done)
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn fail(&mut self, path: &Path, error: io::Error) -> io::Result<()> {
        self.keep(path, error);
        Ok(())
    }
}

/// A file with another name is left alone, because that name may belong to somebody else.
fn overwrite_file(mut file: File, flush: Flush) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Ok(());
    }
    let mut position = 0;
    while let Some((start, end)) = find_data(&file, position, metadata.len())? {
        file.seek(SeekFrom::Start(start))?;
        io::copy(&mut io::Read::take(io::repeat(0), end - start), &mut file)?;
        position = end;
    }
    file.flush()?;
    if flush == Flush::Files { file.sync_all() } else { Ok(()) }
}

/// The next part of a file that has blocks on the disk. Zeros in a hole would only fill the disk.
fn find_data(file: &File, from: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if from >= length {
        return Ok(None);
    }
    match seek(file, Extent::Data(from)) {
        Ok(start) => Ok(Some((start, seek(file, Extent::Hole(start)).map_or(length, |end| end.min(length))))),
        Err(Errno::NXIO) => Ok(None),
        // The file system does not tell holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((from, length))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_data_is_overwritten_and_holes_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"secret").unwrap();
        file.set_len(1 << 40).unwrap();
        file.seek(SeekFrom::Start((1 << 40) - 6)).unwrap();
        file.write_all(b"secret").unwrap();
        let before = file.metadata().unwrap().blocks();
        assert!(overwrite_directory(directory.path(), Flush::Later).is_empty());
        assert!(file.metadata().unwrap().blocks() <= before + 8, "a hole was filled");
        for start in [0, (1 << 40) - 6] {
            let mut read = [1; 6];
            std::os::unix::fs::FileExt::read_exact_at(&File::open(&path).unwrap(), &mut read, start).unwrap();
            assert_eq!(read, [0; 6]);
        }
    }

    #[test]
    fn files_alone_leave_subdirectories_untouched() {
        let directory = tempfile::tempdir().unwrap();
        let (key, image) = (directory.path().join("key"), directory.path().join("images/x"));
        fs::create_dir(directory.path().join("images")).unwrap();
        fs::write(&key, "secret").unwrap();
        fs::write(&image, "image").unwrap();
        assert!(overwrite_files(directory.path(), Flush::Later).is_empty());
        assert_eq!(fs::read(key).unwrap(), [0; 6]);
        assert_eq!(fs::read(image).unwrap(), b"image");
        assert!(overwrite_files(&directory.path().join("nothing"), Flush::Later).is_empty());
    }
}
