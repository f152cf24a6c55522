//! The console log: one file over all boots of a host.

use std::path::Path;

/// Bytes at the end of the log that are worth showing.
const TAIL: usize = 2000;

/// The log from a byte on; bytes that are no text are replaced. A log that is not there yet is empty.
pub fn read_from(path: &Path, start: u64) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
    plain(&String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()))
}

pub fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |data| data.len())
}

/// The last lines.
pub fn tail(path: &Path) -> String {
    let text = read_from(path, 0);
    let mut start = text.len().saturating_sub(TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default().trim().to_owned()
}

/// Removes colours, cursor movements and carriage returns, so that a search finds the visible text.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        match char {
            '\u{1b}' => {
                // An escape sequence ends with its first letter.
                for end in rest.by_ref() {
                    if end.is_ascii_alphabetic() {
                        break;
                    }
                }
            }
            '\r' => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_removed_from_console_text() {
        let cases = [
            ("plain", "a b\n", "a b\n"),
            ("colour", "[\u{1b}[0;32m  OK  \u{1b}[0m] up\r\n", "[  OK  ] up\n"),
            ("cut off", "a\u{1b}[0", "a"),
        ];
        for (name, given, want) in cases {
            assert_eq!(plain(given), want, "{name}");
        }
    }
}
