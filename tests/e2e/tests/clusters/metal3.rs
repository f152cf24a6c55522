//! Cluster API's real managers make a cluster of `BareMetalHost`s that name
//! inventories, by manifests for Cluster API Provider Metal3.

use std::collections::BTreeSet;

use anyhow::ensure;
use e2e::control_planes::metal3::{apply_hosts, kinds};
use e2e::control_planes::{Cluster, Shape, control_plane_kind};
use e2e::fleet::Fleet;
use e2e::watching::Watching;
use serde_json::json;

use crate::common::Setup;

/// One control plane and as many workers of this version.
fn shape(workers: usize, version: &str) -> Shape<'_> {
    Shape { control_planes: (1, "v1.36.3"), workers: (workers, version) }
}

async fn run_cluster(setup: &Setup) -> anyhow::Result<()> {
    let (environment, progress) = (&setup.environment, &setup.progress);
    let mut fleet = Fleet::register(environment, progress, &setup.base, 4).await?;
    let names = fleet.names();
    progress.step("each inventory has a BareMetalHost");
    apply_hosts(environment, &names).await?;
    let cluster = Cluster::apply_metal3(environment, progress).await?;
    cluster.await_shape(shape(2, "v1.36.3")).await?;
    ensure!(cluster.check_data(&fleet).await? == BTreeSet::from([0, 1, 2]));
    cluster.check_inventory_is_kept().await?;

    let before = cluster.worker_hosts().await?;
    ensure!(cluster.worker_id_forms().await? == BTreeSet::from([0]), "the template asks for the older form");
    let reference =
        |group: &str, kind: &str| json!({ "apiGroup": group, "kind": kind, "name": "workers-next" });
    let spec = json!({ "template": { "spec": {
        "version": "v1.36.4",
        "bootstrap": { "configRef": reference("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate") },
        "infrastructureRef": reference("infrastructure.cluster.x-k8s.io", "Metal3MachineTemplate"),
    } } });
    cluster.change_workers("the workers are upgraded on their own hosts", spec).await?;
    cluster.await_shape(shape(2, "v1.36.4")).await?;
    let after = cluster.worker_hosts().await?;
    ensure!(before == after, "the workers were on {before:?} and are on {after:?}");
    ensure!(cluster.worker_id_forms().await? == BTreeSet::from([2]), "the template asks for the newer form");
    ensure!(cluster.check_data(&fleet).await?.len() == 3);

    cluster.change_workers("the workers are scaled to 3", json!({ "replicas": 3 })).await?;
    cluster.await_shape(shape(3, "v1.36.4")).await?;
    ensure!(cluster.check_data(&fleet).await? == BTreeSet::from([0, 1, 2, 3]));

    cluster.change_workers("the workers are scaled to 2", json!({ "replicas": 2 })).await?;
    cluster.await_shape(shape(2, "v1.36.4")).await?;
    ensure!(cluster.check_data(&fleet).await?.len() == 3);

    cluster.check_address_claim().await?;
    cluster.remediate_worker(&mut fleet).await?;
    let given_up = cluster.replace_worker(&mut fleet).await?;
    cluster.await_shape(shape(2, "v1.36.4")).await?;
    let hosts = cluster.worker_hosts().await?;
    ensure!(!hosts.iter().any(|host| host.ends_with(&format!("/{given_up}"))), "{given_up} of {hosts:?}");
    ensure!(cluster.check_data(&fleet).await?.len() == 3);
    cluster.repair_host(&given_up).await?;

    cluster.delete(&names).await?;
    cluster.check_metal3_is_free().await
}

#[tokio::test(flavor = "multi_thread")]
async fn metal3_cluster_is_made_upgraded_and_deleted() {
    let setup = Setup::start_for_metal3().await;
    let client = &setup.environment.management.admin;
    let mut watching =
        Watching::start(client, &setup.progress).with(client, &control_plane_kind(), &setup.progress);
    for kind in kinds() {
        watching = watching.with(client, &kind, &setup.progress);
    }
    setup.check(run_cluster(&setup).await);
    drop(watching);
}
