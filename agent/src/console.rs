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

pub use proto::refusal::NEXT;

/// An error with its causes, for one line; what a person does comes last, and
/// of several actions the one that is nearest to the cause.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let (mut text, mut action) = (String::new(), None);
    let mut cause = Some(error);
    while let Some(next) = cause {
        let told = next.to_string();
        let (what, todo) =
            told.split_once(NEXT).map_or((told.as_str(), None), |(what, todo)| (what, Some(todo)));
        // Transparent errors say the same thing at each level.
        if !text.ends_with(what) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(what);
        }
        action = todo.map(str::to_owned).or(action);
        cause = next.source();
    }
    match action {
        Some(action) => text + NEXT + &action,
        None => text,
    }
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

    #[derive(Debug, thiserror::Error)]
    enum Door {
        #[error("cannot open the door")]
        Shut(#[source] std::io::Error),
        #[error("cannot open the door; next: oil it")]
        Stuck(#[source] std::io::Error),
        #[error("cannot enter; next: try another house")]
        House(#[source] Box<Door>),
        #[error(transparent)]
        Same(Box<Door>),
    }

    #[test]
    fn an_error_is_told_with_its_causes_without_repetition_and_ends_with_what_to_do() {
        let stuck = || Box::new(Door::Stuck(std::io::Error::other("rust")));
        for (name, error, want) in [
            ("no action", Door::Shut(std::io::Error::other("no key")), "cannot open the door: no key"),
            ("action last", *stuck(), "cannot open the door: rust; next: oil it"),
            ("said once", Door::Same(stuck()), "cannot open the door: rust; next: oil it"),
            ("nearest", Door::House(stuck()), "cannot enter: cannot open the door: rust; next: oil it"),
        ] {
            assert_eq!(chain(&error), want, "{name}");
        }
    }
}
