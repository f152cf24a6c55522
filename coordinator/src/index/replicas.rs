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
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Index, Router, Triggers};
use crate::clock::Clock;
use crate::key::{Kind, Namespace, Presence};
use crate::lease::read_lifetime;
use crate::lease::replica::{self, ReplicaLife};

/// The interval between two searches for expired Leases.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The Lease of a replica that is gone is kept for this time after it expired, because its pod may be
/// cut off and return.
const KEPT: Duration = Duration::from_mins(10);
/// A Lease whose last renewal is older than this is not kept after it expired.
const LONG_GONE: SignedDuration = SignedDuration::from_hours(1);
/// A Lease of another pod is left over if its renewal is older than this when it is seen first. The clocks
/// of two nodes may differ by less. A replica whose clock is further behind counts again with its next
/// renewal, and sessions do not depend on it.
const LEFTOVER: SignedDuration = SignedDuration::from_mins(1);

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
    /// The Lease was old when it was seen first, and was not renewed since.
    is_leftover: bool,
    /// By its time of renewal, nobody has renewed it for long.
    is_long_gone: bool,
    seen: SeenLease,
}

/// Name and version of a Lease, as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenLease {
    pub namespace: Namespace,
    pub name: String,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl SeenLease {
    fn of(lease: &Lease) -> Self {
        Self {
            namespace: Namespace::of(lease),
            name: lease.name_any(),
            uid: lease.uid(),
            resource_version: lease.resource_version(),
        }
    }
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
        if presence == Presence::Deleted {
            state.leases.remove(&lease.name_any());
        } else {
            state.dead.remove(&holder);
            let expires = now + read_lifetime(&spec, replica::DURATION);
            let age = self.age_of(&spec);
            let (is_leftover, is_long_gone) = (old.is_none() && age > LEFTOVER, age > LONG_GONE);
            let (holder, bases, seen) = (holder.clone(), read_bases(lease), SeenLease::of(lease));
            let observed = Observed { holder, spec, bases, expires, is_leftover, is_long_gone, seen };
            state.leases.insert(lease.name_any(), observed);
        }
        let replaced = old.filter(|old| old.holder != holder && !old.holder.is_empty());
        if let Some(old) = &replaced {
            state.dead.insert(old.holder.clone(), Death { since: now, is_announced: true });
        }
        replaced.map(|old| old.holder).into_iter().collect()
    }

    /// The time since a Lease was renewed, by the clock of the replica that renewed it.
    fn age_of(&self, spec: &LeaseSpec) -> SignedDuration {
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        renewed.map_or(SignedDuration::ZERO, |renewed| self.clock.now().duration_since(renewed))
    }

    /// The Leases of replicas that are gone. A replica that returns makes its Lease anew.
    pub(crate) fn list_stale(&self) -> Vec<SeenLease> {
        let now = Instant::now();
        let state = self.lock_state();
        if !state.is_observing(&self.own, now) {
            return vec![];
        }
        let is_stale = |lease: &&Observed| {
            let expired = now.checked_duration_since(lease.expires);
            expired.is_some_and(|expired| lease.is_long_gone || expired >= KEPT)
        };
        let found = state.leases.values().filter(is_stale);
        found.map(|lease| lease.seen.clone()).collect()
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

    /// Tells if a replica is alive. The own one is.
    pub fn life_of(&self, replica: &str) -> ReplicaLife {
        let is_known = replica == &*self.own || self.lock_state().is_observing(&self.own, Instant::now());
        match self.died_at(replica) {
            Some(_) => ReplicaLife::Dead,
            None if is_known => ReplicaLife::Alive,
            None => ReplicaLife::Unknown,
        }
    }

    /// The base ISOs that the other live replicas announce. While nothing can be known, no replica
    /// is dead.
    pub fn list_others(&self) -> Vec<ReplicaBases> {
        let now = Instant::now();
        let state = self.lock_state();
        let is_observing = state.is_observing(&self.own, now);
        let is_other = |lease: &Observed| {
            let is_held = !lease.holder.is_empty() && !lease.is_leftover;
            is_held && lease.holder != *self.own && (lease.expires > now || !is_observing)
        };
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
        let expired = |lease: &&Observed| lease.expires <= now && !lease.holder.is_empty();
        for lease in self.leases.values().filter(expired) {
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
