//! Live replicas, by the Leases that they renew.
//!
//! Only changes of a Lease count, on the monotonic clock of this process, because the clocks of
//! other nodes are never compared. While the own Lease is not seen to change either, the watch
//! gives no events, and no replica is declared dead.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coordinator_api::names::annotation;
use coordinator_core::seed_image::ReplicaBases;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Index, Router, Triggers};
use crate::clock::Clock;
use crate::key::{Kind, Presence};
use crate::lease::{read_lifetime, replica};

/// The interval between two searches for expired Leases.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Determines whether a replica is alive. Clones are the same one.
#[derive(Clone, Debug)]
pub struct ReplicaTracker {
    own: Arc<str>,
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Leases by name.
    leases: HashMap<String, Observed>,
    /// Replicas that were found dead.
    dead: HashMap<String, Death>,
    /// The time when observation began, or began again after an interruption.
    observing_since: Instant,
}

/// A Lease at its last change.
#[derive(Clone, Debug)]
struct Observed {
    holder: String,
    spec: LeaseSpec,
    /// Digests of the announced base ISOs.
    bases: BTreeSet<String>,
    expires: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Death {
    since: Instant,
    is_announced: bool,
}

impl ReplicaTracker {
    /// `own` is the identity of this process.
    pub fn new(own: &str, clock: Clock) -> Self {
        let state = State { leases: HashMap::new(), dead: HashMap::new(), observing_since: Instant::now() };
        Self { own: own.into(), clock, state: Arc::new(Mutex::new(state)) }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of a Lease, and gives the replicas that died.
    pub(crate) fn observe_lease(&self, lease: &Lease, presence: Presence) -> Vec<String> {
        let now = Instant::now();
        let mut state = self.lock_state();
        let old = state.leases.get(&lease.name_any()).cloned();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().filter(|_| presence == Presence::Exists);
        let holder = holder.unwrap_or_default();
        if old.as_ref().is_some_and(|old| old.spec == spec && presence == Presence::Exists) {
            return vec![];
        }
        if holder == *self.own && old.as_ref().is_none_or(|old| old.expires <= now) {
            state.observing_since = now;
        }
        if holder.is_empty() {
            state.leases.remove(&lease.name_any());
        } else {
            state.dead.remove(&holder);
            let expires = now + read_lifetime(&spec, replica::DURATION);
            let observed = Observed { holder: holder.clone(), spec, bases: read_bases(lease), expires };
            state.leases.insert(lease.name_any(), observed);
        }
        let replaced = old.filter(|old| old.holder != holder);
        if let Some(old) = &replaced {
            state.dead.insert(old.holder.clone(), Death { since: now, is_announced: true });
        }
        replaced.map(|old| old.holder).into_iter().collect()
    }

    /// The time since which a replica is dead; `None` while it is alive, or while nothing can be
    /// known. A replica without a Lease is dead since this was noticed.
    pub fn died_at(&self, replica: &str) -> Option<Timestamp> {
        let now = Instant::now();
        let mut state = self.lock_state();
        state.find_expired(now);
        if replica == &*self.own || !state.is_observing(&self.own, now) {
            return None;
        }
        if state.leases.values().any(|lease| lease.holder == replica && lease.expires > now) {
            return None;
        }
        let death = Death { since: now, is_announced: true };
        let death = *state.dead.entry(replica.to_owned()).or_insert(death);
        let elapsed = now - death.since.max(state.observing_since);
        Some(self.clock.now().saturating_sub(elapsed).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// The base ISOs that the other live replicas announce. While nothing can be known, no replica
    /// is dead.
    pub fn list_others(&self) -> Vec<ReplicaBases> {
        let now = Instant::now();
        let state = self.lock_state();
        let is_observing = state.is_observing(&self.own, now);
        let is_other = |lease: &Observed| lease.holder != *self.own && (lease.expires > now || !is_observing);
        let others = state.leases.iter().filter(|(_, lease)| is_other(lease));
        others
            .map(|(name, lease)| {
                let replica = replica::instance_of(name).to_owned();
                ReplicaBases { replica, digests: lease.bases.clone() }
            })
            .collect()
    }

    /// The replicas whose Leases have expired since the last call.
    fn take_expired(&self) -> Vec<String> {
        let now = Instant::now();
        let mut state = self.lock_state();
        state.find_expired(now);
        if !state.is_observing(&self.own, now) {
            return vec![];
        }
        let expired = state.dead.iter_mut().filter(|(_, death)| !death.is_announced);
        expired
            .map(|(replica, death)| {
                death.is_announced = true;
                replica.clone()
            })
            .collect()
    }

    /// Triggers the hosts of every replica that fails; never returns.
    pub async fn watch_expiry(self, index: Index, router: Router) {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for replica in self.take_expired() {
                let hosts = index.hosts_by_replica(&replica);
                log_death(&replica, hosts.len());
                router.send_keys(Triggers::of(Kind::MachineInventory, hosts));
            }
        }
    }
}

impl State {
    /// Tells whether the own Lease is seen to be renewed.
    fn is_observing(&self, own: &str, now: Instant) -> bool {
        self.leases.values().any(|lease| lease.holder == own && lease.expires > now)
    }

    /// Moves expired Leases to the dead; a Lease that is renewed comes back.
    fn find_expired(&mut self, now: Instant) {
        for lease in self.leases.values().filter(|lease| lease.expires <= now) {
            let death = Death { since: lease.expires, is_announced: false };
            self.dead.entry(lease.holder.clone()).or_insert(death);
        }
    }
}

fn read_bases(lease: &Lease) -> BTreeSet<String> {
    let announced = lease.annotations().get(annotation::BASE_ISOS);
    let digests = announced.into_iter().flat_map(|announced| announced.split(','));
    digests.filter(|digest| !digest.is_empty()).map(str::to_owned).collect()
}

fn log_death(replica: &str, hosts: usize) {
    tracing::warn!(
        replica,
        hosts,
        "the Lease of a replica expired; its hosts have the grace to attach to another one"
    );
}

#[cfg(test)]
mod tests;
