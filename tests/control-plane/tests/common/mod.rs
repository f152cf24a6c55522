//! What several tests need.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{sleep, timeout};

/// Asks until there is an answer, for a minute.
pub(crate) async fn eventually<T>(
    what: &str,
    mut check: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    timeout(Duration::from_mins(1), async {
        loop {
            if let Some(found) = check().await? {
                return Ok(found);
            }
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .with_context(|| format!("waited 60 s until {what}"))?
}
