//! The whole process: caches, port, lead.

use std::sync::Arc;

use coordinator_api::inventory::MachineInventory;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use crate::base_image::{BaseImageError, BaseImages};
use crate::ca::{self, Authority, CaError};
use crate::config::Config;
use crate::controllers::{self, CapiVersions, Waiting};
use crate::events::Events;
use crate::health::{self, Ready};
use crate::metrics::Metrics;
use crate::rpc;
use crate::rpc::announcements::Announcements;
use crate::seed_iso::SeedIsos;
use crate::tls::{Acceptor, TlsError};
use crate::watch::{Caches, Leading, Seen, follow};
use crate::{capi, lease, serve};

/// Why the coordinator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The Secret with the CA.
    #[error("cannot read or make the certificate authority")]
    Authority(#[from] CaError),
    /// The server certificate.
    #[error("cannot make the server certificate")]
    Tls(#[from] TlsError),
    /// The cache directory.
    #[error("cannot use the cache directory")]
    Cache(#[from] BaseImageError),
}

/// Flips once, at the end.
pub type Shutdown = signal::Receiver<bool>;

/// Runs until `shutdown`.
///
/// # Errors
/// Only before it serves.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> Result<(), StartError> {
    let listener = listen(config.listen).await?;
    let health_listener = listen(config.health_listen).await?;
    let (ready, metrics) = (Ready::default(), Metrics::default());
    let mut tasks = JoinSet::new();
    let routes = health::router(ready.clone(), metrics.clone());
    tasks.spawn(async move {
        if let Err(error) = axum::serve(health_listener, routes).await {
            tracing::error!(%error, "health is not served any more");
        }
    });
    let versions = tokio::select! {
        versions = capi::versions(&client) => versions,
        () = ended(shutdown.clone()) => return Ok(()),
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &config.namespace);
    let authority = Arc::new(ca::read_or_create(&secrets, Timestamp::now()).await?);
    let (leading, waiting) = (Leading::default(), Waiting::default());
    let announcements = Arc::<Announcements>::default();
    let watches = Watches { client: &client, config: &config, versions: &versions, leading: &leading, waiting: &waiting };
    let caches = watches.start(&announcements, &mut tasks);
    let isos = isos(&config, &caches, &authority)?;
    let rpc = rpc::Context::new(
        client.clone(),
        caches.inventories.clone(),
        caches.registrations.clone(),
        announcements,
        authority.clone(),
    );
    let acceptor = Acceptor::new(&authority, &config.certificate_names(), Timestamp::now())?;
    tasks.spawn(serve::renew(acceptor.clone(), authority, config.certificate_names()));
    tokio::select! {
        () = filled(&caches) => ready.set(),
        () = ended(shutdown.clone()) => return Ok(()),
    }
    tracing::info!(address = %config.listen, url = config.server_url, "serving hosts");
    let context = controllers::Context {
        events: Events::new(client.clone(), config.instance.clone()),
        client: client.clone(),
        caches,
        metrics,
        waiting,
        server_url: config.server_url.clone(),
        isos: isos.clone(),
        versions,
    };
    let router = serve::router(&rpc, Some(isos));
    tokio::join!(
        serve::run(listener, acceptor, router, ended(shutdown.clone())),
        lease::follow(&client, &config, context, leading, shutdown),
    );
    Ok(())
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Ends when the process is to end.
pub async fn ended(mut shutdown: Shutdown) {
    // An error is a sender that is gone: the process ends too.
    let _ = shutdown.wait_for(|ends| *ends).await;
}

fn isos(config: &Config, caches: &Caches, authority: &Arc<Authority>) -> Result<Arc<SeedIsos>, StartError> {
    let bases = BaseImages::new(config.cache_directory.clone())?;
    Ok(Arc::new(SeedIsos::new(bases, caches.seed_images.clone(), caches.registrations.clone(), authority.clone())))
}

async fn filled(caches: &Caches) {
    // An error is a watch that ended with the process.
    let _ = tokio::join!(
        caches.inventories.wait_until_ready(),
        caches.registrations.wait_until_ready(),
        caches.seed_images.wait_until_ready(),
        caches.pools.wait_until_ready(),
        caches.baremetal_clusters.wait_until_ready(),
        caches.baremetal_machines.wait_until_ready(),
        caches.machines.wait_until_ready(),
        caches.clusters.wait_until_ready(),
        caches.catalog.wait_until_ready(),
    );
}

/// What the watches are made from.
struct Watches<'a> {
    client: &'a Client,
    config: &'a Config,
    versions: &'a CapiVersions,
    leading: &'a Leading,
    waiting: &'a Waiting,
}

/// Starts the watch of one kind: its key in the queues is a variant of [`Seen`].
macro_rules! start {
    ($tasks:ident, $router:ident, $api:expr, $config:expr, $writer:expr, $seen:path, $index:expr) => {{
        let (router, api, config, writer, index) = ($router.clone(), $api, $config, $writer, $index);
        $tasks.spawn(async move {
            let router = &router;
            follow(api, config, writer, index, async |object| router.route($seen(object)).await).await;
        });
    }};
}

/// Sends what was seen to whoever leads.
#[derive(Clone)]
struct Router {
    caches: Caches,
    leading: Leading,
    waiting: Waiting,
}

impl Router {
    async fn route(&self, seen: Seen<'_>) {
        if let Some(queues) = self.leading.queues() {
            controllers::route(seen, &self.caches, &self.waiting, &queues).await;
        }
    }
}

impl Watches<'_> {
    fn start(&self, announcements: &Arc<Announcements>, tasks: &mut JoinSet<()>) -> Caches {
        let (inventories, registrations, seed_images) = (Writer::default(), Writer::default(), Writer::default());
        let (pools, ours, bmms) = (Writer::default(), Writer::default(), Writer::default());
        let machines = Writer::new(self.versions.machine.clone());
        let clusters = Writer::new(self.versions.cluster.clone());
        let catalog = Writer::<ConfigMap>::default();
        let caches = Caches {
            inventories: inventories.as_reader(),
            registrations: registrations.as_reader(),
            seed_images: seed_images.as_reader(),
            pools: pools.as_reader(),
            baremetal_clusters: ours.as_reader(),
            baremetal_machines: bmms.as_reader(),
            machines: machines.as_reader(),
            clusters: clusters.as_reader(),
            catalog: catalog.as_reader(),
        };
        let router = Router { caches: caches.clone(), leading: self.leading.clone(), waiting: self.waiting.clone() };
        let announcements = announcements.clone();
        let news = move |event: &watcher::Event<MachineInventory>| announcements.event(event);
        let (client, all) = (self.client, watcher::Config::default);
        let one = all().fields(&format!("metadata.name={}", self.config.image_catalog));
        let here = Api::namespaced(client.clone(), &self.config.namespace);
        let machine_api = Api::all_with(client.clone(), &self.versions.machine);
        let cluster_api = Api::all_with(client.clone(), &self.versions.cluster);
        start!(tasks, router, Api::all(client.clone()), all(), inventories, Seen::Inventory, news);
        start!(tasks, router, Api::all(client.clone()), all(), registrations, Seen::Registration, |_| ());
        start!(tasks, router, Api::all(client.clone()), all(), seed_images, Seen::SeedImage, |_| ());
        start!(tasks, router, Api::all(client.clone()), all(), pools, Seen::Pool, |_| ());
        start!(tasks, router, Api::all(client.clone()), all(), ours, Seen::BaremetalCluster, |_| ());
        start!(tasks, router, Api::all(client.clone()), all(), bmms, Seen::BaremetalMachine, |_| ());
        start!(tasks, router, machine_api, all(), machines, Seen::Machine, |_| ());
        start!(tasks, router, cluster_api, all(), clusters, Seen::Cluster, |_| ());
        start!(tasks, router, here, one, catalog, Seen::Catalog, |_| ());
        caches
    }
}
