use std::error::Error;
use std::fmt::Write as _;

use tracing_subscriber::EnvFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LoggingFormat {
    /// `key=value`.
    #[default]
    Text,
    /// Each line is an object with its spans.
    Json,
}

/// Writes logs to stderr, filtered by `RUST_LOG` (default: `info`).
pub fn start_logging(format: LoggingFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match format {
        LoggingFormat::Text => lines.init(),
        LoggingFormat::Json => lines.json().init(),
    }
}

/// An error with all its causes in one line. An error is logged once, where it ends.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
