//! Waiting for what other processes do.

use std::time::Duration;

use anyhow::ensure;
use futures::StreamExt as _;
use kube::Api;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Pause between two checks: short against everything that is timed to a second.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until `holds`.
pub(crate) async fn until(
    what: &str,
    limit: Duration,
    mut holds: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    while !holds().await? {
        ensure!(Instant::now() < deadline, "{} s passed without: {what}", limit.as_secs());
        sleep(PAUSE).await;
    }
    Ok(())
}

/// The objects of one kind, kept up to date by a watch.
pub(crate) struct Observed<K: kube::Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    task: JoinHandle<()>,
}

impl<K> Observed<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    pub(crate) fn start(api: Api<K>) -> Self {
        let (store, writer) = reflector::store();
        let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        let task = tokio::spawn(events.for_each(|_| std::future::ready(())));
        Self { store, task }
    }

    pub(crate) fn count(&self, is_counted: impl Fn(&K) -> bool) -> usize {
        self.store.state().iter().filter(|object| is_counted(object)).count()
    }

    /// Waits until `wanted` of the objects are as `is_counted` says, and prints how many are every
    /// few seconds.
    pub(crate) async fn until(
        &self,
        what: &str,
        wanted: usize,
        limit: Duration,
        is_counted: impl Fn(&K) -> bool,
    ) -> anyhow::Result<()> {
        let mut shown = Instant::now();
        until(&format!("{wanted} {what}"), limit, async || {
            let count = self.count(&is_counted);
            if shown.elapsed() > Duration::from_secs(5) {
                shown = Instant::now();
                eprintln!("  {count} of {wanted} {what}");
            }
            Ok(count >= wanted)
        })
        .await
    }
}

impl<K: kube::Resource<DynamicType = ()> + Clone + 'static> Drop for Observed<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
