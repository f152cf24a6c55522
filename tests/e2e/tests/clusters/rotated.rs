//! The authority of the coordinator is exchanged by the commands of the document.

use std::collections::BTreeSet;

use anyhow::ensure;
use contract::documents::{ROTATION, Reader};
use control_plane::{Part, Shell};
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use e2e::fleet::Fleet;
use e2e::history::History;
use e2e::lifecycle::NAMESPACE;
use e2e::replicas::{self, Replica};
use e2e::watching::until_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher;
use serde_json::json;

use crate::common::Setup;
use crate::restored::{DEADLINE, check_survived, start_fleet};

const OPERATIONS: &str = "docs/operations.md";
const SECTION: &str = "Rotate the CA, move the URL";

/// What the commands restart; the replicas of a test are processes.
fn deployment() -> Deployment {
    let labels = json!({ "app": "baremetal-coordinator" });
    let manager = json!({ "name": "manager", "image": "registry.example/coordinator" });
    serde_json::from_value(json!({
        "metadata": { "name": "baremetal-coordinator" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [manager] } },
        },
    }))
    .unwrap()
}

/// Waits until all hosts have the same settings, other ones than `former`; returns
/// their checksum.
async fn await_known(inventories: &Api<MachineInventory>, former: &str) -> anyhow::Result<String> {
    until_all(inventories, watcher::Config::default(), DEADLINE, |inventories| {
        let mut checksums = BTreeSet::new();
        for inventory in inventories.values() {
            let Some(status) = &inventory.status else { return Ok(None) };
            let known = find_condition(&status.conditions, Type::CoordinatorKnown);
            if known.is_none_or(|known| known.status != "True") {
                return Ok(None);
            }
            let coordinator = status.host.as_ref().and_then(|host| host.coordinator.as_ref());
            checksums.extend(coordinator.map(|coordinator| coordinator.checksum.clone()));
        }
        Ok(checksums.pop_first().filter(|first| checksums.is_empty() && first != former))
    })
    .await
}

async fn rotate(setup: &Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let management = &setup.environment.management;
    let client = &management.admin;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), replicas::NAMESPACE);
    deployments.create(&PostParams::default(), &deployment()).await?;
    let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
    let history = History::watch(client).await;
    let shell = Shell::new(management.control_plane.admin_kubeconfig())?;
    shell.add_program("kubectl", &setup.environment.parts.path(Part::Kubectl)?)?;
    let mut checksum = await_known(&inventories, "").await?;
    let mut restarts = 0;
    let mut reader = Reader::of(ROTATION);
    for block in reader.read(OPERATIONS, SECTION)?.iter().filter(|block| block.is_commands()) {
        setup.progress.step(&format!("{OPERATIONS}: {SECTION}, after {restarts} restarts"));
        shell.run(&block.content).await?;
        if block.content.contains("rollout restart") {
            restarts += 1;
            management.replicas.iter().try_for_each(Replica::kill)?;
            management.replicas.iter().try_for_each(Replica::restart)?;
            management.coordinator_ready().await?;
            checksum = await_known(&inventories, &checksum).await?;
        }
    }
    reader.finish()?;
    ensure!(restarts == 3, "{restarts} restarts");
    check_survived(client, &history, fleet).await
}

// Fault: the authority of the coordinator is exchanged.
// Shown: `CoordinatorKnown` of each host; no host is visited, released or cleaned.
#[tokio::test(flavor = "multi_thread")]
async fn documented_rotation_reaches_every_host() {
    let setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    setup.check(rotate(&setup, &fleet).await);
}
