use std::error::Error;
use std::fmt::Write as _;
use std::io;

use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LoggingFormat {
    /// `key=value`.
    #[default]
    Text,
    /// Each line is an object with its spans.
    Json,
}

/// Writes logs to stderr, filtered by `RUST_LOG` (default: `info`).
pub fn start_logging(format: LoggingFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| OneLine(io::stderr()))
        .with_ansi(false);
    match format {
        LoggingFormat::Text => lines.init(),
        LoggingFormat::Json => lines.json().init(),
    }
}

/// Writes each event as one line: text of another party, which may be in any field, cannot begin a line
/// of its own.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    /// The subscriber writes an event at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = Vec::with_capacity(event.len());
        for &byte in text {
            if byte.is_ascii_control() && byte != b'\t' {
                line.extend(byte.escape_ascii());
            } else {
                line.push(byte);
            }
        }
        line.push(b'\n');
        self.0.write_all(&line).map(|()| event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An error with all its causes in one line. An error is logged once, where it ends.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    one_line(&text)
}

/// Longest text of another party in a log line or a condition.
const FOREIGN_BYTES: usize = 1024;

/// Text that may come from another party, for one line of a log or a condition: its control characters
/// are escaped, so that it cannot look like another line, and it is cut.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        if line.len() >= FOREIGN_BYTES {
            line.push('…');
            break;
        }
        if character.is_control() || is_format(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// Line separators, and marks that change the direction of the text after them.
fn is_format(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_one_line_whatever_it_says() {
        let mut written = vec![];
        io::Write::write_all(&mut OneLine(&mut written), b"INFO a\n2026 WARN forged\r\x1b[2J\xc3\xa4\n")
            .unwrap();
        assert_eq!(written, b"INFO a\\n2026 WARN forged\\r\\x1b[2J\xc3\xa4\n");
    }

    #[test]
    fn foreign_text_stays_one_short_line() {
        let forged = "amd64\n2026-01-01T00:00:00Z  INFO approved\r\u{1b}[2J\u{202e}x";
        let line = one_line(forged);
        assert_eq!(line, "amd64\\n2026-01-01T00:00:00Z  INFO approved\\r\\u{1b}[2J\\u{202e}x");
        let long = one_line(&"\n".repeat(1 << 20));
        assert!(long.len() < FOREIGN_BYTES + 16, "{}", long.len());
        let error = std::io::Error::other(std::io::Error::other(forged));
        assert!(!chain(&error).contains('\n'), "{}", chain(&error));
    }
}
