//! `kubectl baremetal`: what hosts do, why something waits, and what to do about it.
//!
//! What is shown and what is changed are pure functions of the objects of one moment
//! ([`fleet`]): `finding` and `why` explain, `host_row`, `tree` and `steps` describe,
//! `change` decides. `cluster` reads, `commands` prints and writes.

mod arguments;
mod change;
mod cluster;
mod commands;
mod describe;
mod failure;
mod finding;
mod fleet;
mod host_row;
mod kind;
#[cfg(test)]
mod samples;
mod steps;
mod support;
mod text;
mod tree;
mod why;

use std::process::ExitCode;

use clap::Parser as _;

use crate::arguments::Arguments;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments).await {
        Ok(exit) => exit.into(),
        Err(failure) => {
            anstream::eprintln!("error: {failure}");
            failure.exit().into()
        }
    }
}
