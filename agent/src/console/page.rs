//! The page of the console: who this host is, what it does, what it waits for,
//! and what to do about it.

use std::fmt::Write as _;
use std::fs;
use std::time::SystemTime;

use crate::error::split_line;
use crate::paths::Root;
use crate::status::render_status;

/// The note of the last message.
pub(super) const MESSAGE: &str = "message";
/// Columns of the values.
const INDENT: usize = 12;

/// The page for a screen of `columns`; no line is longer and no byte moves the
/// cursor.
#[must_use]
pub fn render_page(root: &Root, now: SystemTime, columns: usize) -> String {
    let mut page = String::from("Bare-metal host\n\n");
    for line in render_status(root, now).lines() {
        push_wrapped(&mut page, line, columns);
    }
    page.push('\n');
    let message = fs::read_to_string(root.runtime().join(MESSAGE)).unwrap_or_default();
    let (message, action) = split_line(message.trim());
    let message = if message.is_empty() { "starting" } else { message };
    push_wrapped(&mut page, &format!("{:<INDENT$}{message}", "now"), columns);
    let action = action.unwrap_or("nothing to do here");
    push_wrapped(&mut page, &format!("{:<INDENT$}{action}", "next"), columns);
    page
}

/// Breaks a line between words; what follows is indented as values are.
fn push_wrapped(page: &mut String, line: &str, columns: usize) {
    let width = columns.max(2 * INDENT);
    let mut rest: String = line.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    loop {
        let Some((end, _)) = rest.char_indices().nth(width) else {
            let _ = writeln!(page, "{}", rest.trim_end());
            return;
        };
        let space = rest[..end].rfind(' ').filter(|space| *space > INDENT);
        let at = space.unwrap_or(end);
        let _ = writeln!(page, "{}", rest[..at].trim_end());
        rest = format!("{:INDENT$}{}", "", rest[at..].trim_start());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Console;

    #[test]
    fn the_page_shows_message_and_action() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let page = render_page(&root, SystemTime::now(), 80);
        assert!(page.contains("now         starting\nnext        nothing to do here\n"), "{page}");
        Console::new(&root).print_message("not attached: no route; next: check the cable");
        let page = render_page(&root, SystemTime::now(), 80);
        assert!(page.contains("now         not attached: no route\nnext        check the cable\n"), "{page}");
    }

    #[test]
    fn no_line_is_longer_than_the_screen() {
        for (name, line, want) in [
            ("short", "now         fine", "now         fine\n"),
            (
                "between words",
                "now         one two three four",
                "now         one two\n            three four\n",
            ),
            (
                "one long word",
                "now         abcdefghijklmnopq",
                "now         abcdefghijkl\n            mnopq\n",
            ),
            ("escape sequence", "now         \u{1b}[2Jx", "now          [2Jx\n"),
        ] {
            let mut page = String::new();
            push_wrapped(&mut page, line, 24);
            assert_eq!(page, want, "{name}");
        }
    }
}
