//! The Lease by which other replicas see that this one is alive, and the bases that it can serve.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::names::{annotation, label};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, timeout, timeout_at};

use crate::clock::Clock;
use crate::shutdown::{Shutdown, wait_ended};
use crate::telemetry::chain;

/// A replica is dead if its Lease did not change for this time.
pub const DURATION: Duration = Duration::from_secs(15);
const RENEW_PERIOD: Duration = Duration::from_secs(5);
/// Two attempts fit into the duration.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(6);
/// Prefix before the name of the pod.
const PREFIX: &str = "baremetal-coordinator-replica-";
/// Selects the Leases of replicas.
pub const LABEL_SELECTOR: &str = "baremetal.cluster.io/replica=true";

/// The knowledge about a replica. While a process does not see its own Lease change, it knows
/// nothing of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaLife {
    Alive,
    Dead,
    Unknown,
}

/// The pod of a Lease.
pub fn instance_of(lease: &str) -> &str {
    lease.strip_prefix(PREFIX).unwrap_or(lease)
}

/// Deletes the Lease of a replica that is gone, unless it changed meanwhile.
pub(crate) async fn delete_lease(
    leases: &Api<Lease>,
    name: &str,
    uid: Option<String>,
    resource_version: Option<String>,
) -> Result<(), kube::Error> {
    let seen = DeleteParams::default().preconditions(Preconditions { resource_version, uid });
    match leases.delete(name, &seen).await {
        // The replica returned, or another leader deleted the Lease.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// The Lease of this replica.
pub struct ReplicaLease {
    leases: Api<Lease>,
    name: String,
    identity: String,
    bases: Arc<dyn Fn() -> String + Send + Sync>,
    contact: Arc<dyn Fn(bool) + Send + Sync>,
    clock: Clock,
}

impl ReplicaLease {
    /// `instance` names the Lease and stays the same after a restart of the container; `identity` holds
    /// the Lease and changes with each restart.
    pub fn new(leases: Api<Lease>, instance: &str, identity: String, clock: Clock) -> Self {
        let (bases, contact) = (Arc::new(String::new), Arc::new(|_| {}));
        Self { leases, name: format!("{PREFIX}{instance}"), identity, bases, contact, clock }
    }

    /// `contact` is called with false once the Lease could not be renewed for its duration, because the
    /// other replicas take this one for dead, and with true after the next renewal.
    pub fn with_contact(self, contact: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { contact: Arc::new(contact), ..self }
    }

    /// Each renewal announces the base ISOs that the replica holds.
    pub fn with_bases(self, bases: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { bases: Arc::new(bases), ..self }
    }

    /// Writes the Lease. No session may name this replica before, because other replicas would take the
    /// replica for dead.
    pub async fn renew_lease(&self) -> Result<(), kube::Error> {
        self.write_lease(&self.identity, DURATION).await
    }

    /// Renews until `shutdown`, then releases.
    pub async fn keep_renewed(self, shutdown: Shutdown) {
        tokio::select! {
            () = self.renew_periodically() => {}
            () = wait_ended(shutdown) => {}
        }
        if let Err(error) = self.write_lease("", Duration::from_secs(1)).await {
            tracing::warn!(lease = self.name, error = %chain(&error), "cannot release the Lease of this replica, it expires");
        }
    }

    async fn renew_periodically(&self) {
        let mut ticks = tokio::time::interval(RENEW_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut renewed, mut has_contact) = (Instant::now(), true);
        loop {
            let attempt = async {
                ticks.tick().await;
                let started = Instant::now();
                (started, timeout(REQUEST_TIMEOUT, self.renew_lease()).await)
            };
            let attempted =
                if has_contact { timeout_at(renewed + DURATION, attempt).await } else { Ok(attempt.await) };
            let Ok((started, result)) = attempted else {
                has_contact = false;
                (self.contact)(false);
                self.log_failure("its duration is over, hosts are sent to other replicas");
                continue;
            };
            match result {
                Ok(Ok(())) => {
                    renewed = started;
                    if !has_contact {
                        has_contact = true;
                        (self.contact)(true);
                        tracing::info!(lease = self.name, "Lease of this replica renewed again");
                    }
                }
                Ok(Err(error)) => self.log_failure(&chain(&error)),
                Err(_) => self.log_failure("the API server did not answer in time"),
            }
        }
    }

    async fn write_lease(&self, holder: &str, duration: Duration) -> Result<(), kube::Error> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "labels": { label::REPLICA: "true" },
                "annotations": { annotation::BASE_ISOS: (self.bases)() },
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": duration.as_secs(),
                "renewTime": MicroTime(self.clock.now()),
            },
        });
        let patched = self.leases.patch(&self.name, &PatchParams::default(), &Patch::Merge(&lease)).await;
        match patched {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
                self.leases.create(&PostParams::default(), &lease).await.map(drop)
            }
            patched => patched.map(drop),
        }
    }

    fn log_failure(&self, error: &str) {
        tracing::warn!(lease = self.name, error, "cannot renew the Lease of this replica, retrying");
    }
}
