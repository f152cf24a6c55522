//! `baremetal-coordinator`.

use std::process::ExitCode;

use clap::Parser as _;
use coordinator::config::Config;
use coordinator::metrics::Metrics;
use coordinator::shutdown::Shutdown;
use coordinator::telemetry::{self, chain};
use coordinator::traces::Traces;
use coordinator::{client, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> ExitCode {
    let config = Config::parse();
    telemetry::start_logging(config.logging_format);
    let traces = match Traces::from_environment(&config.instance) {
        Ok(traces) => traces,
        Err(error) => {
            tracing::error!(error = %chain(&error), "cannot send traces: correct OTEL_EXPORTER_OTLP_ENDPOINT");
            return ExitCode::FAILURE;
        }
    };
    let (end, shutdown) = watch::channel(false);
    tokio::spawn(async move {
        wait_for_signal().await;
        end.send_replace(true);
    });
    let code = serve_until(config, traces.clone(), shutdown).await;
    // The task fails only by a panic, which was shown.
    let _ = tokio::task::spawn_blocking(move || traces.send_rest()).await;
    code
}

async fn serve_until(config: Config, traces: Traces, shutdown: Shutdown) -> ExitCode {
    let metrics = Metrics::default();
    let client = match client::connect_api(metrics.clone()).await {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(error = %chain(&error), "cannot connect to Kubernetes: set KUBECONFIG or run in a cluster");
            return ExitCode::FAILURE;
        }
    };
    match run::run_coordinator(config, client, (metrics, traces), shutdown).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %chain(&error), "the coordinator stops");
            ExitCode::FAILURE
        }
    }
}

async fn wait_for_signal() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
