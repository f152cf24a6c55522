//! Names of functions are short enough to be read.

use std::fs;

use contract::documents::checkout;
use contract::sources::rust_files;

const MOST_WORDS: usize = 8;
/// The compiler of the protocol names its functions.
const GENERATED: &str = "proto/src/generated";

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
        let files = rust_files(&checkout(directory)).unwrap();
        for path in files.into_iter().filter(|path| !path.starts_with(checkout(GENERATED))) {
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
