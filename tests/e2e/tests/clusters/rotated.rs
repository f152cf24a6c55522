//! The authority of the coordinator is exchanged, and its URL moved, by the commands
//! of the document.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use contract::documents::{ROTATION, Reader, fill};
use control_plane::{Part, Shell, ports};
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use e2e::fleet::{Fleet, read_replica};
use e2e::forwarder::Forwarder;
use e2e::history::History;
use e2e::lifecycle::NAMESPACE;
use e2e::replicas;
use e2e::watching::until_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::json;

use crate::common::Setup;
use crate::restored::{DEADLINE, check_survived, start_fleet};

const OPERATIONS: &str = "docs/operations.md";
const DEPLOYMENT: &str = "baremetal-coordinator";

/// What the commands restart; the replicas of a test are processes.
fn deployment(url: &str) -> Deployment {
    let labels = json!({ "app": DEPLOYMENT });
    let arguments = [format!("--server-url={url}"), "--metal3=off".to_owned()];
    let manager = json!({ "name": "manager", "image": "registry.example/coordinator", "args": arguments });
    serde_json::from_value(json!({
        "metadata": { "name": DEPLOYMENT },
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
async fn await_known(client: &Client, former: &str) -> anyhow::Result<String> {
    let inventories: Api<MachineInventory> = Api::namespaced(client.clone(), NAMESPACE);
    until_all(&inventories, watcher::Config::default(), DEADLINE, |inventories| {
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

/// A coordinator whose replicas follow a Deployment.
struct Deployed<'a> {
    setup: &'a mut Setup,
    client: Client,
    shell: Shell,
    reader: Reader,
    /// Of what all hosts know.
    checksum: String,
}

impl<'a> Deployed<'a> {
    async fn create(setup: &'a mut Setup) -> anyhow::Result<Self> {
        let environment = &setup.environment;
        let client = environment.management.admin.clone();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), replicas::NAMESPACE);
        deployments.create(&PostParams::default(), &deployment(&environment.url)).await?;
        let shell = Shell::new(environment.management.control_plane.admin_kubeconfig())?;
        shell.add_program("kubectl", &environment.parts.path(Part::Kubectl)?)?;
        let checksum = await_known(&client, "").await?;
        Ok(Self { setup, client, shell, reader: Reader::of(ROTATION), checksum })
    }

    /// Runs the commands of a section; where they await a rollout, the replicas restart as the
    /// Deployment has it, and all hosts follow. Returns how often.
    async fn run(&mut self, section: &str, values: &[(&str, String)]) -> anyhow::Result<usize> {
        let mut restarts = 0;
        for block in self.reader.read(OPERATIONS, section)?.iter().filter(|block| block.is_commands()) {
            self.setup.progress.step(&format!("{OPERATIONS}: {section}, after {restarts} restarts"));
            self.shell.run(&fill(&block.content, values)).await?;
            if block.content.contains("rollout status") {
                restarts += 1;
                self.restart().await?;
                self.checksum = await_known(&self.client, &self.checksum).await?;
            }
        }
        Ok(restarts)
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), replicas::NAMESPACE);
        let spec = deployments.get(DEPLOYMENT).await?.spec.context("a Deployment without spec")?;
        let pod = spec.template.spec.context("a Deployment without pods")?;
        let arguments = pod.containers.into_iter().next().and_then(|container| container.args);
        let arguments = arguments.context("a container without arguments")?;
        let management = &mut self.setup.environment.management;
        management.replicas.iter_mut().try_for_each(|replica| replica.reconfigure(&arguments))?;
        management.coordinator_ready().await
    }

    /// Waits until every host has another session than `former`.
    async fn await_other_sessions(&self, former: &BTreeSet<String>) -> anyhow::Result<()> {
        let inventories: Api<MachineInventory> = Api::namespaced(self.client.clone(), NAMESPACE);
        until_all(&inventories, watcher::Config::default(), DEADLINE, |inventories| {
            let is_new = |inventory: &MachineInventory| {
                read_replica(inventory).is_some_and(|replica| !former.contains(&replica))
            };
            Ok(inventories.values().all(is_new).then_some(()))
        })
        .await
    }
}

async fn rotate(deployed: &mut Deployed<'_>, fleet: &Fleet) -> anyhow::Result<()> {
    let history = History::watch(&deployed.client).await;
    let restarts = deployed.run("Rotate the CA", &[]).await?;
    ensure!(restarts == 3, "{restarts} restarts");
    check_survived(&deployed.client, &history, fleet).await
}

async fn move_url(deployed: &mut Deployed<'_>, fleet: &Fleet) -> anyhow::Result<()> {
    let history = History::watch(&deployed.client).await;
    let address = SocketAddr::from(([127, 0, 0, 2], ports::free()?));
    let next = Forwarder::start_at(address).await?;
    next.set_targets(deployed.setup.environment.management.addresses());
    let values = [
        ("https://hosts.example.com:8443", format!("https://{address}")),
        ("baremetal.example.com", "127.0.0.1".to_owned()),
    ];
    let restarts = deployed.run("Move the URL", &values).await?;
    ensure!(restarts == 1, "{restarts} restarts");

    deployed.setup.progress.step("nothing answers under the former URL, and the coordinator restarts");
    let sessions = fleet.await_sessions(&deployed.client).await?;
    let former = sessions.into_iter().map(|session| session.replica).collect();
    deployed.setup.environment.forwarder.set_targets(vec![]);
    deployed.restart().await?;
    deployed.await_other_sessions(&former).await?;
    check_survived(&deployed.client, &history, fleet).await
}

async fn run(setup: &mut Setup, fleet: &Fleet) -> anyhow::Result<()> {
    let mut deployed = Deployed::create(setup).await?;
    rotate(&mut deployed, fleet).await?;
    move_url(&mut deployed, fleet).await?;
    Ok(deployed.reader.finish()?)
}

// Fault: the authority of the coordinator is exchanged, then its URL.
// Shown: `CoordinatorKnown` of each host; no host is visited, released or cleaned.
#[tokio::test(flavor = "multi_thread")]
async fn documented_rotation_and_move_reach_every_host() {
    let mut setup = Setup::start().await;
    let fleet = start_fleet(&setup).await;
    let result = run(&mut setup, &fleet).await;
    setup.check(result);
}
