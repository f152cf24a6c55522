//! [`World`]: API server, coordinators, hosts and virtual time of one scenario.

mod build;
mod coordinators;
mod invariants;
mod waits;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::plan::executor::{CustomInstructions, Policy};
use fake_apiserver::{Counts, Entry, FakeApi, Rules, Stopped, Verb};
use jiff::Timestamp;
use kube::Client;
use serde_json::json;
use tokio::time::Instant;
use tracing::subscriber::DefaultGuard;

use crate::coordinator::{Process, Site};
use crate::fault_injection::{Fault, Side};
use crate::history::{History, Violation, WrittenPlan};
use crate::host::Host;
use crate::log::Log;
use crate::network::Network;
use crate::token_search::TokenSearch;

pub use build::MEMORY;

/// How long anything may take, in virtual time.
pub const DEADLINE: Duration = Duration::from_mins(20);
/// Pause between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The only coordinator of most scenarios.
pub(crate) const COORDINATOR: &str = "coordinator";

/// One scenario: API server, coordinators and hosts.
pub struct World {
    pub fake: FakeApi,
    /// That of the workload cluster.
    pub workload: FakeApi,
    /// The version at which Cluster API is served.
    pub(crate) cluster_api: &'static str,
    pub(crate) operator: Client,
    pub(crate) hosts: BTreeMap<String, Host>,
    coordinators: Mutex<BTreeMap<String, Process>>,
    stops: Mutex<Vec<Stopped>>,
    rules: Rules,
    site: Site,
    finds_nodes: AtomicBool,
    network: Network,
    tokens: TokenSearch,
    /// Whether the agents of hosts that boot from now on run plans of operators.
    pub allows_custom_plans: bool,
    /// Of the host that boots next.
    planned_fault: Option<(usize, Side, Fault)>,
    directory: tempfile::TempDir,
    history: History,
    /// What machines showed while they ran.
    pub(crate) ran: Mutex<Vec<String>>,
    is_checked: bool,
    /// A planned fault may find no request.
    allows_unmet_faults: bool,
    log: Log,
    _caught: DefaultGuard,
}

impl World {
    /// Boots an installed host from the seed ISO of a registration again.
    pub fn boot_iso(&mut self, name: &str, registration: &str) {
        let seed = self.seed_config(registration);
        self.host_mut(name).power_off();
        self.host(name).insert(&seed);
        self.host_mut(name).power_on();
    }

    /// Boots a host from the seed ISO of a registration.
    pub fn boot_host(&mut self, name: &str, registration: &str) {
        let seed = self.seed_config(registration);
        let policy =
            if self.allows_custom_plans { CustomInstructions::Allow } else { CustomInstructions::Refuse };
        let around = (&self.network, &self.tokens);
        let mut host = Host::new(name, self.directory.path(), around, Policy { custom: policy });
        if let Some((call, side, fault)) = self.planned_fault.take() {
            host.inject_fault(call, side, fault);
        }
        host.insert(&seed);
        host.power_on();
        self.hosts.insert(name.to_owned(), host);
    }

    /// The host that boots next meets a fault at the `call`th call into its operating system,
    /// counted from 1.
    pub fn plan_fault(&mut self, call: usize, side: Side, fault: Fault) {
        self.planned_fault = Some((call, side, fault));
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

    /// As [`World::with_hosts`] with one host, which may hold the address of the cluster's endpoint.
    pub async fn with_internal_endpoint() -> Self {
        let mut world = Self::new().await;
        world.apply_registration().await;
        world.register_hosts(&["host-1"]).await;
        world.apply_catalog().await;
        let balancer = json!({ "type": "Internal", "host": "10.9.0.100", "port": 6443, "vrid": 9 });
        world.apply_cluster_of("c1", json!({ "controlPlaneLoadBalancer": balancer })).await;
        world.set_infrastructure_provisioned("c1", true);
        world.apply_pool("pool", &["host-1"]).await;
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

    pub fn host(&self, name: &str) -> &Host {
        &self.hosts[name]
    }

    /// A host, to power on and off.
    pub fn host_mut(&mut self, name: &str) -> &mut Host {
        self.hosts.get_mut(name).unwrap()
    }

    /// A host and the coordinators lose each other for a time.
    pub async fn partition(&self, host: &str, time: Duration) {
        self.network.partition(host);
        self.advance_time(time).await;
        self.network.heal(host);
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
    pub fn now(&self) -> Timestamp {
        self.site.clock.now()
    }

    /// Advances the virtual time. Meanwhile a coordinator that was stopped as planned starts again.
    pub async fn advance_time(&self, time: Duration) {
        let end = Instant::now() + time;
        while self.has_planned_stops() && Instant::now() < end {
            self.restart_stopped();
            tokio::time::sleep(POLL_INTERVAL.min(end - Instant::now())).await;
        }
        tokio::time::sleep_until(end).await;
    }

    /// Requests of coordinators since `mark`, without Leases and watches.
    pub fn requests_since(&self, mark: usize) -> Vec<Entry> {
        let is_ours = |entry: &Entry| entry.request.user != "operator";
        // Every replica renews its Lease.
        let is_lease = |entry: &Entry| entry.request.resource.starts_with("leases");
        let mut entries = self.fake.journal().since(mark);
        entries.retain(|entry| is_ours(entry) && !is_lease(entry) && entry.request.verb != Verb::Watch);
        entries
    }

    /// As [`World::requests_since`], counted.
    pub fn count_requests(&self, mark: usize) -> Counts {
        Counts::of(&self.requests_since(mark))
    }

    /// Violations of the invariants so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.history.violations()
    }

    /// Every plan that was ever written.
    pub fn plans(&self) -> Vec<WrittenPlan> {
        self.history.written()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.text()
    }
}
