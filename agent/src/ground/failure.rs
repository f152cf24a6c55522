//! Failures as values: the message with its causes, and the operator's next action as a separate
//! field.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use proto::v1alpha1::{self as wire, FailureReason, InstallFailed, InstallWaiting, StepFailed};

/// Why work did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason in reports to the coordinator.
    pub reason: FailureReason,
    pub class: FailureClass,
    /// The failure and its causes.
    pub message: String,
    /// Empty where the operator has nothing to do.
    pub next_action: String,
    /// The output of the command that failed.
    pub output: String,
}

/// The classes differ in the attempts that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureClass {
    /// Nothing is known about the cause, so a few attempts are made.
    #[default]
    Unknown,
    /// No attempt helps.
    Terminal,
    /// An attempt helps once something else has changed, such as a registry that is down.
    Transient,
    /// An attempt helps once there is room on the disk.
    NoSpace,
}

impl Failure {
    /// A failure that another attempt does not change.
    pub fn new(reason: FailureReason, message: impl Into<String>, next_action: impl Into<String>) -> Self {
        Self {
            reason,
            class: FailureClass::Terminal,
            message: message.into(),
            next_action: next_action.into(),
            output: String::new(),
        }
    }

    /// The host refuses a request.
    pub fn refused(message: impl Into<String>, next_action: impl Into<String>) -> Self {
        Self::new(FailureReason::Refused, message, next_action)
    }

    /// Something on this host cannot be read or written.
    pub fn input_output(message: impl Into<String>, next_action: impl Into<String>) -> Self {
        Self::new(FailureReason::InputOutput, message, next_action)
    }

    /// The file or directory `path` cannot be read, written or removed.
    pub fn of_file(attempt: &str, path: &Path, error: &io::Error) -> Self {
        let (reason, class, next_action) = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
                FailureReason::NoSpace,
                FailureClass::NoSpace,
                "free space on the host's persistent partition",
            ),
            ErrorKind::ReadOnlyFilesystem => (
                FailureReason::InputOutput,
                FailureClass::Terminal,
                "check the host's disk, its file system is read-only",
            ),
            _ => (
                FailureReason::InputOutput,
                FailureClass::Unknown,
                "check the host's disk and its kernel log",
            ),
        };
        let message = describe_cause(&format!("cannot {attempt} {}", path.display()), error);
        Self { class, ..Self::new(reason, message, next_action) }
    }

    pub fn with_class(self, class: FailureClass) -> Self {
        Self { class, ..self }
    }

    pub fn with_output(self, output: impl Into<String>) -> Self {
        Self { output: output.into(), ..self }
    }

    pub fn with_next_action(self, next_action: impl Into<String>) -> Self {
        Self { next_action: next_action.into(), ..self }
    }

    /// Makes this failure the cause of another one.
    pub fn context(self, message: impl fmt::Display) -> Self {
        Self { message: format!("{message}: {}", self.message), ..self }
    }

    /// The report of this failure under another reason.
    pub fn report_as(self, reason: FailureReason) -> wire::Failure {
        wire::Failure { reason: reason.into(), message: self.message, next_action: self.next_action }
    }
}

/// A single line, for console and log.
impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        if self.next_action.is_empty() { Ok(()) } else { write!(formatter, "; next: {}", self.next_action) }
    }
}

impl Error for Failure {}

impl From<Failure> for wire::Failure {
    fn from(failure: Failure) -> Self {
        let reason = failure.reason;
        failure.report_as(reason)
    }
}

impl From<Failure> for StepFailed {
    fn from(failure: Failure) -> Self {
        let output = failure.output.clone();
        Self { failure: Some(failure.into()), output }
    }
}

impl From<Failure> for InstallWaiting {
    fn from(Failure { message, next_action, .. }: Failure) -> Self {
        Self { message, next_action }
    }
}

impl From<Failure> for InstallFailed {
    fn from(Failure { message, next_action, .. }: Failure) -> Self {
        Self { message, next_action }
    }
}

/// Results of the file system, as failures that name the path.
pub trait OnPath<T> {
    fn on(self, attempt: &str, path: &Path) -> Result<T, Failure>;
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, attempt: &str, path: &Path) -> Result<T, Failure> {
        self.map_err(|error| Failure::of_file(attempt, path, &error))
    }
}

/// Results whose failure is the cause of another one.
pub trait Context<T> {
    fn context(self, message: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, message: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| error.into().context(message))
    }
}

/// A message with the causes of `error`.
pub fn describe_cause(message: &str, error: &dyn Error) -> String {
    format!("{message}: {}", describe_error(error))
}

/// An error of another crate with its causes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("cannot start")]
        Cause(#[source] io::Error),
        #[error(transparent)]
        Transparent(Box<Outer>),
    }

    #[test]
    fn causes_are_described_once() {
        let cause = || Outer::Cause(io::Error::other("why"));
        for (name, error) in [("cause", cause()), ("transparent", Outer::Transparent(Box::new(cause())))] {
            assert_eq!(describe_error(&error), "cannot start: why", "{name}");
        }
    }

    #[test]
    fn a_line_ends_with_the_action() {
        let failure = |action: &str| Failure::refused("cannot start: why", action);
        for (name, failure, want) in [
            ("no action", failure(""), "cannot start: why"),
            ("action last", failure("create it"), "cannot start: why; next: create it"),
            (
                "nested",
                failure("create it").context("cannot continue"),
                "cannot continue: cannot start: why; next: create it",
            ),
        ] {
            assert_eq!(failure.to_string(), want, "{name}");
        }
    }

    #[test]
    fn full_disk_is_distinguished_from_broken_one() {
        let cases = [
            (ErrorKind::StorageFull, FailureReason::NoSpace, FailureClass::NoSpace, "free space"),
            (ErrorKind::ReadOnlyFilesystem, FailureReason::InputOutput, FailureClass::Terminal, "read-only"),
            (ErrorKind::Other, FailureReason::InputOutput, FailureClass::Unknown, "kernel log"),
        ];
        for (kind, reason, class, text) in cases {
            let failure = Failure::of_file("write", Path::new("/x"), &kind.into());
            assert_eq!((failure.reason, failure.class), (reason, class));
            assert!(failure.message.starts_with("cannot write /x: "), "{}", failure.message);
            assert!(failure.next_action.contains(text), "{}", failure.next_action);
        }
    }
}
