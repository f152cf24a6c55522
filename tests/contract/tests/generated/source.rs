//! Names and their documentation, read from Rust source as text: a proc-macro
//! does not see doc comments of another crate.

use std::fs;

use super::checkout;

/// A name and its doc comment.
pub(super) struct Entry {
    pub(super) name: String,
    /// The declaration without doc comments, on one line.
    pub(super) declaration: String,
    pub(super) doc: String,
}

pub(super) fn read_source(path: &str) -> String {
    fs::read_to_string(checkout(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between `start` and the next line that is `end`.
pub(super) fn find_block<'a>(source: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = source.split_once(start).unwrap_or_else(|| panic!("{start:?} is missing"));
    rest.split_once(end).unwrap_or_else(|| panic!("{start:?} has no end {end:?}")).0
}

/// The declarations of a block, each of which ends with one of `ends`.
pub(super) fn read_entries(block: &str, ends: [char; 2]) -> Vec<Entry> {
    let mut entries = vec![];
    let (mut doc, mut declaration) = (String::new(), String::new());
    for line in block.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push_str(text);
        } else if !line.starts_with("//") {
            declaration.push_str(line);
            declaration.push(' ');
            // An attribute may have lines of its own.
            let is_open = declaration.matches("#[").count() > declaration.matches(")]").count();
            if line.ends_with(ends) && !line.ends_with(")]") && !is_open {
                entries.push(Entry { name: read_name(&declaration), declaration, doc: plain(&doc) });
                (doc, declaration) = (String::new(), String::new());
            }
        }
    }
    entries
}

/// The identifier before the first colon or comma, attributes left out.
fn read_name(declaration: &str) -> String {
    let declared = declaration.rsplit("] ").next().unwrap_or(declaration);
    let name = declared.split([':', ',']).next().unwrap_or_default();
    name.split_whitespace().last().unwrap_or_default().to_owned()
}

/// Removes the syntax of links between Rust items.
fn plain(doc: &str) -> String {
    let doc = doc.replace("[`", "`").replace("`]", "`").replace("crate::inventory::", "");
    doc.trim().replace('|', "\\|")
}

/// The first string literal at or after `start`.
pub(super) fn find_literal<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split('"').nth(1)
}
