//! What an operator deletes first does not matter: Cluster API's real manager
//! and its finalizers agree with ours.

use e2e::host::Simulated;
use e2e::lifecycle::Lifecycle;

use crate::common::Setup;

async fn delete_first(setup: &Setup) -> anyhow::Result<()> {
    let environment = &setup.environment;
    let mut host = Simulated::new(environment.workload.clone(), 1)?;
    let mut lifecycle = Lifecycle::new(environment, &mut host, setup.progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    let inventory = lifecycle.register(&iso).await?;
    lifecycle.apply_cluster(&[host_name(&inventory)], 1).await?;
    lifecycle.await_node(&inventory, 0).await?;
    lifecycle.delete_cluster().await?;
    lifecycle.await_release(&inventory).await
}

fn host_name(inventory: &coordinator_api::inventory::MachineInventory) -> String {
    kube::ResourceExt::name_any(inventory)
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_cluster_returns_its_hosts_clean() {
    let setup = Setup::start().await;
    setup.check(delete_first(&setup).await);
}
