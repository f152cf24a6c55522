//! Gather, decide, apply one effect, project the status: one file per kind.

mod backlog;
mod balancer;
pub mod cluster;
pub mod context;
pub mod failures;
pub mod front_door;
pub mod host;
pub mod machine;
mod metal3;
mod plans;
pub mod pool;
pub mod registration;
pub mod seed_image;
pub mod template;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use coordinator_core::retry;
use futures::stream::{self, StreamExt as _};
use kube::Resource;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::Instrument as _;

use crate::key::Key;
use crate::store::{Class, StoreError, kind_name};
use crate::telemetry::chain;
use backlog::Backlog;
use context::Context;
use failures::Failures;

/// Reconciles of one kind that run at a time.
const CONCURRENCY: u16 = 16;
/// Pause after a controller that stopped by itself.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs every controller until `ended`. What was reserved or triggered before
/// is of no use: every object is reconciled once.
pub async fn lead_controllers(context: Context, ended: impl Future<Output = ()>) {
    tokio::select! {
        () = ended => {}
        () = run_controllers(&context) => {}
    }
    context.router.close_queues();
}

async fn run_controllers(context: &Context) {
    loop {
        let mut tasks = start_all(context);
        let stopped = tasks.join_next().await;
        tracing::error!(?stopped, "a controller stopped; all are started again");
        tasks.shutdown().await;
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Each controller is a task of its own; they end when the set is dropped.
fn start_all(context: &Context) -> JoinSet<()> {
    context.index.release_all();
    context.workloads.forget_holders();
    let keys = context.router.open_queues();
    let mut tasks = JoinSet::new();
    let cache = context.cache.clone();
    let context = Arc::new(context.clone());
    if let Some(metal3) = &cache.metal3 {
        metal3::start_all(&mut tasks, &context, metal3, keys.metal3);
    }
    let expiry = context.replicas.clone().watch_expiry(context.index.clone(), context.router.clone());
    tasks.spawn(expiry);
    tasks.spawn(run_controller(host::reconcile_host, context.clone(), cache.inventories, keys.hosts));
    tasks.spawn(run_controller(
        machine::reconcile_baremetal_machine,
        context.clone(),
        cache.baremetal_machines,
        keys.machines,
    ));
    tasks.spawn(run_controller(pool::reconcile, context.clone(), cache.pools, keys.pools));
    tasks.spawn(run_controller(
        cluster::reconcile_cluster,
        context.clone(),
        cache.baremetal_clusters,
        keys.clusters,
    ));
    tasks.spawn(run_controller(
        registration::reconcile,
        context.clone(),
        cache.registrations,
        keys.registrations,
    ));
    tasks.spawn(run_controller(
        seed_image::reconcile_seed_image,
        context.clone(),
        cache.seed_images,
        keys.seed_images,
    ));
    tasks.spawn(run_controller(template::reconcile_template, context, cache.templates, keys.templates));
    tasks
}

/// Reconciles the objects of one kind: all once, then those that are triggered.
async fn run_controller<K, F>(
    reconcile: impl Fn(Arc<K>, Arc<Context>) -> F + Clone + Send + Sync + 'static,
    context: Arc<Context>,
    store: Store<K>,
    keys: UnboundedReceiver<ObjectRef<K>>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
    F: Future<Output = Result<Action, StoreError>> + Send + 'static,
{
    let (failures, waits) = (Failures::default(), context.waits.clone());
    let (counted, policy) = (failures.clone(), failures.clone());
    let backlog = Arc::new(Backlog::new(kind_name::<K>(), context.metrics.clone()));
    let (waiting, begun, queued) = (backlog.clone(), backlog.clone(), backlog.clone());
    let run = move |object: Arc<K>, context: Arc<Context>| {
        let (key, failures) = (Key::of(&*object), counted.clone());
        let span = tracing::info_span!(
            "reconcile",
            kind = kind_name::<K>(),
            namespace = &*key.namespace,
            name = &*key.name,
            trace_id = tracing::field::Empty
        );
        begun.note_begun(&key);
        let metrics = context.metrics.clone();
        let reconciled = reconcile(object, context);
        async move {
            let started = Instant::now();
            let result = reconciled.await;
            metrics.observe_reconcile(kind_name::<K>(), result.is_ok(), started.elapsed());
            if result.is_ok() && failures.reset_count(&key) {
                tracing::info!("reconcile succeeded after failures");
            }
            result
        }
        .instrument(span)
    };
    let on_error = move |object: Arc<K>, error: &StoreError, context: Arc<Context>| {
        handle_failure(&*object, error, &context, &policy)
    };
    Controller::for_stream(stream::pending(), store)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_all_on(stream::once(std::future::ready(())))
        .reconcile_on(UnboundedReceiverStream::new(keys).inspect(move |key| queued.note_queued(key_of(key))))
        .run(run, on_error, context)
        .for_each(|result| {
            if let Err(controller::Error::ObjectNotFound(key)) = result {
                let key = key_of(&key);
                waiting.note_begun(&key);
                failures.reset_count(&key);
                waits.reset_count(kind_name::<K>(), &key);
            }
            std::future::ready(())
        })
        .await;
}

fn key_of<K: Lookup>(reference: &ObjectRef<K>) -> Key {
    Key::new(reference.namespace.clone().unwrap_or_default(), &*reference.name)
}

fn handle_failure<K: Resource<DynamicType = ()>>(
    object: &K,
    error: &StoreError,
    context: &Context,
    failures: &Failures,
) -> Action {
    let kind = kind_name::<K>();
    let key = Key::of(object);
    let class = error.class();
    let attempt = failures.count_failure(&key, class);
    context.metrics.count_failure(kind, class);
    let (namespace, name, error) = (&*key.namespace, &*key.name, chain(error));
    let interval = match class {
        Class::Conflict => retry::conflict_backoff(attempt),
        Class::Transient => retry::failure_backoff(attempt),
        Class::Terminal => retry::RETRY_MAX,
    };
    if class == Class::Conflict {
        tracing::debug!(
            kind,
            namespace,
            name,
            error,
            attempt,
            "reconcile met a newer object; it is requeued"
        );
    } else {
        tracing::warn!(kind, namespace, name, error, attempt, retry_in = ?interval, "reconcile failed; it is requeued");
    }
    Action::requeue(interval)
}

#[cfg(test)]
mod tests;
