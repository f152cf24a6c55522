//! Election of the replica that runs the controllers, by a Lease with the semantics of client-go.
//!
//! The holder renews until a deadline that is shorter than the Lease. Other replicas take the Lease
//! over if they have not seen it change for its whole duration. Both measure on their own monotonic
//! clock and never compare times that other nodes wrote. Leadership only saves writes, because every
//! write that matters has a precondition of its own.

pub mod replica;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::clock::Clock;
use crate::quantities::parse_duration;
use crate::shutdown::{Shutdown, wait_ended};
use crate::telemetry::chain;

/// Name of the Lease.
pub const NAME: &str = "baremetal-coordinator";

/// The times of the election, by the flags that Cluster API's managers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct ElectionTimes {
    /// Other replicas take over if the leader did not renew its Lease for this time.
    #[arg(
        long = "leader-elect-lease-duration",
        env = "LEADER_ELECT_LEASE_DURATION",
        default_value = "15s",
        value_parser = parse_duration
    )]
    pub lease_duration: Duration,
    /// The leader gives up if it could not renew for this time. It is shorter than the duration.
    #[arg(
        long = "leader-elect-renew-deadline",
        env = "LEADER_ELECT_RENEW_DEADLINE",
        default_value = "10s",
        value_parser = parse_duration
    )]
    pub renew_deadline: Duration,
    /// Pause between two attempts to acquire or renew. It is shorter than the deadline.
    #[arg(
        long = "leader-elect-retry-period",
        env = "LEADER_ELECT_RETRY_PERIOD",
        default_value = "2s",
        value_parser = parse_duration
    )]
    pub retry_period: Duration,
}

impl ElectionTimes {
    /// The leader must notice that it lost the Lease before another replica takes it.
    pub fn is_ordered(&self) -> bool {
        self.retry_period < self.renew_deadline
            && self.renew_deadline < self.lease_duration
            && self.lease_duration.as_secs() > 0
            && !self.retry_period.is_zero()
    }
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("the API server did not answer in time")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The part of this replica in the election.
pub struct Election {
    leases: Api<Lease>,
    identity: String,
    clock: Clock,
    times: ElectionTimes,
    leadership: watch::Sender<bool>,
    observed: Option<Observation>,
}

/// The Lease at its last observed change.
struct Observation {
    spec: LeaseSpec,
    at: Instant,
}

/// The Lease that this replica wrote.
struct Held {
    lease: Lease,
    /// Start of the request that wrote the Lease.
    renewed: Instant,
}

impl Election {
    /// `identity` must be unique among all processes that ever ran. The receiver is `true` while this
    /// replica leads.
    pub fn new(
        leases: Api<Lease>,
        identity: String,
        clock: Clock,
        times: ElectionTimes,
    ) -> (Self, watch::Receiver<bool>) {
        let (leadership, receiver) = watch::channel(false);
        (Self { leases, identity, clock, times, leadership, observed: None }, receiver)
    }

    /// Runs until `shutdown`, then releases the Lease.
    pub async fn run_election(mut self, shutdown: Shutdown) {
        let mut held = None;
        tokio::select! {
            () = self.run_campaign(&mut held) => {}
            () = wait_ended(shutdown) => {}
        }
        self.leadership.send_replace(false);
        if let Some(held) = held {
            self.release_lease(held).await;
        }
    }

    async fn run_campaign(&mut self, held: &mut Option<Held>) {
        loop {
            let acquired = self.acquire_lease().await;
            tracing::info!(lease = NAME, identity = self.identity, "leadership acquired");
            let leading = held.insert(acquired);
            self.leadership.send_replace(true);
            self.renew_lease(leading).await;
            self.leadership.send_replace(false);
            *held = None;
        }
    }

    async fn acquire_lease(&mut self) -> Held {
        loop {
            match self.try_acquire().await {
                Ok(Some(held)) => return held,
                Ok(None) => {}
                Err(error) => log_failure("acquire", &error),
            }
            let next = Instant::now() + self.times.retry_period;
            let expiry = self.observed.as_ref().map(|observed| self.expiry_of(observed));
            sleep_until(expiry.filter(|expiry| *expiry > Instant::now()).map_or(next, |at| at.min(next)))
                .await;
        }
    }

    /// The Lease, if this replica holds it now.
    async fn try_acquire(&mut self) -> Result<Option<Held>, AttemptError> {
        let found = timeout(self.times.renew_deadline, self.leases.get_opt(NAME)).await??;
        let renewed = Instant::now();
        let Some(lease) = found else {
            let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.render_spec(None)) };
            let created = keep_unless_conflict(self.create_lease(&lease).await)?;
            return Ok(created.map(|lease| Held { lease, renewed }));
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.observed.as_ref().is_none_or(|observed| observed.spec != spec) {
            self.observed = Some(Observation { spec: spec.clone(), at: Instant::now() });
        }
        let is_free = spec.holder_identity.as_deref().is_none_or(str::is_empty);
        let is_expired =
            self.observed.as_ref().is_some_and(|observed| Instant::now() >= self.expiry_of(observed));
        if !is_free && !is_expired {
            return Ok(None);
        }
        let lease = Lease { spec: Some(self.render_spec(Some(&spec))), ..lease };
        let replaced = keep_unless_conflict(self.replace_lease(&lease).await)?;
        Ok(replaced.map(|lease| Held { lease, renewed }))
    }

    fn expiry_of(&self, observed: &Observation) -> Instant {
        observed.at + read_lifetime(&observed.spec, self.times.lease_duration)
    }

    /// Renews until the Lease is lost.
    async fn renew_lease(&mut self, held: &mut Held) {
        loop {
            let deadline = held.renewed + self.times.renew_deadline;
            if timeout_at(deadline, sleep(self.times.retry_period)).await.is_err() {
                tracing::warn!(
                    lease = NAME,
                    "leadership lost: the Lease could not be renewed before the deadline"
                );
                return;
            }
            let started = Instant::now();
            match timeout_at(deadline, self.try_renew(&held.lease)).await {
                Ok(Ok(Some(lease))) => *held = Held { lease, renewed: started },
                Ok(Ok(None)) => {
                    tracing::warn!(lease = NAME, "leadership lost: another replica holds the Lease");
                    return;
                }
                Ok(Err(error)) => log_failure("renew", &error),
                Err(_) => {}
            }
        }
    }

    /// `None` if another replica holds the Lease.
    async fn try_renew(&self, held: &Lease) -> Result<Option<Lease>, AttemptError> {
        let mut lease = held.clone();
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(self.clock.now()));
        }
        self.replace_held(lease).await
    }

    /// `None` if another replica holds the Lease.
    async fn replace_held(&self, mut lease: Lease) -> Result<Option<Lease>, AttemptError> {
        if let Some(written) = keep_unless_conflict(self.replace_lease(&lease).await)? {
            return Ok(Some(written));
        }
        let found = timeout(self.times.renew_deadline, self.leases.get_opt(NAME)).await??;
        let Some(found) = found.filter(|found| self.is_holder(found)) else { return Ok(None) };
        // The conflict has another cause: the answer to a renewal was lost or not awaited, or a label
        // was changed.
        lease.metadata = found.metadata;
        keep_unless_conflict(self.replace_lease(&lease).await)
    }

    fn is_holder(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder == Some(&*self.identity)
    }

    async fn release_lease(&self, held: Held) {
        let mut lease = held.lease;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.clock.now()));
        }
        match self.replace_held(lease).await {
            Ok(Some(_)) => tracing::info!(lease = NAME, "leadership released"),
            Ok(None) => tracing::info!(lease = NAME, "another replica holds the Lease: nothing to release"),
            Err(error) => log_failure("release", &error),
        }
    }

    fn render_spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let transitions =
            old.and_then(|old| old.lease_transitions).map_or(0, |count| count.saturating_add(1));
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.times.lease_duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    async fn create_lease(&self, lease: &Lease) -> Result<Lease, AttemptError> {
        let parameters = PostParams::default();
        let created = self.leases.create(&parameters, lease);
        Ok(timeout(self.times.renew_deadline, created).await??)
    }

    /// The `resourceVersion` of `lease` is the precondition.
    async fn replace_lease(&self, lease: &Lease) -> Result<Lease, AttemptError> {
        let parameters = PostParams::default();
        let replaced = self.leases.replace(NAME, &parameters, lease);
        Ok(timeout(self.times.renew_deadline, replaced).await??)
    }
}

/// Time for which a holder keeps the Lease without a renewal.
pub(crate) fn read_lifetime(spec: &LeaseSpec, default: Duration) -> Duration {
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(default, Duration::from_secs)
}

fn keep_unless_conflict(result: Result<Lease, AttemptError>) -> Result<Option<Lease>, AttemptError> {
    match result {
        Ok(lease) => Ok(Some(lease)),
        Err(AttemptError::Api(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

fn log_failure(attempt: &str, error: &AttemptError) {
    tracing::warn!(lease = NAME, error = %chain(error), "cannot {attempt} the leader Lease");
}
