//! Names of functions are short enough to be read.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use contract::documents::checkout;

const MOST_WORDS: usize = 8;

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            let is_generated = path.ends_with("generated");
            found.extend(if is_generated { vec![] } else { rust_files(&path) });
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let is_declared = before.trim().split(' ').all(|word| {
        word.is_empty() || word.starts_with("pub") || matches!(word, "async" | "const" | "in" | "super)")
    });
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    name.get(..end).filter(|_| is_declared)
}

#[test]
fn functions_have_at_most_eight_words() {
    let mut seen = 0;
    for directory in ["agent", "coordinator", "proto", "tests"] {
        for path in rust_files(&checkout(directory)) {
            let text = fs::read_to_string(&path).unwrap();
            for name in text.lines().filter_map(function_name) {
                seen += 1;
                let words = name.split('_').filter(|word| !word.is_empty()).count();
                assert!(words <= MOST_WORDS, "{name} in {} has {words} words", path.display());
            }
        }
    }
    assert!(seen > 5000, "only {seen} functions were found");
}
