//! Cluster API's real managers make control planes and workers of simulated
//! hosts.

use std::time::Instant;

use anyhow::ensure;
use e2e::control_planes::{Cluster, Shape, control_plane_kind};
use e2e::fleet::Fleet;
use e2e::watching::Watching;
use serde_json::json;

use crate::common::{REQUESTS, Setup, WRITES, read_cost, slack_of};

/// Versions of the image catalog.
const V3: &str = "v1.36.3";
const V4: &str = "v1.36.4";
const V5: &str = "v1.36.5";

fn shape<'a>(control_planes: (usize, &'a str), workers: (usize, &'a str)) -> Shape<'a> {
    Shape { control_planes, workers }
}

async fn run_cluster(setup: &Setup) -> anyhow::Result<()> {
    let (environment, progress) = (&setup.environment, &setup.progress);
    let mut fleet = Fleet::register(environment, progress, &setup.base, 9).await?;
    let names = fleet.names();
    // One more than the control plane needs: its roll keeps to its own hosts all the same.
    let (control_planes, workers) = names.split_at(4);
    let cluster = Cluster::apply(environment, progress, (control_planes, workers)).await?;
    cluster.await_shape(shape((1, V3), (1, V3))).await?;

    let what = "the single control plane is rolled to another version by surge";
    cluster.change_control_plane(what, json!({ "version": V4 })).await?;
    cluster.await_shape(shape((1, V4), (1, V3))).await?;

    cluster.change_control_plane("the control plane is scaled to 3", json!({ "replicas": 3 })).await?;
    cluster.change_workers("the workers are scaled to 5", json!({ "replicas": 5 })).await?;
    let before = cluster.await_shape(shape((3, V4), (5, V3))).await?;

    let what = "three control planes are rolled in place of each other";
    let spec = json!({ "version": V5, "rollout": { "strategy": { "rollingUpdate": { "maxSurge": 0 } } } });
    let (mark, start) = (environment.management.mark()?, Instant::now());
    cluster.change_control_plane(what, spec).await?;
    let after = cluster.await_shape(shape((3, V5), (5, V3))).await?;
    ensure!(before == after, "nodeReuse keeps the hosts: {before:?} were rolled to {after:?}");
    let counts = environment.management.counts(mark)?;
    let ((requests, writes), slack) = (read_cost(&counts), 3 * slack_of(start.elapsed()));
    progress.detail(&format!("the coordinator sent {requests} requests, {writes} of them writes"));
    let is_cheap = requests <= 3 * REQUESTS + slack && writes <= 3 * WRITES + slack;
    ensure!(is_cheap, "the roll is too expensive: {counts:#?}");

    let removed = cluster.mark_worker().await?;
    cluster.change_workers("the marked one of the workers is removed", json!({ "replicas": 4 })).await?;
    cluster.await_shape(shape((3, V5), (4, V3))).await?;
    cluster.await_freed(&removed).await?;

    let spec = json!({ "replicas": 2, "template": { "spec": { "version": V5 } } });
    cluster.change_workers("the workers are rolled, and two of them leave", spec).await?;
    cluster.await_shape(shape((3, V5), (2, V5))).await?;

    cluster.lose_coordinator(&mut fleet).await?;

    let dead = cluster.lose_worker(&mut fleet).await?;
    cluster.abandon_unreachable_hosts().await?;
    cluster.await_shape(shape((3, V5), (2, V5))).await?;
    cluster.return_host(&mut fleet, &dead).await?;

    let keys = fleet.find_text(cluster.secret()?)?;
    let is_kept = keys.len() == 3 && keys.iter().all(|host| control_planes.contains(host));
    ensure!(is_kept, "the key of the cluster's authority is on {keys:?}");
    cluster.delete(&names).await?;
    let keys = fleet.find_text(cluster.secret()?)?;
    ensure!(keys.is_empty(), "the key of the cluster's authority is left on {keys:?}");
    Ok(())
}

// Fault: the workers lose the coordinator for an hour beside the health check of Cluster API's book; then the host of a
// worker dies, and a MachineHealthCheck deletes its Machine.
// Shown: condition `Ready` of the machines is unknown meanwhile, and none is deleted; then `HostUnreachable` with the annotation that abandons the host;
// once the pool gives the host up, another one becomes the worker.
#[tokio::test(flavor = "multi_thread")]
async fn control_planes_are_made_rolled_and_deleted() {
    let setup = Setup::start_for_control_planes().await;
    let client = &setup.environment.management.admin;
    let watching =
        Watching::start(client, &setup.progress).with(client, &control_plane_kind(), &setup.progress);
    setup.check(run_cluster(&setup).await);
    drop(watching);
}
