//! The parts of the process that the controllers share.

use std::sync::Arc;

use coordinator_api::capi::{Cluster, Machine};
use coordinator_api::names::{kind, label};
use kube::{Client, Resource, ResourceExt};

use super::backoffs::{Backoffs, Throttle};
use super::interruptions::Interruptions;
use crate::clock::Clock;
use crate::events::Events;
use crate::index::metal3::Metal3Index;
use crate::index::metal3::clusters::OfCluster;
use crate::index::replicas::ReplicaTracker;
use crate::index::{Index, Router};
use crate::key::find_owner;
use crate::metrics::Metrics;
use crate::seed_iso::SeedIsos;
use crate::traces::Traces;
use crate::watch::{ApiVersions, Cache};
use crate::workload::WorkloadClients;

/// Clones share everything.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub cache: Cache,
    pub index: Index,
    pub metal3: Metal3Index,
    pub events: Events,
    pub metrics: Metrics,
    pub traces: Traces,
    pub replicas: ReplicaTracker,
    pub clock: Clock,
    /// The URL at which hosts reach the coordinator.
    pub server_url: String,
    pub isos: Arc<SeedIsos>,
    pub versions: ApiVersions,
    pub backoffs: Backoffs,
    pub pool_writes: Throttle,
    pub interruptions: Interruptions,
    pub workloads: WorkloadClients,
    /// The value of the label of the objects that are reconciled. Without a value all objects are
    /// reconciled.
    pub watch_filter: Option<String>,
    pub router: Router,
}

impl Context {
    /// Tells whether an object of Cluster API is for this coordinator.
    pub fn serves(&self, object: &impl ResourceExt) -> bool {
        let wanted = self.watch_filter.as_ref();
        wanted.is_none_or(|wanted| object.labels().get(label::WATCH_FILTER) == Some(wanted))
    }

    /// The Machine of Cluster API that owns `object`.
    pub fn find_owner(&self, object: &impl Resource<DynamicType = ()>) -> Option<Arc<Machine>> {
        self.cache.get(&find_owner(object, kind::MACHINE)?)
    }

    /// Tells whether an object is paused by itself or by its Cluster, or was moved away.
    pub fn is_paused(&self, object: &impl OfCluster) -> bool {
        let cluster = object.find_cluster().and_then(|key| self.cache.get::<Cluster>(&key));
        coordinator_core::pause::is_paused(object, cluster.as_deref())
    }
}
