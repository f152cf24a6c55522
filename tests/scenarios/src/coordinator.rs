//! One coordinator as a process: it starts, leads without asking anybody
//! (safety never depends on the election), dies at any point, and is started
//! again.

use std::path::Path;
use std::time::Duration;

use clap::Parser as _;
use coordinator::config::Config;
use coordinator::controllers::{self, CapiVersions};
use coordinator::metrics::Metrics;
use coordinator::{serve, service};
use coordinator_api::capi;
use fake_apiserver::FakeApi;
use tokio::task::JoinHandle;

use crate::cables::Cables;
use crate::mortal::{Life, mortal};

/// Pause of whoever restarts a process that ended.
const RESTART: Duration = Duration::from_secs(1);
/// Cluster API's version here.
pub(crate) const CAPI: &str = "v1beta2";

/// One process.
pub(crate) struct Process {
    name: String,
    life: Life,
    cables: Cables,
    task: JoinHandle<()>,
}

/// What every coordinator of a world shares.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) fake: FakeApi,
    pub(crate) cables: Cables,
    pub(crate) config: Config,
}

impl Site {
    pub(crate) fn new(fake: FakeApi, cables: Cables, directory: &Path) -> Self {
        let cache = directory.join("cache").display().to_string();
        let config = Config::parse_from([
            "coordinator",
            "--server-url=https://coordinator.example:8443",
            "--namespace=baremetal",
            &format!("--cache-directory={cache}"),
        ]);
        Self { fake, cables, config }
    }

    /// Starts a coordinator whose user is `name`.
    pub(crate) fn start(&self, name: &str) -> Process {
        let life = Life::default();
        let client = mortal(self.fake.client(name), life.clone());
        let task = tokio::spawn(run(self.clone(), name.to_owned(), client));
        Process { name: name.to_owned(), life, cables: self.cables.clone(), task }
    }
}

async fn run(site: Site, name: String, client: kube::Client) {
    let mut config = site.config.clone();
    config.instance.clone_from(&name);
    loop {
        let versions = CapiVersions { machine: capi::machine(CAPI), cluster: capi::cluster(CAPI) };
        let parts = match service::assemble(&config, &client, versions, Metrics::default()).await {
            Ok(parts) => parts,
            Err(error) => {
                tracing::warn!(error = coordinator::telemetry::chain(&error), "the coordinator cannot start");
                tokio::time::sleep(RESTART).await;
                continue;
            }
        };
        let port = site.cables.listen(&name);
        let never = std::future::pending::<()>;
        tokio::join!(
            serve::run(port, parts.acceptor, parts.routes, never()),
            controllers::lead(parts.context, parts.leading, never()),
        );
    }
}

/// kill -9.
impl Drop for Process {
    fn drop(&mut self) {
        self.life.end();
        self.task.abort();
        self.cables.close(&self.name);
    }
}
