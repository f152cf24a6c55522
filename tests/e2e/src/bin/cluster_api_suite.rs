//! Runs Cluster API's own specs on simulated hosts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use e2e::cluster_api_suite::{self, Choice};
use e2e::environment::Environment;
use e2e::program::run_to_end;
use e2e::progress::Progress;

/// Cluster API's own specs, with its managers, two replicas of the coordinator and simulated hosts.
#[derive(Parser)]
struct Arguments {
    /// Only the specs whose names match this regular expression.
    #[arg(long, value_name = "EXPRESSION")]
    specs: Option<String>,
    /// Where logs and objects of the clusters are written.
    #[arg(long, value_name = "DIRECTORY")]
    artifacts: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { specs, artifacts } = Arguments::parse();
    let artifacts = artifacts.unwrap_or_else(|| std::env::temp_dir().join("baremetal-e2e-capi"));
    let choice = Choice { specs, artifacts };
    let progress = Arc::new(Progress::default());
    let work = async |directory| {
        let environment = Environment::start_for_control_planes_in(directory, &progress).await?;
        cluster_api_suite::run(&environment, &progress, &choice).await
    };
    match run_to_end("e2e-capi", &progress, work).await {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}
