//! What the programs have in common: their end, and what they leave.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use control_plane::directory::Directory;

use crate::progress::Progress;

/// Does the work until it ends or the program is stopped; dropping the work ends every process
/// of it. Where it does not come to its end, it is said why, and the logs are kept.
pub async fn run_to_end<T>(
    program: &str,
    progress: &Progress,
    work: impl AsyncFnOnce(Arc<Directory>) -> anyhow::Result<T>,
) -> Option<T> {
    let directory = match Directory::temporary() {
        Ok(directory) => Arc::new(directory),
        Err(error) => {
            eprintln!("A temporary directory is needed: {error}");
            return None;
        }
    };
    let ended = tokio::select! {
        // Work that waits for the same signal has come to its end.
        biased;
        ended = Box::pin(work(directory.clone())) => ended,
        () = stopped() => Err(anyhow::anyhow!("stopped by a signal")),
    };
    progress.finish();
    ended
        .inspect_err(|error| {
            eprintln!("\nIt did not come to its end. In step {:?}:\n{error:#}", progress.current());
            match keep_logs(directory.path(), program) {
                Ok(logs) => eprintln!("\nThe logs are in {}", logs.display()),
                Err(error) => eprintln!("\nThe logs could not be kept: {error:#}"),
            }
        })
        .ok()
}

/// Prints what was proven, and how long each step took.
pub fn print_proof(proven: &[String], progress: &Progress) {
    println!("\nProven:");
    for line in proven {
        println!("  ✓ {line}");
    }
    println!("\nSteps:");
    for (name, time) in progress.done() {
        println!("  {:>4} s  {name}", time.as_secs());
    }
}

/// Ctrl-C, a closed terminal, or a polite kill.
pub async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let wait = async |kind| match signal(kind) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

/// Copies the logs below a directory, which is removed with the program.
fn keep_logs(directory: &Path, program: &str) -> anyhow::Result<PathBuf> {
    let kept = std::env::temp_dir().join(format!("baremetal-{program}-{}", std::process::id()));
    std::fs::create_dir_all(&kept)?;
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(next)? {
            let path = entry?.path();
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            if path.is_dir() && !path.is_symlink() {
                pending.push(path);
            } else if is_log && let Ok(name) = path.strip_prefix(directory) {
                std::fs::copy(&path, kept.join(name.to_string_lossy().replace('/', "-")))?;
            }
        }
    }
    Ok(kept)
}
