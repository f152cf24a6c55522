//! Errors of the lab, which say where to look.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::console;

/// A failed attempt. Those that concern a running host end with the last console lines and the log's place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file of the host could not be made or read.
    #[error("cannot prepare {}", path.display())]
    Prepare { path: PathBuf, source: io::Error },
    /// A program of the lab did not start.
    #[error("cannot start {program}: install the packages of iso/packages.host")]
    Start { program: &'static str, source: io::Error },
    /// A program of the lab said no.
    #[error("{program} failed: {said}")]
    Program {
        program: &'static str,
        /// The end of its output.
        said: String,
    },
    /// QEMU ended, or its monitor did not answer, before the host was on.
    #[error("host {host} did not power on: {said}")]
    PowerOn { host: String, said: String },
    /// The guest agent did not execute the request.
    #[error("host {host}: {attempt}: {said}; {console}")]
    GuestAgent { host: String, attempt: String, said: String, console: Box<ConsoleEnd> },
    #[error("host {host}: no {what} within {limit:?}; {seen}; {console}")]
    Deadline {
        host: String,
        what: String,
        limit: Duration,
        /// The last state that was seen.
        seen: String,
        console: Box<ConsoleEnd>,
    },
}

/// The end of a console log.
#[derive(Debug)]
pub struct ConsoleEnd {
    path: PathBuf,
    last: String,
}

impl ConsoleEnd {
    pub(crate) fn read(path: PathBuf) -> Self {
        Self { last: console::tail(&path), path }
    }
}

impl fmt::Display for ConsoleEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "console {}, last lines:\n{}", self.path.display(), self.last)
    }
}
