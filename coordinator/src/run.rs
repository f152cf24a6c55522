//! The whole process: stores, port, leadership.

mod authority;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::agent_file::{AgentFile, read_platform};
use crate::base_image::{BaseImageError, BaseImages};
use crate::ca::{Authority, CaError};
use crate::clock::Clock;
use crate::config::{Config, Metal3};
use crate::controllers;
use crate::controllers::backoffs::{Backoffs, Throttle};
use crate::controllers::context::Context;
use crate::controllers::interruptions::Interruptions;
use crate::conversion::{self, definitions};
use crate::diagnostics::{DiagnosticsError, serve_diagnostics};
use crate::events::Events;
use crate::health::{self, Readiness};
use crate::index::metal3::Metal3Index;
use crate::index::replicas::ReplicaTracker;
use crate::index::{Index, Router, Triggers};
use crate::key::{Key, Kind};
use crate::lease::Election;
use crate::lease::replica::ReplicaLease;
use crate::listener::KnownHosts;
use crate::metrics::Metrics;
use crate::port::{PROBES, serve_port};
use crate::rpc;
use crate::rpc::plan_notifications::PlanNotifications;
use crate::rpc::registration_tokens::{DownloadTokens, RegistrationTokens};
use crate::rpc::sessions::SessionTable;
use crate::seed_iso::SeedIsos;
use crate::seed_iso::host_networks::HostNetworks;
use crate::shutdown::{Shutdown, unless_ended, wait_ended};
use crate::telemetry::chain;
use crate::tls::{Acceptor, TlsError};
use crate::traces::Traces;
use crate::watch::{ApiVersions, Cache, ChangeHandlers, Observer, start_watches};
use crate::workload::WorkloadClients;
use crate::write_limits::wait_until_limited;
use crate::{cluster_api, listener};

/// The pause after a failed first write of the replica's Lease.
const LEASE_RETRY: Duration = Duration::from_secs(2);

/// Longest wait at the end for Events that are not written yet.
const EVENT_FLUSH: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read or create the certificate authority")]
    Authority(#[from] CaError),
    #[error("cannot create the server certificate")]
    Tls(#[from] TlsError),
    #[error("cannot serve the metrics")]
    Diagnostics(#[from] DiagnosticsError),
    #[error("cannot use the cache directory")]
    Cache(#[from] BaseImageError),
    #[error("the times of the election are not in order: retry period < renew deadline < lease duration")]
    ElectionTimes,
    #[error("a task of the coordinator ended, a restart begins anew: {0}")]
    TaskEnded(String),
    #[error("Cluster API is served at {new} instead of {old}: a restart reads it at the new version")]
    VersionChanged { old: &'static str, new: &'static str },
}

/// The parts from which a coordinator is assembled.
#[derive(Clone)]
pub struct Setup {
    pub config: Config,
    pub client: Client,
    pub versions: ApiVersions,
    pub metrics: Metrics,
    pub traces: Traces,
    pub readiness: Readiness,
    pub clock: Clock,
    pub workloads: WorkloadClients,
}

/// A coordinator whose stores are filled, without ports and without leadership.
pub struct Parts {
    /// TLS of the port.
    pub acceptor: Acceptor,
    pub authority: Arc<Authority>,
    /// The routes of the port.
    pub routes: listener::Routes,
    /// The context for [`controllers::lead_controllers`].
    pub context: Context,
    pub sessions: Arc<SessionTable>,
    /// Identity of this process among its replicas.
    pub replica: String,
    /// The watches; they end when the set is dropped.
    pub tasks: JoinSet<()>,
}

/// Runs until `shutdown`.
pub async fn run_coordinator(
    config: Config,
    client: Client,
    (metrics, traces): (Metrics, Traces),
    shutdown: Shutdown,
) -> Result<(), RunError> {
    if !config.election.is_ordered() {
        return Err(RunError::ElectionTimes);
    }
    let port = bind_listener(config.listen).await?;
    let health_port = bind_listener(config.health_listen).await?;
    let diagnostics_port = bind_listener(config.diagnostics_address).await?;
    let conversion_port = match config.metal3 {
        Metal3::Full => Some(bind_listener(config.conversion_address).await?),
        Metal3::Off | Metal3::Hosts => None,
    };
    let readiness = Readiness::default();
    let mut others = JoinSet::new();
    others.spawn(serve_port(health_port, None, health::router(readiness.clone()), PROBES));
    let reviewer = (!config.insecure_diagnostics).then(|| client.clone());
    others.spawn(serve_diagnostics(diagnostics_port, metrics.clone(), reviewer)?);
    readiness.set_unready("Cluster API is not installed");
    let Some(version) = unless_ended(&shutdown, cluster_api::wait_for_version(&client)).await else {
        return Ok(());
    };
    let limited = wait_until_limited(&client, &config.own_namespace, &metrics, &readiness);
    if unless_ended(&shutdown, limited).await.is_none() {
        return Ok(());
    }
    let versions = cluster_api::at_version(version);
    let targets = config.workload_targets.clone().into_targets(&config.base_images.own_addresses);
    let (clock, workloads) = (Clock::system(), WorkloadClients::within(targets));
    let setup = Setup { config, client, versions, metrics, traces, readiness, clock, workloads };
    let Some(parts) = unless_ended(&shutdown, assemble_parts(&setup)).await else {
        return Ok(());
    };
    let mut parts = parts?;
    if let Some(port) = conversion_port {
        others.spawn(serve_conversions(&setup, &mut parts, port)?);
    }
    serve_tasks(setup, parts, (port, others), version, shutdown).await
}

/// Serves hosts at the port and takes part in the election until `shutdown`, until a task ends, also one of
/// `others`, or until Cluster API is served at another version.
async fn serve_tasks(
    setup: Setup,
    mut parts: Parts,
    (port, mut others): (TcpListener, JoinSet<()>),
    version: &'static str,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let lease = open_replica_lease(&setup, &parts);
    let Setup { config, client, clock, readiness, metrics, .. } = setup;
    let leases: Api<Lease> = Api::namespaced(client.clone(), &config.own_namespace);
    let (replica, isos) = (parts.replica.clone(), parts.context.isos.clone());
    if unless_ended(&shutdown, create_replica_lease(&lease)).await.is_none() {
        return Ok(());
    }
    let (stop, stopping) = watch::channel(false);
    let (election, leadership) = Election::new(leases, replica, clock, config.election);
    let mut tasks = JoinSet::new();
    tasks.spawn(election.run_election(stopping.clone()));
    if config.metal3 == Metal3::Full {
        let wanted = definitions::wanted_conversion(&config, &parts.authority);
        let kept = definitions::keep_definitions(client.clone(), metrics, wanted, leadership.clone());
        tasks.spawn(kept);
    }
    tasks.spawn(follow_leadership(parts.context.clone(), leadership));
    tasks.spawn(lease.keep_renewed(stopping.clone()));
    tasks.spawn(prepare_isos(isos, stopping.clone()));
    tasks.spawn(listener::run_listener(port, parts.acceptor, parts.routes, wait_ended(stopping.clone())));
    readiness.set_ready();
    tracing::info!(address = %config.listen, url = config.server_url, "serving hosts");
    let changed = tokio::select! {
        changed = unless_ended(&shutdown, cluster_api::wait_for_change(&client, version)) => Ok(changed),
        // Without one of its parts the process would serve hosts with old facts.
        Some(ended) = parts.tasks.join_next() => Err(ended),
        Some(ended) = tasks.join_next() => Err(ended),
        Some(ended) = others.join_next() => Err(ended),
    };
    readiness.set_unready("the coordinator stops");
    stop.send_replace(true);
    parts.sessions.close_all();
    while tasks.join_next().await.is_some() {}
    if !parts.context.events.flush(EVENT_FLUSH).await {
        tracing::warn!("the coordinator ends before all Events are written");
    }
    match changed {
        Ok(None) => Ok(()),
        Ok(Some(new)) => Err(RunError::VersionChanged { old: version, new }),
        Err(ended) => Err(describe_end(ended)),
    }
}

/// The webhook, whose certificate is renewed as long as the tasks of `parts` run.
fn serve_conversions(
    setup: &Setup,
    parts: &mut Parts,
    port: TcpListener,
) -> Result<impl Future<Output = ()> + Send + 'static, RunError> {
    let names = definitions::certificate_names(&setup.config);
    let acceptor = open_acceptor(setup, &parts.authority, names, &mut parts.tasks)?;
    Ok(serve_port(port, Some(acceptor.for_callers()), conversion::build_router(), conversion::CALLERS))
}

fn describe_end(ended: Result<(), JoinError>) -> RunError {
    RunError::TaskEnded(ended.map_or_else(|error| error.to_string(), |()| "it returned".to_owned()))
}

/// The Lease of this replica. While it cannot be renewed, hosts are sent to other replicas.
pub fn open_replica_lease(setup: &Setup, parts: &Parts) -> ReplicaLease {
    let leases = Api::namespaced(setup.client.clone(), &setup.config.own_namespace);
    let (isos, sessions) = (parts.context.isos.clone(), parts.sessions.clone());
    let readiness = setup.readiness.clone();
    ReplicaLease::new(leases, &setup.config.instance, parts.replica.clone(), setup.clock.clone())
        .with_bases(move || isos.announce_bases())
        .with_contact(move |has_contact| {
            sessions.set_isolated(!has_contact);
            if has_contact {
                readiness.set_ready();
            } else {
                readiness.set_unready("the Lease of this replica cannot be renewed");
            }
        })
}

/// Writes the Lease of the replica, because a session must not name a replica without a Lease.
async fn create_replica_lease(lease: &ReplicaLease) {
    while let Err(error) = lease.renew_lease().await {
        tracing::warn!(error = %chain(&error), "cannot write the Lease of this replica, retrying");
        tokio::time::sleep(LEASE_RETRY).await;
    }
}

/// Runs the controllers while this replica leads.
async fn follow_leadership(context: Context, mut leadership: watch::Receiver<bool>) {
    while leadership.wait_for(|leads| *leads).await.is_ok() {
        let mut changes = leadership.clone();
        let lost = async move {
            // The wait fails only if the election ended.
            let _ = changes.wait_for(|leads| !*leads).await;
        };
        context.metrics.set_leader(true);
        controllers::lead_controllers(context.clone(), lost).await;
        context.metrics.set_leader(false);
    }
}

/// Prepares the seed ISOs that this replica may be asked for.
async fn prepare_isos(isos: Arc<SeedIsos>, shutdown: Shutdown) {
    unless_ended(&shutdown, isos.keep_prepared()).await;
}

async fn bind_listener(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|source| RunError::Listen { address, source })
}

/// Starts the watches, waits until they have listed all kinds, and reads or creates the authority.
pub async fn assemble_parts(setup: &Setup) -> Result<Parts, RunError> {
    let Setup { config, client, metrics, clock, .. } = setup;
    let replica = name_replica(&config.instance);
    let replicas = ReplicaTracker::new(&replica, clock.clone());
    let (index, metal3, router) = (Index::default(), Metal3Index::default(), Router::default());
    let (notifications, tokens) = (Arc::<PlanNotifications>::default(), Arc::<RegistrationTokens>::default());
    let (downloads, known_hosts) = (Arc::<DownloadTokens>::default(), Arc::<KnownHosts>::default());
    let (seed_images, registrations) = (downloads.clone(), tokens.clone());
    let networks = Arc::<HostNetworks>::default();
    let handlers = ChangeHandlers {
        index: index.clone(),
        metal3: metal3.clone(),
        router: router.clone(),
        replicas: replicas.clone(),
        inventory_changes: follow_inventories(metrics, &notifications, &known_hosts, &networks),
        registration_changes: Arc::new(move |object, presence| registrations.apply_change(object, presence)),
        seed_image_changes: Arc::new(move |object, presence| seed_images.apply_change(object, presence)),
        workloads: setup.workloads.clone(),
        metrics: metrics.clone(),
    };
    let mut tasks = JoinSet::new();
    let events = Events::start(client.clone(), replica.clone(), clock.clone(), metrics.clone(), &mut tasks);
    let cache = fill_cache(setup, &handlers, &mut tasks).await?;
    tasks.spawn(publish_networks(networks.clone(), index.clone(), router.clone()));
    let authority = Arc::new(authority::obtain(setup, &cache).await?);
    let isos = open_isos(setup, &cache, (downloads, networks), &authority)?;
    let parties = (authority.clone(), &events);
    let rpc = build_rpc(setup, &cache, (notifications, tokens), parties, &replica, replicas.clone());
    tasks.spawn(rpc::host::end_lost_sessions(rpc.clone()));
    let context = Context {
        client: client.clone(),
        events,
        cache,
        index,
        metal3,
        metrics: metrics.clone(),
        traces: setup.traces.clone(),
        replicas,
        clock: clock.clone(),
        server_url: config.server_url.clone(),
        isos: isos.clone(),
        versions: setup.versions.clone(),
        backoffs: Backoffs::default(),
        pool_writes: Throttle::default(),
        interruptions: Interruptions::default(),
        workloads: setup.workloads.clone(),
        watch_filter: config.watch_filter.clone(),
        router,
    };
    Ok(Parts {
        acceptor: open_acceptor(setup, &authority, config.certificate_names(), &mut tasks)?,
        authority,
        routes: listener::build_router(&rpc, Some(isos))
            .with_admission(config.connections.clone(), known_hosts),
        context,
        sessions: rpc.sessions.clone(),
        replica,
        tasks,
    })
}

/// Starts the watches, and waits until they have listed everything. A watch that ends would never do so.
async fn fill_cache(
    setup: &Setup,
    handlers: &ChangeHandlers,
    tasks: &mut JoinSet<()>,
) -> Result<Cache, RunError> {
    let cache = start_watches(&setup.client, &setup.config, &setup.versions, handlers, tasks);
    setup.readiness.set_unready("the watches have not listed every kind yet");
    unless_task_ends(cache.wait_until_filled(), tasks).await?;
    Ok(cache)
}

/// Waits for what the tasks bring, as long as none of them ends.
async fn unless_task_ends(
    brought: impl Future<Output = ()>,
    tasks: &mut JoinSet<()>,
) -> Result<(), RunError> {
    tokio::select! {
        () = brought => Ok(()),
        Some(ended) = tasks.join_next() => Err(describe_end(ended)),
    }
}

/// Opens the acceptor, whose certificate is renewed as long as the tasks run.
fn open_acceptor(
    setup: &Setup,
    authority: &Arc<Authority>,
    names: Vec<String>,
    tasks: &mut JoinSet<()>,
) -> Result<Acceptor, RunError> {
    let clock = setup.clock.clone();
    let identity = authority.server(&names, clock.now())?;
    let acceptor = Acceptor::new(authority, identity, clock.clone())?;
    tasks.spawn(listener::renew_certificate(acceptor.clone(), authority.clone(), names, clock));
    Ok(acceptor)
}

/// A restarted container has the name of its pod again, so that a random suffix keeps its streams
/// apart from the former ones.
fn name_replica(instance: &str) -> String {
    let suffix = uuid::Uuid::new_v4().simple().to_string();
    format!("{instance}-{}", &suffix[..8])
}

fn follow_inventories(
    metrics: &Metrics,
    notifications: &Arc<PlanNotifications>,
    known_hosts: &Arc<KnownHosts>,
    networks: &Arc<HostNetworks>,
) -> Observer<MachineInventory> {
    let (metrics, notifications) = (metrics.clone(), notifications.clone());
    let (known_hosts, networks) = (known_hosts.clone(), networks.clone());
    Arc::new(move |inventory, presence| {
        metrics.record_host(inventory, presence);
        networks.apply_change(inventory, presence);
        known_hosts.apply_change(inventory, presence);
        notifications.apply_change(inventory, presence);
    })
}

/// Has seed images reconciled when the networks of single hosts change, because the images contain
/// them.
async fn publish_networks(networks: Arc<HostNetworks>, index: Index, router: Router) {
    let wake = |changed: &BTreeSet<(String, String)>| {
        for (namespace, name) in changed {
            let seed_images = index.seed_images_of(&Key::new(namespace.as_str(), name.as_str()));
            router.send_keys(Triggers::of(Kind::SeedImage, seed_images));
        }
    };
    wake(&networks.publish());
    match networks.publish_changes(wake).await {}
}

fn build_rpc(
    setup: &Setup,
    cache: &Cache,
    (notifications, tokens): (Arc<PlanNotifications>, Arc<RegistrationTokens>),
    (authority, events): (Arc<Authority>, &Events),
    replica: &str,
    replicas: ReplicaTracker,
) -> rpc::Context {
    let (inventories, registrations) = (cache.store(), cache.store());
    let caches = rpc::Caches { inventories, registrations, notifications, tokens };
    let life_of = Arc::new(move |replica: &str| replicas.life_of(replica));
    let replica = rpc::Replica { name: replica.to_owned(), life_of };
    let (client, metrics, clock) = (setup.client.clone(), setup.metrics.clone(), setup.clock.clone());
    let agent = read_agent(&setup.config, &authority);
    rpc::Context::new(client, caches, authority, (metrics, events.clone()), clock, replica)
        .with_agent(agent)
        .with_traces(setup.traces.clone())
}

/// Reads the agent for hosts. Without an agent the coordinator still carries out plans.
fn read_agent(config: &Config, authority: &Authority) -> Option<Arc<AgentFile>> {
    let read = AgentFile::read(config.agent_path.as_ref()?, authority);
    let read = read.inspect_err(|error| {
        tracing::warn!(error = chain(error), "cannot read the agent, hosts get none");
    });
    read.ok().map(Arc::new)
}

fn open_isos(
    setup: &Setup,
    cache: &Cache,
    (downloads, networks): (Arc<DownloadTokens>, Arc<HostNetworks>),
    authority: &Arc<Authority>,
) -> Result<Arc<SeedIsos>, RunError> {
    let Setup { config, client, clock, .. } = setup;
    let bases = BaseImages::new(config.cache_directory.clone(), config.base_images.clone())?;
    let bases = bases.with_secrets(client.clone());
    let bases = match config.agent_path.as_deref().and_then(read_platform) {
        Some(hosts) => bases.for_hosts(hosts),
        None => bases,
    };
    let (seed_images, registrations) = (cache.store(), cache.store());
    let bases = (bases, config.agent_path.clone());
    let isos = SeedIsos::new(bases, (seed_images, downloads), registrations, authority.clone());
    Ok(Arc::new(isos.with_networks(networks).with_clock(clock.clone())))
}

#[cfg(test)]
mod tests;
