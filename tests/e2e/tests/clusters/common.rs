//! Beginning and end of every test with simulated hosts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use contract::documents::{Reader, fill};
use control_plane::Shell;
use control_plane::audit::Counts;
use control_plane::directory::Directory;
use coordinator_api::inventory::MachineInventory;
use e2e::environment::{Environment, Reach};
use e2e::lifecycle::NAMESPACE;
use e2e::progress::Progress;
use e2e::serve::{create_base_iso, serve};
use e2e::site::Management;
use e2e::watching::until_all;
use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Tests with an environment that run at once. They mostly wait; more of them make
/// a small machine miss every deadline.
const ENVIRONMENTS: u32 = 2;
static TURNS: Semaphore = Semaphore::const_new(ENVIRONMENTS as usize);

/// Of one lifecycle; each of two replicas reads for itself.
pub(crate) const REQUESTS: u64 = 60;
pub(crate) const WRITES: u64 = 44;

/// What a slow machine may add to each of them: a session or a step that lasts is written once more.
pub(crate) fn slack_of(elapsed: Duration) -> u64 {
    elapsed.as_secs().saturating_sub(30) / 10
}

/// Waits for an Event with that reason on an object: it is written after what it tells of.
pub(crate) async fn await_event(client: &Client, name: &str, reason: &str) -> anyhow::Result<()> {
    let is_told = |event: &Event| {
        let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
        event.reason.as_deref() == Some(reason) && regarding == Some(name)
    };
    let found = |events: &BTreeMap<String, Event>| Ok(events.values().any(is_told).then_some(()));
    let events = Api::namespaced(client.clone(), NAMESPACE);
    let limit = Duration::from_mins(3);
    until_all(&events, watcher::Config::default(), limit, found)
        .await
        .with_context(|| format!("await {reason}"))
}

/// Waits until what was granted to the user of `plugin/viewer.yaml` holds: the API server reads
/// bindings by a watch of its own.
pub(crate) async fn await_viewer(management: &Management) -> anyhow::Result<()> {
    let viewer = management.control_plane.client("viewer", "none").await?;
    let inventories = Api::<MachineInventory>::namespaced(viewer, NAMESPACE);
    let limit = Duration::from_mins(3);
    let listed = until_all(&inventories, watcher::Config::default(), limit, |_| Ok(Some(()))).await;
    listed.context("await the rights of the viewer")
}

/// Requests and writes without Events, Leases and watches: those depend on time.
pub(crate) fn read_cost(counts: &Counts) -> (u64, u64) {
    let lease_writes =
        ["patch", "update", "create"].map(|verb| counts.of(verb, "leases")).iter().sum::<u64>();
    let events = counts.of("create", "events") + counts.of("patch", "events");
    let writes = counts.writes - events - lease_writes;
    let requests = counts.requests - events - lease_writes - counts.of("get", "leases") - counts.watches;
    (requests, writes)
}

/// Held by a test with servers of its own.
pub(crate) async fn take_turn() -> SemaphorePermit<'static> {
    TURNS.acquire().await.unwrap()
}

/// Held by a test that needs the whole machine.
pub(crate) async fn take_machine() -> SemaphorePermit<'static> {
    TURNS.acquire_many(ENVIRONMENTS).await.unwrap()
}

/// Runs the commands of one section of a document, with values for its placeholders.
pub(crate) async fn run_section(
    shell: &Shell,
    reader: &mut Reader,
    (document, section): (&str, &str),
    values: &[(&str, String)],
) -> anyhow::Result<()> {
    for block in reader.read(document, section)?.iter().filter(|block| block.is_commands()) {
        shell.run(&fill(&block.content, values)).await?;
    }
    Ok(())
}

/// An environment and the URL of a base ISO.
pub(crate) struct Setup {
    pub(crate) environment: Environment,
    pub(crate) progress: Arc<Progress>,
    pub(crate) base: String,
    _turn: SemaphorePermit<'static>,
}

impl Setup {
    pub(crate) async fn start() -> Self {
        Self::start_limited(&[]).await
    }

    /// A coordinator that is limited to `namespaces`, where there are any.
    pub(crate) async fn start_limited(namespaces: &[&str]) -> Self {
        let directory = Arc::new(Directory::temporary().unwrap());
        let start = async |progress: &_| {
            Environment::start_in(directory, Reach::Loopback, namespaces, progress).await
        };
        Self::start_with(start).await
    }

    /// A coordinator with this in its environment.
    pub(crate) async fn start_configured(environment: &[(String, String)]) -> Self {
        Self::start_with(async |progress| Environment::start_configured(environment, progress).await).await
    }

    /// With the managers and the cluster that control planes need.
    pub(crate) async fn start_for_control_planes() -> Self {
        Self::start_with(async |progress| Environment::start_for_control_planes(progress).await).await
    }

    /// With the kinds of Metal3 too.
    pub(crate) async fn start_for_metal3() -> Self {
        let directory = Arc::new(Directory::temporary().unwrap());
        let start =
            async |progress: &_| Environment::start_for_metal3(directory, Reach::Loopback, progress).await;
        Self::start_with(start).await
    }

    async fn start_with(start: impl AsyncFnOnce(&Arc<Progress>) -> anyhow::Result<Environment>) -> Self {
        let turn = take_turn().await;
        let progress = Arc::new(Progress::default());
        let environment = start(&progress).await.unwrap();
        let base = serve(create_base_iso(environment.directory.path()).await.unwrap()).await.unwrap();
        Self { environment, progress, base, _turn: turn }
    }

    /// Fails the test with everything that an operator would read.
    pub(crate) fn check<T>(&self, result: anyhow::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            panic!("in step {:?}: {error:#}\n\n{}", self.progress.current(), self.environment.logs())
        })
    }
}
