//! [`World`]: API server, coordinators, hosts and virtual time of one scenario.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agent::plan::executor::{CustomInstructions, Policy};
use coordinator_api::machine::Phase;
use fake_apiserver::{Counts, Entry, FakeApi, GarbageCollection, Kind, Matching, Rules, Side, Stopped, Verb};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use tokio::time::Instant;
use tracing::subscriber::DefaultGuard;

use crate::coordinator::{CAPI, FrontDoors, Process, Site};
use crate::history::{History, Violation, WrittenPlan};
use crate::host::Host;
use crate::host_effects::Disks;
use crate::log::Log;
use crate::network::Network;

/// How long anything may take, in virtual time.
pub const DEADLINE: Duration = Duration::from_mins(20);
/// Pause between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The only coordinator of most scenarios.
pub(crate) const COORDINATOR: &str = "coordinator";

/// What is applied in addition for `BareMetalHost` alone.
const HOST_RIGHTS: &str = concat!("\n---\n", include_str!("../../../coordinator/config/metal3/hosts.yaml"));
/// What is applied in addition for the Metal3 kinds.
const METAL3_RIGHTS: &str = concat!(
    "\n---\n",
    include_str!("../../../coordinator/config/metal3/rbac.yaml"),
    "---\n",
    include_str!("../../../coordinator/config/metal3/all-namespaces.yaml")
);

/// One scenario: API server, coordinators and hosts.
pub struct World {
    /// The API server.
    pub fake: FakeApi,
    /// That of the workload cluster.
    pub workload: FakeApi,
    pub(crate) operator: Client,
    pub(crate) hosts: BTreeMap<String, Host>,
    coordinators: Mutex<BTreeMap<String, Process>>,
    stops: Mutex<Vec<Stopped>>,
    rules: Rules,
    site: Site,
    finds_nodes: AtomicBool,
    network: Network,
    /// Whether the agents of hosts that boot from now on run plans of operators.
    pub allows_custom_plans: bool,
    directory: tempfile::TempDir,
    history: History,
    log: Log,
    _caught: DefaultGuard,
}

impl World {
    /// An API server and one coordinator.
    pub async fn new() -> Self {
        let world = Self::without_coordinator();
        world.start_coordinator(COORDINATOR);
        world.wait_idle().await;
        world
    }

    /// An API server with all kinds, and no coordinator.
    #[must_use]
    pub fn without_coordinator() -> Self {
        Self::serving(FrontDoors::Baremetal)
    }

    /// As [`World::new`], and coordinators also serve the Metal3 kinds.
    pub async fn with_metal3() -> Self {
        let world = Self::serving(FrontDoors::WithMetal3);
        world.start_coordinator(COORDINATOR);
        world.wait_idle().await;
        world
    }

    /// As [`World::new`], and coordinators also serve `BareMetalHost`.
    pub async fn with_bare_metal_hosts() -> Self {
        let world = Self::serving(FrontDoors::WithBareMetalHosts);
        world.start_coordinator(COORDINATOR);
        world.wait_idle().await;
        world
    }

    /// The same where the baremetal-operator's own definition of the kind is installed.
    pub async fn with_foreign_hosts(definition: &CustomResourceDefinition) -> Self {
        let world = Self::serving(FrontDoors::WithBareMetalHosts);
        world.fake.register_crd(definition);
        world.start_coordinator(COORDINATOR);
        world.wait_idle().await;
        world
    }

    fn serving(front_doors: FrontDoors) -> Self {
        let log = Log::default();
        let caught = log.catch();
        let fake = FakeApi::new();
        for crd in coordinator_api::crds::all() {
            fake.register_crd(&crd);
        }
        if matches!(front_doors, FrontDoors::WithMetal3 | FrontDoors::WithBareMetalHosts) {
            for crd in coordinator_api::metal3::crds() {
                fake.register_crd(&crd);
            }
        }
        for (group, kind, plural) in [
            ("cluster.x-k8s.io", "Machine", "machines"),
            ("cluster.x-k8s.io", "Cluster", "clusters"),
            ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "kubeadmcontrolplanes"),
            ("ipam.cluster.x-k8s.io", "IPAddressClaim", "ipaddressclaims"),
            ("ipam.cluster.x-k8s.io", "IPAddress", "ipaddresses"),
        ] {
            fake.register(Kind::namespaced(group, CAPI, kind, plural).with_status());
        }
        fake.garbage_collection(GarbageCollection::Immediate);
        let memory = Path::new("/dev/shm");
        // Every write of an agent is flushed: on a disk that is all the time there is.
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.unwrap();
        let network = Network::default();
        let site = Site::new(fake.clone(), network.clone(), directory.path(), front_doors);
        let history = History::of_hosts(Disks { directory: directory.path().to_owned() });
        let noted = history.clone();
        fake.observe(move |(resource, _, name), now| noted.observe(resource, name, now));
        // The coordinators may do what is installed with them, and no more.
        let rights = concat!(
            include_str!("../../../coordinator/config/rbac.yaml"),
            "---\n",
            include_str!("../../../coordinator/config/all-namespaces.yaml")
        );
        let mut rights = rights.to_owned();
        if front_doors == FrontDoors::WithMetal3 {
            rights.push_str(METAL3_RIGHTS);
        }
        if front_doors == FrontDoors::WithBareMetalHosts {
            rights.push_str(HOST_RIGHTS);
        }
        let rules = Rules::of_service_account(&rights, "baremetal-system", "baremetal-coordinator").unwrap();
        Self {
            operator: fake.client("operator"),
            fake,
            hosts: BTreeMap::new(),
            coordinators: Mutex::default(),
            stops: Mutex::default(),
            rules,
            workload: site.workload.clone(),
            site,
            finds_nodes: AtomicBool::new(true),
            network,
            allows_custom_plans: false,
            directory,
            history,
            log,
            _caught: caught,
        }
    }

    /// One more coordinator; the user of its requests has its name.
    pub fn start_coordinator(&self, name: &str) {
        self.fake.authorize(name, self.rules.clone());
        let process = self.site.start(name);
        self.coordinators.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), process);
    }

    /// kill -9.
    pub fn kill_coordinator(&self, name: &str) {
        let process = self.coordinators.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        drop(process);
    }

    /// kill -9 and a start.
    pub fn restart_coordinator(&self) {
        self.kill_coordinator(COORDINATOR);
        self.start_coordinator(COORDINATOR);
    }

    /// The coordinator is started again with this agent for its hosts.
    pub fn serve_agent(&mut self, file: &[u8]) {
        let path = self.directory.path().join("agent");
        std::fs::write(&path, file).unwrap();
        self.site.config.agent_path = Some(path);
        self.restart_coordinator();
    }

    /// The coordinator is killed at its `write`th write from now, counted from 1,
    /// and is started again.
    pub fn stop_coordinator_at(&self, write: usize, side: Side) {
        let stopped = self.fake.faults().stop(COORDINATOR, Matching::writes(), write, side);
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).push(stopped);
    }

    /// Whether every planned stop was reached.
    #[must_use]
    pub fn all_stops_reached(&self) -> bool {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Stopped::is_reached)
    }

    /// Restarts a coordinator that was stopped as planned.
    fn restart_stopped(&self) {
        let died = {
            let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
            let planned = stops.len();
            stops.retain(|stop| !stop.is_reached());
            stops.len() < planned
        };
        if died {
            self.restart_coordinator();
        }
    }

    /// Boots a host from the seed ISO of a registration.
    pub fn boot_host(&mut self, name: &str, registration: &str) {
        let seed = self.seed_config(registration);
        let policy =
            if self.allows_custom_plans { CustomInstructions::Allow } else { CustomInstructions::Refuse };
        let mut host = Host::new(name, self.directory.path(), &self.network, Policy { custom: policy });
        host.insert(&seed);
        host.power_on();
        self.hosts.insert(name.to_owned(), host);
    }

    /// Registers hosts and waits until their installed systems are attached.
    pub async fn register_hosts(&mut self, names: &[&str]) {
        for name in names {
            self.boot_host(name, "hosts");
        }
        for name in names {
            self.wait_until(&format!("{name} is available"), |world| world.is_available(name)).await;
        }
    }

    /// A world with hosts, a pool of them, a catalog and a cluster.
    pub async fn with_hosts(names: &[&str]) -> Self {
        let mut world = Self::new().await;
        world.create_prerequisites(names).await;
        world
    }

    /// Creates what a machine needs: hosts, catalog, cluster and pool.
    pub async fn create_prerequisites(&mut self, names: &[&str]) {
        self.apply_registration().await;
        self.register_hosts(names).await;
        self.apply_catalog().await;
        self.apply_cluster("c1").await;
        self.apply_pool("pool", names).await;
    }

    /// A host.
    #[must_use]
    pub fn host(&self, name: &str) -> &Host {
        &self.hosts[name]
    }

    /// A host, to power on and off.
    pub fn host_mut(&mut self, name: &str) -> &mut Host {
        self.hosts.get_mut(name).unwrap()
    }

    /// Waits until `holds`.
    pub async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !holds(self) {
            self.find_nodes();
            self.restart_stopped();
            assert!(Instant::now() < end, "never: {what}\n{}", self.dump());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a machine runs.
    pub async fn wait_running(&self, machine: &str) {
        self.wait_until(&format!("{machine} runs"), |world| world.phase(machine) == Some(Phase::Running))
            .await;
    }

    /// Waits until a machine is deleted and its host is available.
    pub async fn wait_released(&self, machine: &str, host: &str) {
        self.wait_until(&format!("{machine} is gone"), |world| world.machine(machine).is_none()).await;
        self.finish_deletions();
        self.wait_until(&format!("{host} is available"), |world| world.is_available(host)).await;
    }

    /// Cluster API finds no Node from now on.
    pub fn stop_finding_nodes(&self) {
        self.finds_nodes.store(false, Ordering::SeqCst);
    }

    /// Cluster API finds the Node of each machine that is provisioned.
    pub(crate) fn find_nodes(&self) {
        if self.finds_nodes.load(Ordering::SeqCst) {
            self.refer_to_nodes();
        }
    }

    /// The virtual time, as coordinators see it.
    pub(crate) fn now(&self) -> Timestamp {
        self.site.clock.now()
    }

    /// Advances the virtual time.
    pub async fn advance_time(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until no coordinator sends a request for ten seconds.
    pub async fn wait_idle(&self) {
        loop {
            self.find_nodes();
            let mark = self.fake.journal().mark();
            self.advance_time(Duration::from_secs(10)).await;
            if self.requests_since(mark).is_empty() {
                return;
            }
        }
    }

    /// Requests of coordinators since `mark`, without Leases and watches.
    #[must_use]
    pub fn requests_since(&self, mark: usize) -> Vec<Entry> {
        let is_ours = |entry: &Entry| entry.request.user != "operator";
        // Every replica renews its Lease.
        let is_lease = |entry: &Entry| entry.request.resource.starts_with("leases");
        let mut entries = self.fake.journal().since(mark);
        entries.retain(|entry| is_ours(entry) && !is_lease(entry) && entry.request.verb != Verb::Watch);
        entries
    }

    /// As [`World::requests_since`], counted.
    #[must_use]
    pub fn count_requests(&self, mark: usize) -> Counts {
        Counts::of(&self.requests_since(mark))
    }

    /// Violations of the invariants so far.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.history.violations()
    }

    /// Every plan that was ever written.
    #[must_use]
    pub fn plans(&self) -> Vec<WrittenPlan> {
        self.history.written()
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Asserts that the invariants held at all times, that hosts did what their plans say and no
    /// more, and that no secret is in public text.
    pub async fn check_invariants(self) {
        self.advance_time(Duration::from_secs(30)).await;
        self.finish_deletions();
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}\n{}", self.dump());
        let wrong: Vec<_> = self.hosts.keys().flat_map(|host| self.history.judge_host(host)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", self.dump());
        let public = self.public_text();
        let shown: Vec<_> = public.lines().filter(|line| line.contains(crate::BOOTSTRAP_CANARY)).collect();
        assert!(shown.is_empty(), "a secret was shown: {shown:#?}");
    }
}
