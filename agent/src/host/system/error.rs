//! Why OS work did not succeed, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::Output;
use crate::ground::error::NextAction;

/// Why OS work did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The command could not be started or waited for.
    #[error("cannot run {program}")]
    Run {
        program: String,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The command ended with an error.
    #[error("{program} failed with {status}{diagnosis}")]
    Failed {
        program: String,
        /// Exit code or signal.
        status: Status,
        /// Why, where that is known.
        diagnosis: Box<Diagnosis>,
        output: Output,
    },
    /// The command did not end in time and was killed.
    #[error("{program} did not end within {} s and was stopped", .deadline.as_secs())]
    TimedOut {
        program: String,
        /// How long it had.
        deadline: Duration,
        /// What it printed until then.
        output: Output,
    },
    /// A job of an earlier agent does not end.
    #[error("{unit}, which an earlier agent began, still runs after {} s", .limit.as_secs())]
    Busy {
        unit: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// What a command printed or a file holds is not what it should be.
    #[error("cannot understand {what}: {why}")]
    Parse { what: &'static str, why: String },
}

/// Why a command failed, from what it printed and its exit code; empty where it
/// is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    pub cause: &'static str,
    /// What the operator does about it.
    pub next_action: Option<&'static str>,
    /// Whether trying again can help.
    pub class: FailureClass,
    /// The last line of its output that tells of an error.
    pub line: String,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureClass {
    /// It is not known: a few times are tried.
    #[default]
    Unknown,
    Terminal,
    /// It does once something else has changed, as a registry that is down.
    Transient,
    /// It does once there is room on the disk.
    NoSpace,
}

impl std::fmt::Display for Diagnosis {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.cause.is_empty() {
            write!(formatter, ": {}", self.cause)?;
        }
        if !self.line.is_empty() {
            write!(formatter, " ({})", self.line)?;
        }
        Ok(())
    }
}

impl SystemError {
    /// Whether trying again can help.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Failed { diagnosis, .. } => diagnosis.class,
            Self::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => FailureClass::Terminal,
            Self::Run { .. } | Self::TimedOut { .. } => FailureClass::Transient,
            // Each job has an end: what still runs after it does not end.
            Self::Busy { .. } => FailureClass::Terminal,
            Self::Read { .. } | Self::Parse { .. } => FailureClass::Unknown,
        }
    }
}

impl NextAction for SystemError {
    fn next_action(&self) -> Option<&str> {
        const LOG: &str = "look at the host's system log (`journalctl -b`)";
        Some(match self {
            Self::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "use an image that holds this program"
            }
            Self::Failed { diagnosis, .. } => diagnosis.next_action.unwrap_or(LOG),
            Self::Busy { .. } => "stop it on the host (`systemctl stop`)",
            Self::Run { .. } | Self::TimedOut { .. } | Self::Read { .. } | Self::Parse { .. } => LOG,
        })
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this code.
    Code(i32),
    Signal(i32),
}

impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}
