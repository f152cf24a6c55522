//! Observe, decide, apply one effect, project the status: one file a kind.

pub mod choices;
pub mod cluster;
pub mod inventory;
pub mod machine;
pub mod pool;
pub mod registration;
pub mod seed_image;
mod triggers;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coordinator_api::machine::BaremetalMachine;
use coordinator_core::retry;
use futures::StreamExt as _;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::seed_iso::SeedIsos;
use crate::store::{Class, StoreError};
use crate::telemetry::chain;
use crate::watch::{Caches, Keys, Leading, Queues, queues};

pub use triggers::route;

/// Reconciles of one kind that run at a time.
const CONCURRENCY: u16 = 16;
/// No pause between an event and the look that follows.
const AT_ONCE: Duration = Duration::ZERO;
/// One write of ours makes several events: one look is enough for all.
const BURST: Duration = Duration::from_millis(20);
/// The numbers of a pool are for people. Two replicas whose caches differ for a
/// while must not answer each other's numbers as fast as they can.
const POOL: Duration = Duration::from_millis(500);

/// What every controller has at hand.
#[derive(Clone)]
pub struct Context {
    /// Writes.
    pub client: Client,
    /// Reads.
    pub caches: Caches,
    /// Events on objects.
    pub events: Events,
    /// Counters.
    pub metrics: Metrics,
    /// Machines that wait for something that is not theirs: a pool, a host,
    /// a catalog.
    pub waiting: Waiting,
    /// Hosts that are promised to machines.
    pub choices: choices::Choices,
    /// Where hosts reach the coordinator.
    pub server_url: String,
    /// The seed ISOs.
    pub isos: Arc<SeedIsos>,
    /// What Cluster API's kinds are served at.
    pub versions: CapiVersions,
}

/// The kinds of Cluster API as they are served.
#[derive(Clone, Debug)]
pub struct CapiVersions {
    /// Machine.
    pub machine: kube::core::ApiResource,
    /// Cluster.
    pub cluster: kube::core::ApiResource,
}

/// Machines that wait for something that is not theirs, so that an event on it
/// wakes them and nobody else.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<Mutex<HashSet<ObjectRef<BaremetalMachine>>>>);

impl Waiting {
    /// Notes whether `machine` waits.
    pub fn note(&self, machine: ObjectRef<BaremetalMachine>, waits: Waits) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match waits {
            Waits::Yes => waiting.insert(machine),
            Waits::No => waiting.remove(&machine),
        };
    }

    /// Everybody who waits in a namespace.
    #[must_use]
    pub fn of(&self, namespace: Option<&str>) -> Vec<ObjectRef<BaremetalMachine>> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here = |machine: &&ObjectRef<_>| namespace.is_none() || machine.namespace.as_deref() == namespace;
        waiting.iter().filter(here).cloned().collect()
    }
}

/// Whether a machine waits for something that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Waits {
    Yes,
    No,
}

/// An effect that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Kubernetes.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
        }
    }
}

/// Leads: runs every controller until `ended`.
pub async fn lead(context: Context, leading: Leading, ended: impl Future<Output = ()>) {
    let (queues, keys) = queues();
    leading.set(Some(queues.clone()));
    let controllers = run(Arc::new(context.clone()), keys);
    let everything = enqueue(&context.caches, &queues);
    tokio::select! {
        () = ended => {}
        ((), ()) = async { tokio::join!(controllers, everything) } => {}
    }
    leading.set(None);
}

async fn run(context: Arc<Context>, keys: Keys) {
    let caches = context.caches.clone();
    tokio::join!(
        drive(inventory::reconcile, &context, (caches.inventories, keys.inventories), AT_ONCE),
        drive(registration::reconcile, &context, (caches.registrations, keys.registrations), AT_ONCE),
        drive(seed_image::reconcile, &context, (caches.seed_images, keys.seed_images), AT_ONCE),
        drive(pool::reconcile, &context, (caches.pools, keys.pools), POOL),
        drive(cluster::reconcile, &context, (caches.baremetal_clusters, keys.baremetal_clusters), AT_ONCE),
        drive(machine::reconcile, &context, (caches.baremetal_machines, keys.baremetal_machines), BURST),
    );
}

/// A new leader looks at everything once.
async fn enqueue(caches: &Caches, queues: &Queues) {
    tokio::join!(
        all(&caches.inventories, &queues.inventories),
        all(&caches.registrations, &queues.registrations),
        all(&caches.seed_images, &queues.seed_images),
        all(&caches.pools, &queues.pools),
        all(&caches.baremetal_clusters, &queues.baremetal_clusters),
        all(&caches.baremetal_machines, &queues.baremetal_machines),
    );
}

async fn all<K>(store: &Store<K>, queue: &mpsc::Sender<ObjectRef<K>>)
where
    K: Resource<DynamicType = ()> + Clone,
{
    for object in store.state() {
        if queue.send(ObjectRef::from_obj(&*object)).await.is_err() {
            return;
        }
    }
}

async fn drive<K, F>(
    reconcile: impl Fn(Arc<K>, Arc<Context>) -> F + Copy,
    context: &Arc<Context>,
    (store, keys): (Store<K>, mpsc::Receiver<ObjectRef<K>>),
    quiet: Duration,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let kind: &'static str = std::any::type_name::<K>().rsplit("::").next().unwrap_or("object");
    let failures = Failures::default();
    let queue = ReceiverStream::new(keys).map(Ok::<_, std::convert::Infallible>);
    let counted = {
        let failures = failures.clone();
        move |object: Arc<K>, context: Arc<Context>| {
            let (key, failures) = (ObjectRef::from_obj(&*object).erase(), failures.clone());
            Box::pin(async move {
                let done = reconcile(object, context).await;
                if done.is_ok() {
                    failures.forget(&key);
                }
                done
            })
        }
    };
    let policy = move |object: Arc<K>, error: &Error, context: Arc<Context>| {
        let attempt = failures.count(ObjectRef::from_obj(&*object).erase());
        let class = error.class();
        context.metrics.failed(kind, class);
        match class {
            Class::Conflict => say_conflict(kind, error),
            Class::Transient | Class::Terminal => say_failed(kind, &*object, error, attempt),
        }
        Action::requeue(match class {
            Class::Conflict => retry::conflict(attempt),
            Class::Transient => retry::backoff(attempt),
            Class::Terminal => retry::LONGEST,
        })
    };
    let config = controller::Config::default().concurrency(CONCURRENCY).debounce(quiet);
    let applier = kube::runtime::applier(counted, policy, context.clone(), store, queue, config);
    applier.for_each(|_| std::future::ready(())).await;
}

fn say_conflict(kind: &'static str, error: &Error) {
    tracing::debug!(kind, error = %chain(error), "somebody wrote first");
}

fn say_failed(kind: &'static str, object: &impl Resource, error: &Error, attempt: u32) {
    tracing::warn!(
        kind,
        namespace = object.meta().namespace,
        name = object.meta().name,
        error = %chain(error),
        attempt,
        "reconcile failed"
    );
}

/// How often in a row each object failed.
#[derive(Clone, Default)]
struct Failures(Arc<Mutex<std::collections::HashMap<ObjectRef<kube::core::DynamicObject>, u32>>>);

impl Failures {
    fn count(&self, key: ObjectRef<kube::core::DynamicObject>) -> u32 {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = failures.entry(key).or_insert(0);
        *attempt = attempt.saturating_add(1);
        *attempt
    }

    fn forget(&self, key: &ObjectRef<kube::core::DynamicObject>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
