//! Files that survive a power cut: a reader sees the old content or the new content, never a part.
//! The functions block; every file is small.

#[cfg(feature = "failpoints")]
pub mod shadow;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};
use serde::Serialize;

use crate::ground::failpoint::failpoint;
use crate::ground::failure::{Failure, FailureClass, OnPath as _};
use crate::ground::overwrite::{Flush, Readable, overwrite_directory};

/// Mode of files that only root may read.
pub const SECRET: u32 = 0o600;
/// Mode of files that everybody may read.
pub const PUBLIC: u32 = 0o644;

/// Replaces `path` by `content`, 0600. After a failure the file has its old content, or the new
/// content without proof that it is on the disk.
#[track_caller]
pub fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write_with_mode(path, content, SECRET)
}

/// Like [`write`]. Where there is no room, the file `ballast` of the same file system is removed.
#[track_caller]
pub fn write_with_ballast(path: &Path, content: &[u8], ballast: &Path) -> Result<(), Failure> {
    match write(path, content) {
        Err(failure) if failure.class == FailureClass::NoSpace && ballast.exists() => {
            tracing::warn!(%failure, "ballast removed");
            remove(ballast)?;
            write(path, content)
        }
        written => written,
    }
}

/// Replaces `path` by `content` with permissions `mode`.
#[track_caller]
pub fn write_with_mode(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let temporary = temporary_path(path);
    failpoint("durable::write::before");
    write_and_flush(&temporary, content, mode).on("write", &temporary)?;
    failpoint("durable::write::written");
    fs::rename(&temporary, path).on("replace", path)?;
    failpoint("durable::write::renamed");
    flush_parent(path)
}

/// Replaces `path` by `value` as JSON, 0600.
#[track_caller]
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::from).on("write", path)?;
    write(path, &text)
}

/// The content of the file `path`; `None` where there is no such file.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).on("read", path),
    }
}

/// The text of the file `path`; `None` where there is no such file.
pub fn read_text(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).on("read", path),
    }
}

/// The name is fixed, so that crashes do not pile up files.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn write_and_flush(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        // The open must not follow a link planted under the temporary name.
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    // The file may be left over from a crash, or the umask may have changed the mode.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    flush_file(&file, path)
}

fn flush_file(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    record_flushed(Flushed::File, path)
}

/// Flushes the file systems that hold these directories; a missing directory is skipped.
pub fn flush_file_systems(directories: &[PathBuf]) -> Result<(), Failure> {
    for path in directories.iter().filter(|path| path.is_dir()) {
        let directory = File::open(path).on("open", path)?;
        nix::unistd::syncfs(&directory).map_err(io::Error::from).on("flush the file system of", path)?;
        record_flushed(Flushed::FileSystem, path).on("record", path)?;
    }
    Ok(())
}

/// The kinds of flushes that tests of power cuts record.
#[derive(Clone, Copy)]
enum Flushed {
    File,
    Directory,
    FileSystem,
}

#[cfg(feature = "failpoints")]
fn record_flushed(what: Flushed, path: &Path) -> io::Result<()> {
    let call = if matches!(what, Flushed::FileSystem) { "syncfs" } else { "fsync" };
    shadow::log_flush(call, path)?;
    let Some(shadow) = shadow::Shadow::of_process() else { return Ok(()) };
    match what {
        Flushed::File => shadow.record_file(path),
        Flushed::Directory => shadow.record_directory(path),
        Flushed::FileSystem => shadow.record_tree(path),
    }
}

#[cfg(not(feature = "failpoints"))]
#[allow(clippy::unnecessary_wraps, reason = "with the feature it can fail")]
fn record_flushed(what: Flushed, _: &Path) -> io::Result<()> {
    match what {
        Flushed::File | Flushed::Directory | Flushed::FileSystem => Ok(()),
    }
}

/// Removes the file `path`; a missing file is no error.
#[track_caller]
pub fn remove(path: &Path) -> Result<(), Failure> {
    failpoint("durable::remove::before");
    match fs::remove_file(path) {
        Ok(()) => {
            failpoint("durable::remove::removed");
            flush_parent(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).on("remove", path),
    }
}

/// Makes the directory `path` and its parents; new directories get 0700.
pub fn create_directory(path: &Path) -> Result<(), Failure> {
    create_directory_with_mode(path, 0o700)
}

/// Makes the directory `path` and its parents; new directories get `mode`.
pub fn create_directory_with_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_directory_with_mode(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).on("create directory", path),
        Ok(()) | Err(_) => flush_parent(path),
    }
}

/// Replaces the directory `path` by one with these files, 0700 and 0600. The exchange is atomic, so
/// that no crash leaves files of two generations side by side.
#[track_caller]
pub fn replace_directory(path: &Path, files: &[(&str, &[u8])]) -> Result<(), Failure> {
    let temporary = temporary_path(path);
    remove_tree(&temporary)?;
    create_directory(&temporary)?;
    for (name, content) in files {
        failpoint("durable::directory::file");
        let file = temporary.join(name);
        write_and_flush(&file, content, SECRET).on("write", &file)?;
    }
    flush_directory(&temporary)?;
    failpoint("durable::directory::written");
    if path.exists() {
        match exchange_paths(&temporary, path) {
            Err(error) if cannot_exchange(&error) => replace_by_rename(&temporary, path)?,
            exchanged => exchanged.on("replace", path)?,
        }
    } else {
        fs::rename(&temporary, path).on("replace", path)?;
    }
    failpoint("durable::directory::replaced");
    flush_parent(path)?;
    remove_tree(&temporary)
}

/// Removes the former directory that a crash within [`replace_directory`] left, because it may hold
/// secrets.
#[track_caller]
pub fn remove_temporary(path: &Path) -> Result<(), Failure> {
    remove_tree(&temporary_path(path))
}

fn exchange_paths(one: &Path, other: &Path) -> io::Result<()> {
    let flags = RenameFlags::RENAME_EXCHANGE;
    renameat2(AT_FDCWD, one, AT_FDCWD, other, flags).map_err(io::Error::from)
}

/// An overlay answers EXDEV for a directory that the image has too; some file systems know no
/// exchange.
fn cannot_exchange(error: &io::Error) -> bool {
    let codes = [Errno::EXDEV, Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|code| codes.contains(&Errno::from_raw(code)))
}

/// Removes the former directory first, because an overlay does not rename it either. A crash in
/// between leaves no directory instead of files of two generations, and the caller writes it again.
#[track_caller]
fn replace_by_rename(temporary: &Path, path: &Path) -> Result<(), Failure> {
    remove_tree(path)?;
    fs::rename(temporary, path).on("replace", path)
}

/// Removes the directory `path` with all its content; a missing directory is no error.
#[track_caller]
pub fn remove_directory(path: &Path) -> Result<(), Failure> {
    remove_tree(&temporary_path(path))?;
    remove_tree(path)
}

/// Overwrites the files first, because the directory may hold secrets.
#[track_caller]
fn remove_tree(path: &Path) -> Result<(), Failure> {
    for Readable { path, error } in overwrite_directory(path, Flush::Files) {
        tracing::warn!(path = %path.display(), %error, "cannot overwrite secret file before deleting it");
    }
    failpoint("durable::directory::overwritten");
    match fs::remove_dir_all(path) {
        // This flush keeps a power cut from bringing secrets of a former node back.
        Ok(()) => flush_parent(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).on("remove", path),
    }
}

fn flush_parent(path: &Path) -> Result<(), Failure> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => flush_directory(parent),
        Some(_) | None => Ok(()),
    }
}

fn flush_directory(directory: &Path) -> Result<(), Failure> {
    File::open(directory).and_then(|file| file.sync_all()).on("flush", directory)?;
    record_flushed(Flushed::Directory, directory).on("record", directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_atomically() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(temporary_path(&path), "torn left-over of a crash").unwrap();
        write(&path, b"one").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), SECRET));
        write_with_mode(&path, b"two", PUBLIC).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), PUBLIC));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn removing_what_is_not_there_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        remove(&path).unwrap();
        write(&path, b"").unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/seed");
        create_directory(path.parent().unwrap()).unwrap();
        replace_directory(&path, &[("a", b"1"), ("b", b"1")]).unwrap();
        let mut former = File::open(path.join("b")).unwrap();
        replace_directory(&path, &[("a", b"2")]).unwrap();
        assert_eq!(io::read_to_string(&mut former).unwrap(), "\0", "what is replaced is overwritten");
        assert_eq!(fs::read(path.join("a")).unwrap(), b"2");
        assert!(!path.join("b").exists());
        assert_eq!((mode(&path), mode(&path.join("a"))), (0o700, SECRET));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_attempt_and_the_path() {
        let error = write(Path::new("/nonexistent/file"), b"").unwrap_err();
        let want = "cannot write /nonexistent/.file.new: No such file or directory (os error 2)";
        assert_eq!(error.message, want);
    }
}
