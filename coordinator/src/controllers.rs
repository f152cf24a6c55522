//! Gather, decide, apply one effect, write the status: one file per kind.

mod backlog;
pub mod backoffs;
mod balancer;
mod cluster;
pub mod context;
mod failures;
mod front_door;
mod host;
pub(crate) mod interruptions;
mod machine;
mod metal3;
mod plans;
mod pool;
mod reconciled;
pub(crate) mod registration;
mod replica_leases;
mod seed_image;
mod template;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use coordinator_core::retry;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::Instrument as _;

use crate::key::{Key, Kind, OfKind, for_each_kind, object_ref};
use crate::store::{Class, StoreError};
use crate::telemetry::chain;
use backlog::Backlog;
use backoffs::Cause;
use context::Context;
use reconciled::{Failure, Reconciled};

/// Reconciles of one kind that run at a time.
const CONCURRENCY: u16 = 16;
/// Interval between looks at an object that does not change.
const RESYNC: Duration = Duration::from_hours(1);
/// Pause after a controller that stopped by itself.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs every controller until `ended`. Reservations and triggers of an earlier leadership are
/// dropped, because every object is reconciled once.
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
        tracing::error!(?stopped, "a controller stopped, restarting all controllers");
        tasks.shutdown().await;
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// Each controller is a task of its own; they end when the set is dropped.
fn start_all(context: &Context) -> JoinSet<()> {
    context.index.release_all();
    context.metal3.release_all();
    context.workloads.forget_holders();
    context.backoffs.clear();
    let mut tasks = JoinSet::new();
    tasks.spawn(context.replicas.clone().watch_expiry(context.index.clone(), context.router.clone()));
    let context = Arc::new(context.clone());
    tasks.spawn(replica_leases::collect_leases(context.clone()));
    macro_rules! start {
        (queue, $object:ty) => {
            start_controller::<$object>(&mut tasks, &context)
        };
        (none, $object:ty) => {};
    }
    macro_rules! start_each {
        ($($kind:ident: $object:ty, $place:ident, $queue:ident, $($record:ident).+;)*) => {
            $(start!($queue, $object);)*
        };
    }
    for_each_kind!(start_each);
    tasks
}

fn start_controller<K: Reconciled>(tasks: &mut JoinSet<()>, context: &Arc<Context>) {
    if context.cache.watches(K::KIND) {
        let keys = context.router.open_queue(K::KIND);
        tasks.spawn(run_controller(K::reconcile, context.clone(), context.cache.store::<K>(), keys));
    }
}

/// Reconciles the objects of one kind: all once, then those that are triggered.
async fn run_controller<K, F>(
    reconcile: impl Fn(Arc<K>, Arc<Context>) -> F + Clone + Send + Sync + 'static,
    context: Arc<Context>,
    store: Store<K>,
    keys: UnboundedReceiver<Key>,
) where
    K: Reconciled,
    F: Future<Output = Result<Action, Failure>> + Send + 'static,
{
    let backoffs = context.backoffs.clone();
    let backlog = Arc::new(Backlog::new(K::KIND.name(), context.metrics.clone()));
    let (waiting, begun, queued) = (backlog.clone(), backlog.clone(), backlog);
    let run = move |object: Arc<K>, context: Arc<Context>| {
        begun.note_begun(&Key::of(&*object));
        reconcile_object(reconcile(object.clone(), context.clone()), object, context)
    };
    let keys = UnboundedReceiverStream::new(keys).inspect(move |key| queued.note_queued(key.clone()));
    Controller::for_stream(stream::pending(), store)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_all_on(stream::once(std::future::ready(())))
        .reconcile_on(keys.map(|key| object_ref(&key, ())))
        .run(run, |object, error, context| handle_failure(&*object, error, &context), context)
        .for_each(|result| {
            if let Err(controller::Error::ObjectNotFound(reference)) = result {
                let key = key_of(&reference);
                waiting.note_begun(&key);
                backoffs.forget_object(K::KIND, &key);
            }
            std::future::ready(())
        })
        .await;
}

/// Reconciles an object in a span of its own, and shows on the object that an effect failed.
async fn reconcile_object<K: Reconciled>(
    reconciled: impl Future<Output = Result<Action, Failure>>,
    object: Arc<K>,
    context: Arc<Context>,
) -> Result<Action, StoreError> {
    let (kind, key) = (K::KIND.name(), Key::of(&*object));
    let span = tracing::info_span!(
        "reconcile",
        kind,
        namespace = &*key.namespace,
        name = &*key.name,
        trace_id = tracing::field::Empty
    );
    async {
        let started = Instant::now();
        // A panic is an error of this object, and other objects go on.
        let reconciled = AssertUnwindSafe(reconciled).catch_unwind().await;
        let panicked = || StoreError::Panicked { kind, name: key.name.to_string() };
        let result = match reconciled.unwrap_or_else(|_| Err(panicked().into())) {
            Err(Failure::Unshown(error))
                if error.class() != Class::Conflict || context.backoffs.shows_conflict(K::KIND, &key) =>
            {
                let shown = object.show_failure(&context, &error).await;
                Err(shown.err().unwrap_or(error))
            }
            result => result.map(|action| or_resync::<K>(action, &key)).map_err(Failure::into_error),
        };
        context.metrics.observe_reconcile(kind, result.is_ok(), started.elapsed());
        if result.is_ok() && context.backoffs.reset_failures(K::KIND, &key) {
            tracing::info!("reconcile succeeded after failures");
        }
        result
    }
    .instrument(span)
    .await
}

/// A quiet host, machine or pool is looked at again after an hour, in case that an event was lost. A
/// reconcile of these kinds that changes nothing costs no request.
fn or_resync<K: OfKind>(action: Action, key: &Key) -> Action {
    let is_free_of_cost = matches!(
        K::KIND,
        Kind::MachineInventory
            | Kind::BaremetalMachine
            | Kind::MachineInventoryPool
            | Kind::BareMetalHost
            | Kind::Metal3Machine
    );
    let is_quiet = action == Action::await_change();
    if is_quiet && is_free_of_cost { Action::requeue(spread(RESYNC, key)) } else { action }
}

/// An interval that is longer by up to a fifth, so that objects that failed together do not return
/// together.
fn spread(interval: Duration, key: &Key) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    interval + interval / 5 * u32::from((hasher.finish() & 0xff) as u8) / 255
}

fn key_of<K: Lookup>(reference: &ObjectRef<K>) -> Key {
    Key::new(reference.namespace.as_deref().unwrap_or_default(), &*reference.name)
}

fn handle_failure<K: Reconciled>(object: &K, error: &StoreError, context: &Context) -> Action {
    let (kind, key, class) = (K::KIND.name(), Key::of(object), error.class());
    context.metrics.count_failure(kind, class);
    let cause = if class == Class::Conflict { Cause::Conflict } else { Cause::Failure };
    let attempt = context.backoffs.count_attempt(K::KIND, &key, cause);
    let (namespace, name, error) = (&*key.namespace, &*key.name, chain(error));
    let interval = match class {
        Class::Conflict => retry::conflict_backoff(attempt),
        Class::Transient => retry::failure_backoff(attempt),
        Class::Terminal => retry::RETRY_MAX,
    };
    if class == Class::Conflict && !context.backoffs.is_conflict_lasting(K::KIND, &key) {
        tracing::debug!(
            kind,
            namespace,
            name,
            error,
            attempt,
            "object changed during its reconcile, retrying"
        );
    } else {
        tracing::warn!(kind, namespace, name, error, attempt, retry_in = ?interval, "reconcile failed, retrying");
    }
    Action::requeue(spread(interval, &key))
}

#[cfg(test)]
mod tests;
