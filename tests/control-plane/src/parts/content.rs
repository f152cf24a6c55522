//! What the sources of a module of ours are, in a few digits.

use std::fs;
use std::path::{Path, PathBuf};

use crate::registry::sha256;

/// Of the Go files, `go.mod` and `go.sum` in `directory`, with their names. A file that cannot be read
/// counts as an empty one: the build says what is wrong with it.
pub(super) fn hash(directory: &Path) -> String {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|extension| ["go", "mod", "sum"].iter().any(|one| extension == *one))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_source).collect();
    files.sort();
    let mut content = Vec::new();
    for file in files {
        let bytes = fs::read(&file).unwrap_or_default();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        content.extend(format!("{name} {}\n", bytes.len()).into_bytes());
        content.extend(bytes);
    }
    sha256(&content).trim_start_matches("sha256:").chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_source_is_another_content() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| fs::write(directory.path().join(name), content).unwrap();
        write("main.go", "package main\n");
        write("go.mod", "module m\n");
        let first = hash(directory.path());
        assert_eq!(first.len(), 12);
        write("README.md", "no source\n");
        assert_eq!(hash(directory.path()), first);
        for (name, content) in [("main.go", "package other\n"), ("more.go", ""), ("go.sum", "")] {
            let before = hash(directory.path());
            write(name, content);
            assert_ne!(hash(directory.path()), before, "{name}");
        }
    }
}
