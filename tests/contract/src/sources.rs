//! The Rust files of the checkout.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// All below `directory`, in order.
///
/// # Errors
/// When it cannot be read.
pub fn rust_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
