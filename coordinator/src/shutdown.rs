//! The one signal by which everything learns that the process is to end.

use tokio::sync::watch;

/// Flips once, at the end.
pub type Shutdown = watch::Receiver<bool>;

/// Ends when the process is to end.
pub async fn wait_ended(mut shutdown: Shutdown) {
    // An error is a dropped sender: the process ends too.
    let _ = shutdown.wait_for(|ends| *ends).await;
}

/// `None` when the process is to end before `work` does.
pub async fn unless_ended<T>(shutdown: &Shutdown, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = wait_ended(shutdown.clone()) => None,
    }
}
