//! Edits of a text: every byte that no edit names stays.

use std::ops::Range;

/// Puts `text` in the place of `range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) text: String,
}

impl Edit {
    pub(super) fn insert_at(at: usize, text: String) -> Self {
        Self { range: at..at, text }
    }
}

/// Applies edits; those at one place keep their order. `None` when two of them
/// overlap or one lies outside the text.
pub(super) fn apply_edits(text: &str, edits: &[Edit]) -> Option<String> {
    let mut edits: Vec<_> = edits.iter().collect();
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        result.push_str(text.get(done..edit.range.start)?);
        result.push_str(&edit.text);
        done = edit.range.end;
    }
    result.push_str(text.get(done..)?);
    Some(result)
}

/// The line break that a text uses.
pub(super) fn line_break(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        Some(_) | None => "\n",
    }
}

/// Distance of `at` from the start of its line, in characters.
pub(super) fn column_at(text: &str, at: usize) -> usize {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[line..at].chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_edit_names_stays() {
        let edit = |range: Range<usize>, text: &str| Edit { range, text: text.to_owned() };
        let cases: [(&str, Vec<Edit>, Option<&str>); 4] = [
            ("none", vec![], Some("abcdef")),
            ("several, in any order", vec![edit(4..5, "E"), edit(0..0, "_"), edit(1..3, "")], Some("_adEf")),
            ("overlapping", vec![edit(0..3, ""), edit(2..4, "")], None),
            ("outside", vec![edit(6..9, "")], None),
        ];
        for (name, edits, want) in cases {
            assert_eq!(apply_edits("abcdef", &edits).as_deref(), want, "{name}");
        }
    }
}
