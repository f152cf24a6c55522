//! Controllers of the Metal3 kinds.

mod address_claim;
mod addresses;
mod cluster;
mod data;
mod data_claim;
mod data_template;
pub(super) mod host;
mod ip_claim;
mod ip_pool;
mod machine;
mod remediation;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Resource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::context::Context;
use super::failures::shown_failure;
use super::run_controller;
use crate::index::metal3::Kind;
use crate::key::{Key, StoreKey};
use crate::store::StoreError;
use crate::watch::metal3::Metal3Cache;

/// The reconcile of a kind without conditions: a failed effect is an Event of the object.
fn with_failure_event<K, F>(
    reconcile: impl Fn(Arc<K>, Arc<Context>) -> F + Clone + Send + Sync + 'static,
) -> impl Fn(Arc<K>, Arc<Context>) -> BoxFuture<'static, Result<Action, StoreError>> + Clone + Send + Sync
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    F: Future<Output = Result<Action, StoreError>> + Send + 'static,
{
    move |object, context| {
        let reconciled = reconcile(object.clone(), context.clone());
        async move {
            let result = reconciled.await;
            if let Some(failed) = result.as_ref().err().and_then(shown_failure) {
                context.events.publish(&*object, failed.reason, &failed.message).await;
            }
            result
        }
        .boxed()
    }
}

/// Where the controller of one kind gets its keys.
fn open_queue<K: Resource<DynamicType = ()>>() -> (impl Fn(Key), UnboundedReceiver<ObjectRef<K>>) {
    let (sender, receiver): (UnboundedSender<ObjectRef<K>>, _) = unbounded_channel();
    // A closed queue is a leadership that has just ended.
    let send = move |key: Key| drop(sender.send(key.object_ref()));
    (send, receiver)
}

/// Starts the controllers of the kinds that are served.
pub(super) fn start_all(
    tasks: &mut JoinSet<()>,
    context: &Arc<Context>,
    cache: &Metal3Cache,
    mut keys: UnboundedReceiver<(Kind, Key)>,
) {
    cache.index.release_all();
    let (send_host, hosts) = open_queue();
    tasks.spawn(run_controller(host::reconcile, context.clone(), cache.hosts.clone(), hosts));
    let send_other = cache.is_full.then(|| start_full(tasks, context, cache));
    tasks.spawn(async move {
        while let Some((kind, key)) = keys.recv().await {
            match (kind, &send_other) {
                (Kind::Host, _) => send_host(key),
                (kind, Some(send)) => send(kind, key),
                (_, None) => {}
            }
        }
        // The queue is closed with the leadership: the controllers end by themselves.
        std::future::pending::<()>().await;
    });
}

/// Starts the controllers of all kinds but hosts; sends their keys.
fn start_full(
    tasks: &mut JoinSet<()>,
    context: &Arc<Context>,
    cache: &Metal3Cache,
) -> impl Fn(Kind, Key) + use<> {
    let (pool, pools) = open_queue();
    let (claim, claims) = open_queue();
    let (machine, machines) = open_queue();
    let (cluster, clusters) = open_queue();
    let (template, templates) = open_queue();
    let (data_claim, data_claims) = open_queue();
    let (data, data_keys) = open_queue();
    let (remediation, remediations) = open_queue();
    let (address_claim, address_claims) = open_queue();
    let all = || context.clone();
    tasks.spawn(run_controller(ip_pool::reconcile, all(), cache.ip_pools.clone(), pools));
    tasks.spawn(run_controller(
        with_failure_event(ip_claim::reconcile),
        all(),
        cache.ip_claims.clone(),
        claims,
    ));
    tasks.spawn(run_controller(machine::reconcile, all(), cache.machines.clone(), machines));
    tasks.spawn(run_controller(cluster::reconcile, all(), cache.clusters.clone(), clusters));
    tasks.spawn(run_controller(
        with_failure_event(data_template::reconcile),
        all(),
        cache.data_templates.clone(),
        templates,
    ));
    tasks.spawn(run_controller(
        with_failure_event(data_claim::reconcile),
        all(),
        cache.data_claims.clone(),
        data_claims,
    ));
    tasks.spawn(run_controller(with_failure_event(data::reconcile), all(), cache.data.clone(), data_keys));
    tasks.spawn(run_controller(remediation::reconcile, all(), cache.remediations.clone(), remediations));
    tasks.spawn(run_controller(
        address_claim::reconcile,
        all(),
        cache.address_claims.clone(),
        address_claims,
    ));
    move |kind, key| match kind {
        Kind::Host => {}
        Kind::IpPool => pool(key),
        Kind::IpClaim => claim(key),
        Kind::Machine => machine(key),
        Kind::Cluster => cluster(key),
        Kind::DataTemplate => template(key),
        Kind::DataClaim => data_claim(key),
        Kind::Data => data(key),
        Kind::Remediation => remediation(key),
        Kind::AddressClaim => address_claim(key),
    }
}
