//! `kubectl baremetal`: what hosts do, why something waits, and what to do about it.
//!
//! What is shown and what is changed are pure functions of the objects of one moment
//! ([`fleet`]): `finding` and `why` explain, `host_row`, `tree` and `steps` describe,
//! `change` decides. `cluster` reads, `commands` prints and writes. `explanation` is `why`
//! for tests that have the objects.

mod arguments;
mod change;
mod cluster;
mod commands;
mod complete;
mod describe;
mod explanation;
mod failure;
mod finding;
mod fleet;
mod host_row;
mod kind;
mod live;
mod metal3;
#[cfg(test)]
mod samples;
mod steps;
mod support;
mod text;
mod tree;
mod ui;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::arguments::{Arguments, Command};

pub use crate::explanation::{Explanation, explain, list_kinds};

/// By this name kubectl asks for completions.
const COMPLETER: &str = "kubectl_complete-baremetal";

/// What the command line may have, for tests of documents.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Whether these words are a command line of the program, for tests of documents.
///
/// # Errors
///
/// Why they are not; that an object does not exist is not looked at.
pub fn check_arguments(words: impl IntoIterator<Item = String>) -> Result<(), String> {
    let words = std::iter::once(COMPLETER.to_owned()).chain(words);
    let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
    match arguments.command {
        Command::Why(why) => {
            commands::parse_object(&why.object).map(drop).map_err(|failure| failure.to_string())
        }
        _ => Ok(()),
    }
}

/// The program, with the command line of the process.
pub async fn run_program() -> ExitCode {
    let words: Vec<_> = std::env::args().collect();
    let name = words.first().and_then(|name| Path::new(name).file_name());
    if name.is_some_and(|name| name == COMPLETER) {
        anstream::print!("{}", commands::complete_words(&words[1..]).await);
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    match commands::run(arguments).await {
        Ok(exit) => exit.into(),
        Err(failure) => {
            anstream::eprintln!("error: {failure}");
            failure.exit().into()
        }
    }
}
