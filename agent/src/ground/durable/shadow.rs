//! The content of the disk, for tests of power cuts: each flush of the agent is recorded in the
//! directory that the variable `DURABLE_SHADOW` names. A power cut loses everything that is not
//! recorded.
//!
//! `inodes/N` is the content of a flushed file. `directories/N` has one line per entry of a flushed
//! directory: kind, inode and name.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::ground::paths::read_or_empty;

/// Appends system call and path to the file that the variable `FLUSH_LOG` names, so that a test can
/// compare them with the system calls that the kernel saw.
pub fn log_flush(call: &str, path: &Path) -> io::Result<()> {
    let Some(log) = std::env::var_os("FLUSH_LOG") else { return Ok(()) };
    let mut log = fs::OpenOptions::new().create(true).append(true).open(log)?;
    writeln!(log, "{call} {}", fs::canonicalize(path)?.display())
}

/// The records of one host.
#[derive(Clone, Debug)]
pub struct Shadow {
    directory: PathBuf,
}

impl Shadow {
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The records of this process; `None` outside of such tests.
    pub fn of_process() -> Option<Self> {
        std::env::var_os("DURABLE_SHADOW").map(Self::at)
    }

    /// The content of the file is on the disk.
    pub fn record_file(&self, path: &Path) -> io::Result<()> {
        let inode = fs::symlink_metadata(path)?.ino();
        self.record_entry("inodes", inode, &fs::read(path)?)
    }

    /// The names in the directory are on the disk.
    pub fn record_directory(&self, path: &Path) -> io::Result<()> {
        let mut entries = String::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let kind = if entry.file_type()?.is_dir() { "directory" } else { "file" };
            let inode = fs::symlink_metadata(entry.path())?.ino();
            let _ = writeln!(entries, "{kind} {inode} {}", entry.file_name().to_string_lossy());
        }
        self.record_entry("directories", fs::symlink_metadata(path)?.ino(), entries.as_bytes())
    }

    /// Everything below the directory is on the disk.
    pub fn record_tree(&self, path: &Path) -> io::Result<()> {
        if !path.is_dir() {
            return Ok(());
        }
        self.record_directory(path)?;
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?.file_type();
            if kind.is_dir() {
                self.record_tree(&path)?;
            } else if kind.is_file() {
                self.record_file(&path)?;
            }
        }
        Ok(())
    }

    fn record_entry(&self, kind: &str, inode: u64, content: &[u8]) -> io::Result<()> {
        let directory = self.directory.join(kind);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(inode.to_string()), content)
    }

    /// Reduces `directory` to the content that survives a power cut.
    pub fn lose_unflushed(&self, directory: &Path) -> io::Result<()> {
        let Ok(metadata) = fs::symlink_metadata(directory) else { return Ok(()) };
        let parent = directory.parent().unwrap_or(directory);
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let known = self.list_entries(fs::symlink_metadata(parent)?.ino());
        if !known.iter().any(|(_, inode, found)| *inode == metadata.ino() && *found == name) {
            return fs::remove_dir_all(directory);
        }
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        self.restore_entry(directory, metadata.ino())?;
        self.record_tree(directory)
    }

    fn restore_entry(&self, directory: &Path, inode: u64) -> io::Result<()> {
        for (kind, inode, name) in self.list_entries(inode) {
            let path = directory.join(name);
            if kind == "directory" {
                fs::create_dir(&path)?;
                self.restore_entry(&path, inode)?;
            } else {
                let content = fs::read(self.directory.join("inodes").join(inode.to_string()));
                fs::write(path, content.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    fn list_entries(&self, inode: u64) -> Vec<(String, u64, String)> {
        let path = self.directory.join("directories").join(inode.to_string());
        let text = read_or_empty(path);
        let entries = text.lines().map(|line| line.splitn(3, ' '));
        entries
            .filter_map(|mut words| {
                Some((words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.to_owned()))
            })
            .collect()
    }
}
