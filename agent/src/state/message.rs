//! What the agent does now, for the operator at the host: printed on its console, and kept for the
//! page that the verb `console` draws. The same message is printed at most once a minute.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::ground::paths::Root;

/// The note of the last message.
pub const MESSAGE: &str = "message";
/// How long a message that was printed is not printed again.
const REPEAT: Duration = Duration::from_mins(1);

/// Standard output, which the unit connects to the console and the journal.
#[derive(Debug)]
pub struct Console {
    root: Root,
    last: Option<(String, Instant)>,
}

impl Console {
    /// The console of the host of `root`.
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone(), last: None }
    }

    /// Prints a message unless it was just printed.
    pub fn print_message(&mut self, message: &str) {
        if self.is_due(message, Instant::now()) {
            // A closed console does not stop the work.
            let _ = writeln!(std::io::stdout(), "baremetal: {message}");
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(message)]);
            self.root.keep_note(MESSAGE, message);
        }
    }

    fn is_due(&mut self, message: &str, now: Instant) -> bool {
        let printed =
            self.last.as_ref().is_some_and(|(last, at)| last == message && now.duration_since(*at) < REPEAT);
        if !printed {
            self.last = Some((message.to_owned(), now));
        }
        !printed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_repeats_after_a_minute() {
        let directory = tempfile::tempdir().unwrap();
        let mut console = Console::new(&Root::at(directory.path()));
        let start = Instant::now();
        for (name, message, seconds, want) in [
            ("first", "a", 0, true),
            ("again", "a", 59, false),
            ("another", "b", 59, true),
            ("back", "a", 60, true),
            ("a minute later", "a", 120, true),
        ] {
            assert_eq!(console.is_due(message, start + Duration::from_secs(seconds)), want, "{name}");
        }
    }
}
