//! The whole process: caches, port, lead.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::base_image::{BaseImageError, BaseImages};
use crate::ca::{self, Authority, CaError};
use crate::config::Config;
use crate::controllers::choices::Choices;
use crate::controllers::{self, CapiVersions, Waiting};
use crate::events::Events;
use crate::health::{self, Ready};
use crate::metrics::Metrics;
use crate::rpc::announcements::Announcements;
use crate::rpc::presence::Presence;
use crate::rpc::{self, host};
use crate::seed_iso::SeedIsos;
use crate::shutdown::{Shutdown, ended, unless_ended};
use crate::tls::{Acceptor, TlsError};
use crate::watch::{Caches, Leading};
use crate::watches::{self, Router};
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

/// Runs until `shutdown`.
///
/// # Errors
/// Only before it serves.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> Result<(), StartError> {
    let listener = listen(config.listen).await?;
    let health_listener = listen(config.health_listen).await?;
    let (ready, metrics) = (Ready::default(), Metrics::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_health(health_listener, health::router(ready.clone(), metrics.clone())));
    let Some(versions) = unless_ended(&shutdown, capi::versions(&client)).await else {
        return Ok(());
    };
    let Some(parts) = unless_ended(&shutdown, assemble(&config, &client, versions, metrics)).await else {
        return Ok(());
    };
    let parts = parts?;
    ready.set();
    tracing::info!(address = %config.listen, url = config.server_url, "serving hosts");
    let Parts { acceptor, routes, context, leading, presence, tasks: _watches } = parts;
    let end = shutdown.clone();
    tokio::join!(
        async move {
            ended(end).await;
            presence.close();
        },
        serve::run(listener, acceptor, routes, ended(shutdown.clone())),
        lease::follow(&client, &config, context, leading, shutdown.clone()),
    );
    Ok(())
}

async fn serve_health(listener: TcpListener, routes: axum::Router) {
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "health is not served any more");
    }
}

/// A coordinator whose caches are filled, without ports and without the lead.
pub struct Parts {
    /// TLS for the port.
    pub acceptor: Acceptor,
    /// What the port answers.
    pub routes: serve::Routes,
    /// For [`controllers::lead`].
    pub context: controllers::Context,
    /// Where the lead is taken.
    pub leading: Leading,
    /// Streams of hosts.
    pub presence: Arc<Presence>,
    /// The watches; they end when it is dropped.
    pub tasks: JoinSet<()>,
}

/// Reads or makes the authority, starts the watches, waits until they have
/// seen everything.
///
/// # Errors
/// [`StartError`], but for the ports.
pub async fn assemble(
    config: &Config,
    client: &Client,
    versions: CapiVersions,
    metrics: Metrics,
) -> Result<Parts, StartError> {
    let mut tasks = JoinSet::new();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &config.namespace);
    let authority = Arc::new(ca::read_or_create(&secrets, Timestamp::now()).await?);
    let (leading, waiting) = (Leading::default(), Waiting::default());
    let announcements = Arc::<Announcements>::default();
    let router =
        Router { leading: leading.clone(), waiting: waiting.clone(), announcements: announcements.clone() };
    let caches = watches::start(client, config, &versions, &router, &mut tasks);
    let isos = isos(config, &caches, &authority)?;
    let seen = rpc::Seen {
        inventories: caches.inventories.clone(),
        registrations: caches.registrations.clone(),
        announcements,
    };
    let rpc = rpc::Context::new(client.clone(), seen, authority.clone(), metrics.clone());
    let identity = authority.server(&config.certificate_names(), Timestamp::now())?;
    let acceptor = Acceptor::new(&authority, identity)?;
    tasks.spawn(serve::renew(acceptor.clone(), authority, config.certificate_names()));
    filled(&caches).await;
    let (swept, presence) = (rpc.clone(), rpc.presence.clone());
    tasks.spawn(async move {
        tokio::time::sleep(host::GRACE).await;
        host::sweep(&swept).await;
    });
    let context = controllers::Context {
        events: Events::new(client.clone(), config.instance.clone()),
        client: client.clone(),
        caches,
        metrics,
        waiting,
        choices: Choices::default(),
        server_url: config.server_url.clone(),
        isos: isos.clone(),
        versions,
    };
    Ok(Parts { acceptor, routes: serve::router(&rpc, Some(isos)), context, leading, presence, tasks })
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

fn isos(config: &Config, caches: &Caches, authority: &Arc<Authority>) -> Result<Arc<SeedIsos>, StartError> {
    let bases = BaseImages::new(config.cache_directory.clone())?;
    Ok(Arc::new(SeedIsos::new(
        bases,
        caches.seed_images.clone(),
        caches.registrations.clone(),
        authority.clone(),
    )))
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
