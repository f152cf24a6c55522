//! Files that survive a power cut: a reader sees the old content or the new,
//! never a part. Blocking; every file is small.

#[cfg(feature = "failpoints")]
pub mod shadow;

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};

use crate::ground::error::NextAction;
use crate::ground::failpoint::failpoint;
use crate::ground::overwrite::overwrite_directory;

/// Mode of what only root may read.
pub const SECRET: u32 = 0o600;
/// Mode of what others read too.
pub const PUBLIC: u32 = 0o644;

/// A file or directory that could not be made durable.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt} {path}")]
pub struct DurableError {
    pub attempt: &'static str,
    pub path: PathBuf,
    /// The error of the system call.
    #[source]
    pub source: io::Error,
}

impl NextAction for DurableError {
    fn next_action(&self) -> Option<&str> {
        Some(next_action(self.source.kind()))
    }
}

/// What the operator does about a file that cannot be read, written or
/// removed.
pub fn next_action(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on the host's persistent partition"
        }
        io::ErrorKind::ReadOnlyFilesystem => "check the host's disk, its file system is read-only",
        _ => "check the host's disk and its kernel log",
    }
}

trait At<T> {
    fn at(self, attempt: &'static str, path: &Path) -> Result<T, DurableError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, attempt: &'static str, path: &Path) -> Result<T, DurableError> {
        self.map_err(|source| DurableError { attempt, path: path.to_owned(), source })
    }
}

/// Replaces `path` by `content`, 0600.
///
/// # Errors
/// [`DurableError`]; the old content is still there then, or the new one
/// without proof that it is on the disk.
pub fn write(path: &Path, content: &[u8]) -> Result<(), DurableError> {
    write_with_mode(path, content, SECRET)
}

/// Replaces `path` by `content` with permissions `mode`.
pub fn write_with_mode(path: &Path, content: &[u8], mode: u32) -> Result<(), DurableError> {
    let temporary = temporary_path(path);
    failpoint("durable::write::before");
    write_and_flush(&temporary, content, mode).at("write", &temporary)?;
    failpoint("durable::write::written");
    fs::rename(&temporary, path).at("replace", path)?;
    failpoint("durable::write::renamed");
    flush_parent(path)
}

/// One fixed name, so that crashes do not pile up files.
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
        // A link planted under the temporary name must not lead elsewhere.
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    // A left-over of a crash, or the umask, may have given another mode.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    flush_file(&file, path)
}

fn flush_file(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    record_flushed(Flushed::File, path)
}

/// Flushes the file systems that hold these directories; those that are not
/// there have nothing to flush.
pub fn flush_file_systems(directories: &[PathBuf]) -> Result<(), DurableError> {
    for path in directories.iter().filter(|path| path.is_dir()) {
        let directory = File::open(path).at("open", path)?;
        nix::unistd::syncfs(&directory).map_err(io::Error::from).at("flush the file system of", path)?;
        record_flushed(Flushed::FileSystem, path).at("record", path)?;
    }
    Ok(())
}

/// What was flushed, for tests of power cuts.
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

/// Removes the file `path`; one that is not there is removed already.
pub fn remove(path: &Path) -> Result<(), DurableError> {
    match fs::remove_file(path) {
        Ok(()) => flush_parent(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).at("remove", path),
    }
}

/// Makes the directory `path` and those above it, 0700 where new.
pub fn create_directory(path: &Path) -> Result<(), DurableError> {
    create_directory_with_mode(path, 0o700)
}

/// Makes the directory `path` and those above it, with `mode` where new.
pub fn create_directory_with_mode(path: &Path, mode: u32) -> Result<(), DurableError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_directory_with_mode(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("create directory", path),
        Ok(()) | Err(_) => flush_parent(path),
    }
}

/// Replaces the directory `path` as a whole by one with these files, 0700 and
/// 0600: no crash leaves the files of two generations beside each other.
pub fn replace_directory(path: &Path, files: &[(&str, &[u8])]) -> Result<(), DurableError> {
    let temporary = temporary_path(path);
    remove_tree(&temporary)?;
    create_directory(&temporary)?;
    for (name, content) in files {
        failpoint("durable::directory::file");
        let file = temporary.join(name);
        write_and_flush(&file, content, SECRET).at("write", &file)?;
    }
    flush_directory(&temporary)?;
    failpoint("durable::directory::written");
    if path.exists() {
        exchange_paths(&temporary, path).at("replace", path)?;
    } else {
        fs::rename(&temporary, path).at("replace", path)?;
    }
    failpoint("durable::directory::replaced");
    flush_parent(path)?;
    remove_tree(&temporary)
}

/// Removes what a crash within [`replace_directory`] left: the former
/// directory, which may hold secrets.
pub fn remove_temporary(path: &Path) -> Result<(), DurableError> {
    remove_tree(&temporary_path(path))
}

fn exchange_paths(one: &Path, other: &Path) -> io::Result<()> {
    let flags = RenameFlags::RENAME_EXCHANGE;
    renameat2(AT_FDCWD, one, AT_FDCWD, other, flags).map_err(io::Error::from)
}

/// Removes the directory `path` with all that is in it; one that is not there
/// is removed already.
pub fn remove_directory(path: &Path) -> Result<(), DurableError> {
    remove_tree(&temporary_path(path))?;
    remove_tree(path)
}

/// What it holds may be secret.
fn remove_tree(path: &Path) -> Result<(), DurableError> {
    overwrite_directory(path);
    match fs::remove_dir_all(path) {
        // Without it a power cut brings secrets of a former node back.
        Ok(()) => flush_parent(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).at("remove", path),
    }
}

fn flush_parent(path: &Path) -> Result<(), DurableError> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => flush_directory(parent),
        Some(_) | None => Ok(()),
    }
}

fn flush_directory(directory: &Path) -> Result<(), DurableError> {
    File::open(directory).and_then(|file| file.sync_all()).at("flush", directory)?;
    record_flushed(Flushed::Directory, directory).at("record", directory)
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
        assert_eq!(error.to_string(), "cannot write /nonexistent/.file.new");
        assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
    }
}
