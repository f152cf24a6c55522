//! The current message for the operator at the host. It is printed on the console, at most once a
//! minute if it repeats, and kept for the page that the verb `console` draws.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ground::failure::Failure;
use crate::ground::paths::Root;

const MESSAGE: &str = "message.json";
/// Time during which the same message is not printed again.
const REPEAT: Duration = Duration::from_mins(1);

/// The last message of the agent in this boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    pub message: String,
    /// Empty where the operator has nothing to do.
    pub next_action: String,
}

impl Message {
    pub fn read(root: &Root) -> Option<Self> {
        serde_json::from_slice(&fs::read(root.runtime().join(MESSAGE)).ok()?).ok()
    }
}

/// Standard output, which the unit connects to the console and the journal.
#[derive(Debug)]
pub struct Console {
    root: Root,
    last: Option<(String, Instant)>,
}

impl Console {
    pub fn new(root: &Root) -> Self {
        Self { root: root.clone(), last: None }
    }

    /// Prints a message unless it was just printed.
    pub fn print_message(&mut self, message: &str) {
        self.print(message, &Message { message: message.to_owned(), ..Message::default() });
    }

    /// Prints a failure unless it was just printed.
    pub fn print_failure(&mut self, failure: &Failure) {
        let Failure { message, next_action, .. } = failure.clone();
        self.print(&failure.to_string(), &Message { message, next_action });
    }

    fn print(&mut self, line: &str, message: &Message) {
        if self.is_due(line, Instant::now()) {
            // A closed console does not stop the work.
            let _ = writeln!(std::io::stdout(), "baremetal: {line}");
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(line)]);
            self.root.write_runtime_file(MESSAGE, &serde_json::json!(message).to_string());
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
