//! Controllers of the Metal3 kinds.

mod cluster;
mod data;
mod data_claim;
mod data_template;
pub(super) mod host;
pub mod index;
mod ip_claim;
mod ip_pool;
mod machine;
mod slots;

use std::sync::Arc;

use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::index::Key;
use super::{Context, run_controller};
use crate::cache::metal3::Metal3Cache;
use index::Kind;

/// Where the controller of one kind gets its keys.
fn open_queue<K: Resource<DynamicType = ()>>() -> (impl Fn(Key), UnboundedReceiver<ObjectRef<K>>) {
    let (sender, receiver): (UnboundedSender<ObjectRef<K>>, _) = unbounded_channel();
    // A closed queue is a leadership that has just ended.
    let send = move |key: Key| drop(sender.send(key.object_ref()));
    (send, receiver)
}

/// Starts every controller of the kinds that are watched.
pub(super) fn start_all(
    tasks: &mut JoinSet<()>,
    context: &Arc<Context>,
    cache: &Metal3Cache,
    mut keys: UnboundedReceiver<(Kind, Key)>,
) {
    let (send_pool, pools) = open_queue();
    let (send_claim, claims) = open_queue();
    let (send_host, hosts) = open_queue();
    let (send_machine, machines) = open_queue();
    let (send_cluster, clusters) = open_queue();
    let (send_template, templates) = open_queue();
    let (send_data_claim, data_claims) = open_queue();
    let (send_data, data_keys) = open_queue();
    tasks.spawn(run_controller(
        data_template::reconcile,
        context.clone(),
        cache.data_templates.clone(),
        templates,
    ));
    tasks.spawn(run_controller(
        data_claim::reconcile,
        context.clone(),
        cache.data_claims.clone(),
        data_claims,
    ));
    tasks.spawn(run_controller(data::reconcile, context.clone(), cache.data.clone(), data_keys));
    tasks.spawn(run_controller(host::reconcile, context.clone(), cache.hosts.clone(), hosts));
    tasks.spawn(run_controller(machine::reconcile, context.clone(), cache.machines.clone(), machines));
    tasks.spawn(run_controller(cluster::reconcile, context.clone(), cache.clusters.clone(), clusters));
    tasks.spawn(run_controller(ip_pool::reconcile, context.clone(), cache.ip_pools.clone(), pools));
    tasks.spawn(run_controller(ip_claim::reconcile, context.clone(), cache.ip_claims.clone(), claims));
    tasks.spawn(async move {
        while let Some((kind, key)) = keys.recv().await {
            match kind {
                Kind::IpPool => send_pool(key),
                Kind::IpClaim => send_claim(key),
                Kind::Host => send_host(key),
                Kind::DataTemplate => send_template(key),
                Kind::DataClaim => send_data_claim(key),
                Kind::Data => send_data(key),
                Kind::Machine => send_machine(key),
                Kind::Cluster => send_cluster(key),
            }
        }
        // The queue is closed with the leadership: the controllers end by themselves.
        std::future::pending::<()>().await;
    });
}
