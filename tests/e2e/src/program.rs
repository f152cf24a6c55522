//! What the programs have in common: their end, and what they leave.

use std::path::{Path, PathBuf};

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
///
/// # Errors
/// When one cannot be copied.
pub fn keep_logs(directory: &Path, program: &str) -> anyhow::Result<PathBuf> {
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
