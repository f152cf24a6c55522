//! What an operator deletes first does not matter: Cluster API's real manager
//! and its finalizers agree with ours.

use std::time::Duration;

use anyhow::ensure;
use e2e::fleet::Fleet;
use e2e::host::{Host, Simulated};
use e2e::lifecycle::{Lifecycle, NAMESPACE};
use e2e::requests::retry;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use tokio::time::{Instant, sleep};

use crate::common::Setup;

const DEADLINE: Duration = Duration::from_mins(3);

async fn delete_first(setup: &Setup) -> anyhow::Result<()> {
    let environment = &setup.environment;
    let mut host = Host::Simulated(Simulated::new(environment.workload.clone(), 1)?);
    let mut lifecycle = Lifecycle::new(environment, &mut host, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    let inventory = lifecycle.register(&iso).await?;
    lifecycle.apply_cluster(&[host_name(&inventory)], 1).await?;
    lifecycle.await_node(&inventory, 0).await?;
    lifecycle.delete_cluster().await?;
    lifecycle.await_release(&inventory).await
}

/// The namespace controller deletes in its own order, the Secrets of plans too.
async fn delete_namespace(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(setup.environment.management.admin.clone());
    retry("delete the namespace", async || namespaces.delete(NAMESPACE, &DeleteParams::default()).await)
        .await?;
    let ends = Instant::now() + DEADLINE;
    while let Some(left) = retry("read the namespace", async || namespaces.get_opt(NAMESPACE).await).await? {
        let conditions = left.status.and_then(|status| status.conditions);
        ensure!(Instant::now() < ends, "the namespace is not gone: {conditions:#?}");
        sleep(Duration::from_millis(200)).await;
    }
    fleet.check_clean()
}

// Fault: a namespace with clusters, machines, inventories and Secrets is deleted.
// Shown: its hosts are cleaned, and it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_namespace_is_gone_once_its_hosts_are_clean() {
    let setup = Setup::start().await;
    let fleet = setup.check(Fleet::start(&setup.environment, &setup.progress, &setup.base, (3, 2)).await);
    setup.check(delete_namespace(&setup, &fleet).await);
}

fn host_name(inventory: &coordinator_api::inventory::MachineInventory) -> String {
    kube::ResourceExt::name_any(inventory)
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_cluster_returns_its_hosts_clean() {
    let setup = Setup::start().await;
    setup.check(delete_first(&setup).await);
}
