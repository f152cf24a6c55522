//! `kubectl baremetal`: the state of hosts, the cause for which something waits, and the next action.
//!
//! Views and changes are pure functions of the objects of one moment ([`fleet`]): [`why`] finds
//! causes, [`view`] describes, [`change`] decides. [`cluster`] reads from the API server, [`ui`]
//! serves the page, and [`commands`] prints and writes. No module imports one that stands behind
//! it in this list: `failure`, `fleet`, `why`, `view`, `arguments`, `cluster`, `change`, `ui`,
//! `commands`.

mod arguments;
mod change;
mod cluster;
mod commands;
mod explanation;
mod failure;
mod fleet;
#[cfg(test)]
mod samples;
mod ui;
mod view;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::arguments::{Arguments, Command};

pub use crate::explanation::{Explanation, annotations_of_clean, explain, list_kinds};

/// The name by which kubectl asks for completions.
const COMPLETER: &str = "kubectl_complete-baremetal";

/// The command line, for tests of documents.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Checks that these words are a command line of the program, for tests of documents. The named
/// object need not exist.
pub fn check_arguments(words: impl IntoIterator<Item = String>) -> Result<(), String> {
    let words = std::iter::once(COMPLETER.to_owned()).chain(words);
    let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
    match arguments.command {
        Command::Why(why) => {
            fleet::parse_object(&why.object).map(drop).map_err(|failure| failure.to_string())
        }
        _ => Ok(()),
    }
}

/// Runs the command line of the process.
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
