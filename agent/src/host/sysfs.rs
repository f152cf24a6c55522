//! Reads sysfs and procfs; an attribute that cannot be read is empty.

use std::fs;
use std::path::Path;

use crate::ground::paths::read_or_empty;

/// The names in a directory, sorted.
pub fn list_children(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The trimmed content of a file with one line.
pub fn read_line(path: &Path) -> String {
    read_or_empty(path).trim().to_owned()
}
