//! Errors for operators: cause and next action as two values, and the one place
//! that puts them into one line.

use std::error::Error;

/// An error that may end on a console or in a report.
pub trait NextAction: Error {
    /// What the operator does about it; of several actions the one that is
    /// nearest to the cause.
    fn next_action(&self) -> Option<&str>;
}

/// An error with its causes, without the next action.
pub fn describe_error(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(next) = cause {
        let message = next.to_string();
        // Transparent errors print the same text at each level.
        if !text.ends_with(&message) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&message);
        }
        cause = next.source();
    }
    text
}

/// Between a message and its next action.
const NEXT: &str = "; next: ";

/// One line for console and log.
pub fn format_line(message: &str, next_action: Option<&str>) -> String {
    match next_action {
        Some(action) if !action.is_empty() => format!("{message}{NEXT}{action}"),
        Some(_) | None => message.to_owned(),
    }
}

/// A line of [`format_line`] as message and next action.
pub fn split_line(line: &str) -> (&str, Option<&str>) {
    line.split_once(NEXT).map_or((line, None), |(message, action)| (message, Some(action)))
}

/// An error with its causes and its next action, in one line.
pub fn explain(error: &(impl NextAction + 'static)) -> String {
    format_line(&describe_error(error), error.next_action())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("cannot start")]
        Cause(#[source] std::io::Error),
        #[error("cannot continue")]
        Wrapped(#[source] Box<Outer>),
        #[error(transparent)]
        Transparent(Box<Outer>),
    }

    impl NextAction for Outer {
        fn next_action(&self) -> Option<&str> {
            match self {
                Self::Cause(error) => (error.kind() == std::io::ErrorKind::NotFound).then_some("create it"),
                Self::Wrapped(inner) | Self::Transparent(inner) => inner.next_action(),
            }
        }
    }

    #[test]
    fn errors_are_described_once_with_their_action() {
        let cause = |kind: std::io::ErrorKind| Box::new(Outer::Cause(io_error(kind)));
        let found = std::io::ErrorKind::NotFound;
        for (name, error, want) in [
            ("no action", *cause(std::io::ErrorKind::Other), "cannot start: why"),
            ("action last", *cause(found), "cannot start: why; next: create it"),
            ("transparent", Outer::Transparent(cause(found)), "cannot start: why; next: create it"),
            ("nested", Outer::Wrapped(cause(found)), "cannot continue: cannot start: why; next: create it"),
        ] {
            assert_eq!(explain(&error), want, "{name}");
        }
    }

    fn io_error(kind: std::io::ErrorKind) -> std::io::Error {
        std::io::Error::new(kind, "why")
    }
}
