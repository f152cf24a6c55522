//! Texts that a host sends and a status keeps.

/// Longest text that a host can put into a status, bytes.
const TEXT_BYTES: usize = 2048;

pub(crate) fn truncate_text(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES)].to_owned()
}
