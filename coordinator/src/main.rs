//! `baremetal-coordinator`.

use std::process::ExitCode;

use coordinator::base_image::serve::{check_server, serve_orders};
use coordinator::config::{Config, FetcherConfig, Program};
use coordinator::metrics::Metrics;
use coordinator::shutdown::Shutdown;
use coordinator::telemetry::{self, chain};
use coordinator::traces::Traces;
use coordinator::{client, run};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[tokio::main]
async fn main() -> ExitCode {
    match Program::parse(std::env::args_os()) {
        Ok(Program::Coordinator(config)) => Box::pin(coordinate(*config)).await,
        Ok(Program::Fetcher(config)) if config.check => check_fetcher(&config).await,
        Ok(Program::Fetcher(config)) => fetch_base_images(&config).await,
        Err(error) => error.exit(),
    }
}

async fn coordinate(config: Config) -> ExitCode {
    telemetry::start_logging(config.logging_format);
    let traces = match Traces::from_environment(&config.instance) {
        Ok(traces) => traces,
        Err(error) => {
            tracing::error!(error = %chain(&error), "cannot send traces: correct OTEL_EXPORTER_OTLP_ENDPOINT");
            return ExitCode::FAILURE;
        }
    };
    let code = serve_until(config, traces.clone(), end_by_signal()).await;
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

async fn fetch_base_images(config: &FetcherConfig) -> ExitCode {
    telemetry::start_logging(config.logging_format);
    match serve_orders(&config.base_image_socket, config.arriving_size, end_by_signal()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %chain(&error), "base images are not fetched any more");
            ExitCode::FAILURE
        }
    }
}

/// The kubelet shows what a probe prints.
async fn check_fetcher(config: &FetcherConfig) -> ExitCode {
    match check_server(&config.base_image_socket).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fetch-base-images does not answer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn end_by_signal() -> Shutdown {
    let (end, shutdown) = watch::channel(false);
    tokio::spawn(async move {
        wait_for_signal().await;
        end.send_replace(true);
    });
    shutdown
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
