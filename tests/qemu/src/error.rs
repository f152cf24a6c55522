//! What can go wrong in the lab, and where to look.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

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
        /// The end of what it said.
        said: String,
    },
    /// QEMU ended, or its monitor did not answer, before the host was on.
    #[error("host {host} did not power on: {said}")]
    PowerOn { host: String, said: String },
    /// The guest agent did not do what was asked.
    #[error("host {host}: {attempt}: {said}; console {}, last lines:\n{last}", console.display())]
    GuestAgent {
        host: String,
        attempt: String,
        said: String,
        /// The end of the console log.
        last: String,
        console: PathBuf,
    },
    #[error("host {host}: no {what} within {limit:?}; {seen}; console {}, last lines:\n{last}", console.display())]
    Deadline {
        host: String,
        /// What was waited for.
        what: String,
        limit: Duration,
        /// What was seen instead.
        seen: String,
        /// The end of the console log.
        last: String,
        console: PathBuf,
    },
}
