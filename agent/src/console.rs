//! What a person in front of the host must read: one line a message, the same
//! message at most once a minute.

use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long the same message stays said.
const QUIET: Duration = Duration::from_mins(1);

/// Standard output, which the unit leads to the console and the journal.
#[derive(Debug, Default)]
pub struct Console {
    last: Option<(String, Instant)>,
}

impl Console {
    /// Says a message unless it was just said.
    pub fn say(&mut self, message: &str) {
        if self.due(message, Instant::now()) {
            // A console that is gone is no reason to stop the work.
            let _ = writeln!(std::io::stdout(), "baremetal: {message}");
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(message)]);
        }
    }

    fn due(&mut self, message: &str, now: Instant) -> bool {
        let said =
            self.last.as_ref().is_some_and(|(last, at)| last == message && now.duration_since(*at) < QUIET);
        if !said {
            self.last = Some((message.to_owned(), now));
        }
        !said
    }
}

/// An error with its causes, for one line.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        // Transparent errors say the same thing at each level.
        if !text.ends_with(&next_text) {
            text.push_str(": ");
            text.push_str(&next_text);
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_is_said_once_a_minute_and_another_at_once() {
        let mut console = Console::default();
        let start = Instant::now();
        for (name, message, seconds, want) in [
            ("first", "a", 0, true),
            ("again", "a", 59, false),
            ("another", "b", 59, true),
            ("back", "a", 60, true),
            ("a minute later", "a", 120, true),
        ] {
            assert_eq!(console.due(message, start + Duration::from_secs(seconds)), want, "{name}");
        }
    }

    #[test]
    fn an_error_is_told_with_its_causes_and_without_repetition() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot open the door")]
        struct Door(#[source] std::io::Error);
        let error = Door(std::io::Error::other("no key"));
        assert_eq!(chain(&error), "cannot open the door: no key");
    }
}
