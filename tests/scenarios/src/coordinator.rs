//! One coordinator as a process: it starts, leads without an election (safety
//! never depends on it), dies at any point, and is started again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use coordinator::clock::Clock;
use coordinator::config::Config;
use coordinator::health::Readiness;
use coordinator::metrics::Metrics;
use coordinator::run::{self, Parts, Setup};
use coordinator::traces::Traces;
use coordinator::workload::WorkloadClients;
use coordinator::{cluster_api, controllers, listener};
use fake_apiserver::FakeApi;
use futures::FutureExt as _;
use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster_api::SILENT;
use crate::killable_client::{Liveness, killable_client};
use crate::network::Network;

/// Pause before a process that ended is started again.
const RESTART: Duration = Duration::from_secs(1);
/// Namespace of the coordinator.
pub(crate) const OWN_NAMESPACE: &str = "baremetal-system";

/// One process.
pub(crate) struct Process {
    name: String,
    life: Liveness,
    network: Network,
    task: JoinHandle<()>,
}

/// Which kinds of machines a coordinator serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontDoors {
    Baremetal,
    /// And those of Metal3.
    WithMetal3,
    /// And `BareMetalHost`, beside another manager of the other kinds.
    WithBareMetalHosts,
}

/// What every coordinator of a world shares.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) fake: FakeApi,
    pub(crate) workload: FakeApi,
    pub(crate) network: Network,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
}

/// Every kubeconfig but [`SILENT`] leads to the one workload cluster.
fn connect_workloads(workload: &FakeApi) -> WorkloadClients {
    let workload = workload.clone();
    WorkloadClients::new(Arc::new(move |kubeconfig| {
        let is_silent = kubeconfig.expose() == SILENT.as_bytes();
        let client = if is_silent { silent_client() } else { workload.client("coordinator") };
        std::future::ready(Ok(client)).boxed()
    }))
}

/// A client whose requests have no answer.
fn silent_client() -> kube::Client {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, tower::BoxError>>()
    });
    kube::Client::new(service, "default")
}

/// Virtual time: it moves with tokio's.
fn virtual_clock() -> Clock {
    let (epoch, start) = (Timestamp::now(), Instant::now());
    Clock::new(move || epoch.saturating_add(start.elapsed()).unwrap_or(Timestamp::MAX))
}

impl Site {
    pub(crate) fn new(fake: FakeApi, network: Network, directory: &Path, front_doors: FrontDoors) -> Self {
        let cache = directory.join("cache").display().to_string();
        let metal3 = match front_doors {
            FrontDoors::WithMetal3 => "full",
            FrontDoors::WithBareMetalHosts => "hosts",
            FrontDoors::Baremetal => "off",
        };
        let config = Config::parse_from([
            "coordinator",
            "--server-url=https://coordinator.example:8443",
            &format!("--own-namespace={OWN_NAMESPACE}"),
            &format!("--cache-directory={cache}"),
            &format!("--metal3={metal3}"),
        ]);
        Self { fake, workload: FakeApi::new(), network, config, clock: virtual_clock() }
    }

    /// Starts a coordinator whose user is `name`.
    pub(crate) fn start(&self, name: &str) -> Process {
        let life = Liveness::default();
        let client = killable_client(self.fake.client(name), life.clone());
        let task = tokio::spawn(run_process(self.clone(), name.to_owned(), client));
        Process { name: name.to_owned(), life, network: self.network.clone(), task }
    }
}

async fn run_process(site: Site, name: String, client: kube::Client) {
    let mut config = site.config.clone();
    config.instance.clone_from(&name);
    let setup = Setup {
        config,
        client: client.clone(),
        versions: cluster_api::at_version(cluster_api::wait_for_version(&client).await),
        metrics: Metrics::default(),
        traces: Traces::default(),
        readiness: Readiness::default(),
        clock: site.clock.clone(),
        workloads: connect_workloads(&site.workload),
    };
    loop {
        match run::assemble_parts(&setup).await {
            Ok(parts) => serve(&site, &name, &setup, parts).await,
            Err(error) => {
                tracing::warn!(error = coordinator::telemetry::chain(&error), "the coordinator cannot start");
                tokio::time::sleep(RESTART).await;
            }
        }
    }
}

async fn serve(site: &Site, name: &str, setup: &Setup, parts: Parts) {
    let lease = run::open_replica_lease(setup, &parts);
    let (_running, shutdown) = watch::channel(false);
    // A session must not name a replica that has no Lease.
    while lease.renew_lease().await.is_err() {
        tokio::time::sleep(RESTART).await;
    }
    let port = site.network.listen(name);
    let never = std::future::pending::<()>;
    tokio::join!(
        listener::run_listener(port, parts.acceptor, parts.routes, never()),
        controllers::lead_controllers(parts.context.clone(), never()),
        lease.keep_renewed(shutdown),
    );
}

/// kill -9.
impl Drop for Process {
    fn drop(&mut self) {
        self.life.kill();
        self.task.abort();
        self.network.close(&self.name);
    }
}
