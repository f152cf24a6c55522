//! The calls of hosts. Handlers translate and store; every decision is a pure function of
//! `coordinator-core`.

mod attestation;
mod failure;
pub mod host;
mod host_token;
pub mod identity;
pub mod plan_notifications;
mod rate_limits;
mod refresh;
mod registered_hosts;
pub mod registration;
pub mod registration_tokens;
mod rejections;
mod running_plans;
pub mod sessions;
mod step_times;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::{MachineInventory, MachineInventoryStatus};
use coordinator_api::names::annotation;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::host::HostRecord;
use coordinator_core::host::certified::{record_key, refuses_key};
use coordinator_core::host::identity::KnownIdentity;
use coordinator_core::inventory::shut_out;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt as _};
use proto::refusal::Refusal;
use tokio::time::Instant;

use crate::agent_file::AgentFile;
use crate::ca::{Authority, HostKey, Peer};
use crate::clock::Clock;
use crate::events::Events;
use crate::lease::replica::ReplicaLife;
use crate::metrics::Metrics;
use crate::store;
use crate::traces::Traces;
use identity::Call;
use plan_notifications::{PlanNotifications, host_key};
use rate_limits::RateLimits;
use registration_tokens::RegistrationTokens;
use running_plans::RunningPlans;
use sessions::SessionTable;
use step_times::StepTimes;

pub use failure::RpcError;
pub(crate) use rate_limits::{Buckets, Rate};
pub use rejections::Rejections;
#[cfg(test)]
pub(crate) use rejections::log;

/// Interval of pings on an idle connection.
pub const KEEPALIVE: Duration = Duration::from_secs(20);
/// The connection is closed if a ping has no answer for this time.
pub const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);

/// Tells by its Lease if a replica of the coordinator is alive.
pub type FindReplicaLife = Arc<dyn Fn(&str) -> ReplicaLife + Send + Sync>;

/// Times of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionTiming {
    /// A new boot waits for this time for the end of another boot's session. The time is longer than a
    /// dead connection stays open.
    pub probe: Duration,
    /// The end of a stream is recorded after this time, unless the host is back.
    pub end_delay: Duration,
    /// A stream whose inventory was deleted waits for this time for a recreation.
    pub deletion_grace: Duration,
    /// A step is recorded if it runs for this time.
    pub step_delay: Duration,
    /// Shortest interval between two records of the running step of a host.
    pub step_interval: Duration,
}

impl Default for SessionTiming {
    fn default() -> Self {
        Self {
            probe: sessions::PROBE,
            end_delay: Duration::from_secs(10),
            deletion_grace: Duration::from_secs(30),
            step_delay: Duration::from_secs(10),
            step_interval: Duration::from_mins(1),
        }
    }
}

/// The caches and indexes that handlers read.
#[derive(Clone)]
pub struct Caches {
    pub inventories: Store<MachineInventory>,
    pub registrations: Store<MachineRegistration>,
    /// Updated by every event of the watcher behind `inventories`.
    pub notifications: Arc<PlanNotifications>,
    /// Updated by every event of the watcher behind `registrations`.
    pub tokens: Arc<RegistrationTokens>,
}

/// This process, among its replicas.
#[derive(Clone)]
pub struct Replica {
    /// Unique among all processes.
    pub name: String,
    pub life_of: FindReplicaLife,
}

impl fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Replica({})", self.name)
    }
}

/// The context of every handler.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub caches: Caches,
    pub authority: Arc<Authority>,
    pub clock: Clock,
    pub replica: Replica,
    pub timing: SessionTiming,
    /// Streams of this replica.
    pub sessions: Arc<SessionTable>,
    events: Events,
    /// Counts and reports rejected hosts, also those of the listener.
    pub rejections: Arc<Rejections>,
    running_plans: Arc<RunningPlans>,
    metrics: Metrics,
    traces: Traces,
    step_times: Arc<StepTimes>,
    rate_limits: Arc<RateLimits>,
    agent: host::ServedAgent,
    /// Turns of registrations whose places are reserved, and the rates of their new hosts.
    admissions: Arc<registration::Admissions>,
}

impl Context {
    /// A context without streams.
    pub fn new(
        client: Client,
        caches: Caches,
        authority: Arc<Authority>,
        (metrics, events): (Metrics, Events),
        clock: Clock,
        replica: Replica,
    ) -> Self {
        let rejections = Arc::new(Rejections::new(client.clone(), metrics.clone(), events.clone()));
        Self {
            client,
            caches,
            authority,
            clock,
            replica,
            timing: SessionTiming::default(),
            sessions: Arc::new(SessionTable::counted_in(metrics.clone())),
            events,
            rejections,
            running_plans: Arc::default(),
            metrics,
            traces: Traces::default(),
            step_times: Arc::default(),
            rate_limits: Arc::default(),
            agent: host::ServedAgent::default(),
            admissions: Arc::default(),
        }
    }

    /// Adds the agent that hosts get if an operator asks for it.
    pub fn with_agent(mut self, agent: Option<Arc<AgentFile>>) -> Self {
        self.agent = host::ServedAgent::of_file(agent);
        self
    }

    pub fn with_traces(mut self, traces: Traces) -> Self {
        self.traces = traces;
        self
    }

    fn inventory_api(&self, namespace: &str) -> Api<MachineInventory> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn secret_api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The inventory with that identity, from the caches.
    fn cached_inventory(&self, key: &HostKey) -> Option<Arc<MachineInventory>> {
        let name = self.caches.notifications.find_name(key)?;
        let cached = self.caches.inventories.get(&ObjectRef::new(&name).within(&key.namespace))?;
        (host_key(&cached).as_ref() == Some(key)).then_some(cached)
    }

    /// The registration from the caches, or `registration` itself if they lack it.
    fn latest_registration(&self, registration: &MachineRegistration) -> Arc<MachineRegistration> {
        let cached = self.caches.registrations.get(&ObjectRef::from_obj(registration));
        cached.unwrap_or_else(|| Arc::new(registration.clone()))
    }

    /// The inventory of that key, if only one namespace has one.
    fn find_known(&self, tpm_hash: &str) -> Option<Arc<MachineInventory>> {
        self.cached_inventory(&self.caches.notifications.find_only_key(tpm_hash)?)
    }

    /// The inventory with the identity of a host, even if its name and UID have changed. If the caches
    /// lack the inventory, it is read by the name in the certificate, because a host can be faster than
    /// the watch.
    async fn find_inventory(&self, peer: &Peer) -> Result<Arc<MachineInventory>, RpcError> {
        match self.cached_inventory(&peer.key) {
            Some(cached) => self.refuse_former_key(peer, refuse_barred(cached)?),
            None => self.read_inventory(peer).await,
        }
    }

    /// The inventory of a host, from the API server.
    async fn read_inventory(&self, peer: &Peer) -> Result<Arc<MachineInventory>, RpcError> {
        self.refuse_former_key(
            peer,
            refuse_barred(self.read_any_inventory(&peer.key, &peer.name_hint).await?)?,
        )
    }

    /// Refuses a certificate whose key was replaced.
    fn refuse_former_key(
        &self,
        peer: &Peer,
        inventory: Arc<MachineInventory>,
    ) -> Result<Arc<MachineInventory>, RpcError> {
        let known = KnownIdentity::of(&inventory).certified_key;
        let taken = inventory.annotations().get(annotation::REPLACED_KEY);
        if refuses_key(known.as_ref(), taken.map(String::as_str), peer.shown_key()) {
            return Err(self.refuse_key_of(peer, &inventory));
        }
        Ok(inventory)
    }

    /// Shows the operator that a former key of the host was used, and returns the refusal.
    fn refuse_key_of(&self, peer: &Peer, inventory: &MachineInventory) -> RpcError {
        let error = refuse_key(&peer.public_key_hash);
        self.show_host_refusal(inventory, &error);
        error
    }

    /// Shows the operator that a call of the host was refused.
    fn show_host_refusal(&self, inventory: &MachineInventory, error: &RpcError) {
        if let RpcError::Refused { refusal, detail, next_action } = error {
            self.rejections.show_host_refusal(inventory, *refusal, (detail, next_action));
        }
    }

    /// Like [`Self::read_inventory`], also for a host that is quarantined or not approved. `name` is
    /// read if the caches know no name of the host.
    async fn read_any_inventory(&self, key: &HostKey, name: &str) -> Result<Arc<MachineInventory>, RpcError> {
        let known = self.caches.notifications.find_name(key);
        let api = self.inventory_api(&key.namespace);
        let name = known.as_deref().unwrap_or(name);
        Ok(Arc::new(store::host::read(&api, name, Some(&key.tpm_hash)).await?))
    }

    /// Changes the stored facts of a host, without a request if nothing differs.
    async fn update_status(
        &self,
        inventory: Arc<MachineInventory>,
        change: impl Fn(&mut MachineInventoryStatus),
    ) -> Result<Arc<MachineInventory>, RpcError> {
        Ok(store::host::update_status(&self.client, inventory, self.clock.now(), change).await?)
    }

    /// Like [`Self::update_status`], for what the installed system of this certificate did: it replaces
    /// the keys before its own.
    async fn update_host(
        &self,
        peer: &Peer,
        inventory: Arc<MachineInventory>,
        change: impl Fn(&mut MachineInventoryStatus),
    ) -> Result<Arc<MachineInventory>, RpcError> {
        let change = |status: &mut MachineInventoryStatus| {
            change(status);
            record_key(status, peer.shown_key());
        };
        self.update_status(inventory, change).await
    }

    /// Converts a result for the host, and counts a refusal and a call above the rate of the host.
    fn to_status<T>(&self, result: Result<T, RpcError>) -> Result<T, tonic::Status> {
        result.map_err(|error| {
            if let RpcError::Refused { refusal, detail, next_action } = &error {
                self.rejections.record_rejection(*refusal, detail, next_action);
            } else if matches!(error, RpcError::RateLimited) {
                self.rejections.record_limited_call();
            }
            error.into()
        })
    }

    /// Takes the token of a call from the rate of its host.
    fn take_token(&self, host: &HostKey, call: Call) -> Result<(), RpcError> {
        let is_taken = self.rate_limits.take_token(host, call, Instant::now());
        if is_taken { Ok(()) } else { Err(RpcError::RateLimited) }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn describe_inventory(name: &str) -> String {
    format!("the inventory is {name}")
}

/// Refuses a key, which is named by its SHA-256.
fn refuse_key(hash: &str) -> RpcError {
    RpcError::from_refusal(Refusal::KeyReplaced, format!("the key is {hash}"))
}

fn refuse_barred(inventory: Arc<MachineInventory>) -> Result<Arc<MachineInventory>, RpcError> {
    let refusal = HostRecord::parse(&inventory).and_then(|record| record.refusal());
    refuse_inventory(inventory, refusal)
}

/// Like [`refuse_barred`], but accepts a host that waits for approval, because such a host may
/// register.
fn refuse_shut_out(inventory: Arc<MachineInventory>) -> Result<Arc<MachineInventory>, RpcError> {
    let refusal = shut_out(&inventory);
    refuse_inventory(inventory, refusal)
}

fn refuse_inventory(
    inventory: Arc<MachineInventory>,
    refusal: Option<Refusal>,
) -> Result<Arc<MachineInventory>, RpcError> {
    match refusal {
        Some(refusal) => Err(RpcError::from_refusal(refusal, describe_inventory(&inventory.name_any()))),
        None => Ok(inventory),
    }
}

#[cfg(test)]
mod tests;
