//! Archives that are the same bytes on every machine: they have no times and only the given owners.

use std::io::{self, Write as _};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

#[derive(Debug, Clone)]
pub struct Entry {
    path: String,
    mode: u32,
    owner: u64,
    /// `None` for a directory.
    content: Option<Vec<u8>>,
}

impl Entry {
    /// A file of root with mode 0644.
    pub fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, owner: 0, content: Some(content.into()) }
    }

    /// A program of root with mode 0755.
    pub fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::file(path, content) }
    }

    /// A directory of `owner`.
    pub fn directory(path: impl Into<String>, mode: u32, owner: u64) -> Self {
        Self { path: path.into(), mode, owner, content: None }
    }
}

/// A tar archive of `entries`, in the order of their paths. A path that is too long is an error.
pub fn tar(mut entries: Vec<Entry>) -> io::Result<Vec<u8>> {
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    let mut builder = Builder::new(Vec::new());
    for Entry { path, mode, owner, content } in entries {
        let mut header = Header::new_ustar();
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(0);
        let content = content.unwrap_or_else(|| {
            header.set_entry_type(EntryType::Directory);
            Vec::new()
        });
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content.as_slice())?;
    }
    builder.into_inner()
}

pub fn gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}
