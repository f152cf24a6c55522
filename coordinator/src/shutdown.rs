//! The one signal that ends the process.

use tokio::sync::watch;

/// Becomes true once, at the end.
pub type Shutdown = watch::Receiver<bool>;

/// Waits until the process is to end.
pub async fn wait_ended(mut shutdown: Shutdown) {
    // The wait fails only if the sender was dropped, and then the process ends too.
    let _ = shutdown.wait_for(|ends| *ends).await;
}

/// Runs `work`; `None` if the process is to end before.
pub async fn unless_ended<T>(shutdown: &Shutdown, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = wait_ended(shutdown.clone()) => None,
    }
}
