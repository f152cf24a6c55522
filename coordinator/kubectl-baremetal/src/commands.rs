//! The commands: each reads objects, decides, and prints or writes.

mod apply;
mod complete;
mod describe;
mod hosts;
mod logs;
mod output;
mod support;
mod tree;
mod ui;
mod why;

use clap::CommandFactory as _;

use crate::arguments::{Arguments, Command};
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};

pub(crate) use complete::complete_words;

pub(crate) async fn run(arguments: Arguments) -> Result<Exit, Failure> {
    if let Command::Completion { shell } = arguments.command {
        let mut command = Arguments::command();
        clap_complete::generate(shell, &mut command, "kubectl-baremetal", &mut std::io::stdout());
        return Ok(Exit::Done);
    }
    let cluster = Cluster::connect(&arguments.connection).await?;
    match &arguments.command {
        Command::Hosts(arguments) => hosts::show_hosts(&cluster, arguments).await,
        Command::Why(arguments) => why::explain_object(&cluster, arguments).await,
        Command::Tree(arguments) => tree::show_tree(&cluster, arguments).await,
        Command::Logs(arguments) => logs::show_logs(&cluster, arguments).await,
        Command::Describe(arguments) => describe::show_description(&cluster, arguments).await,
        Command::Approve(arguments) => apply::approve_hosts(&cluster, arguments).await,
        Command::Release(arguments) => apply::release_host(&cluster, arguments).await,
        Command::DrainAndRelease(arguments) => apply::drain_host(&cluster, arguments).await,
        Command::Clean(arguments) => apply::clean_host(&cluster, arguments).await,
        Command::Reinstall(arguments) => apply::reinstall_host(&cluster, arguments).await,
        Command::InstallOn(arguments) => apply::install_host_on(&cluster, arguments).await,
        Command::ReplaceKey(arguments) => apply::replace_host_key(&cluster, arguments).await,
        Command::Ui(arguments) => ui::show_page(&cluster, arguments).await,
        Command::Support(arguments) => support::write_bundle(&cluster, arguments).await,
        Command::Completion { .. } => Ok(Exit::Done),
    }
}
