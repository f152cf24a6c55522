//! Hosts with the agents of this and of the former release, at a coordinator of the former release, of this one, and of
//! the former one again: `make test-upgrade`. The definitions, roles and policies are those of this release throughout.

// The exemption for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "clusters/common.rs"]
#[allow(dead_code, reason = "other tests need the rest")]
mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::Setup;
use coordinator_api::inventory::{MachineInventory, PlanState, PlanType};
use coordinator_api::machine::BaremetalMachine;
use e2e::commands::extract_file;
use e2e::fleet::read_replica;
use e2e::host::{Host as _, Simulated};
use e2e::lifecycle::{Lifecycle, NAMESPACE, await_attached, is_free, is_running};
use e2e::replicas::find_binary;
use e2e::watching::{until, until_all};
use kube::Api;
use kube::runtime::watcher;
use serde_json::json;
use simulated_host::firmware::Identity;
use tokio::process::{Child, Command};

const DEADLINE: Duration = Duration::from_mins(5);

/// What `build.sh` of the former release made.
struct Former(PathBuf);

impl Former {
    fn from_environment() -> Result<Self> {
        let directory = std::env::var_os("FORMER").context("FORMER is not set: run make test-upgrade")?;
        Ok(Self(directory.into()))
    }

    fn coordinator(&self) -> PathBuf {
        self.0.join("baremetal-coordinator")
    }

    /// A host of its own process, with the agent of that release.
    async fn boot_host(&self, setup: &Setup, iso: &Path, number: u8) -> Result<FormerHost> {
        let directory = setup.environment.directory.path().join(format!("former-{number}"));
        std::fs::create_dir_all(&directory)?;
        let seed = directory.join("seed");
        extract_file(iso, "/livecd-cloud-config.yaml", &seed).await?;
        let mut host = Command::new(self.0.join("former-host"));
        host.arg(directory.join("host")).arg(seed).arg(number.to_string()).kill_on_drop(true);
        let name = format!("host-{}", Identity { serial: "", uuid_end: number }.uuid());
        Ok(FormerHost { name, process: host.spawn()? })
    }
}

struct FormerHost {
    name: String,
    process: Child,
}

/// What is changed in one step, and must hold after it.
struct Rollout {
    inventories: Api<MachineInventory>,
    machines: Api<BaremetalMachine>,
}

impl Rollout {
    fn new(setup: &Setup) -> Self {
        let client = &setup.environment.management.admin;
        let inventories = Api::namespaced(client.clone(), NAMESPACE);
        let machines = Api::namespaced(client.clone(), NAMESPACE);
        Self { inventories, machines }
    }

    async fn await_hosts(&self, names: &[String]) -> Result<()> {
        for name in names {
            await_attached(&self.inventories, name, DEADLINE)
                .await
                .with_context(|| format!("{name} attaches"))?;
        }
        Ok(())
    }

    /// Every host carries out its plan and carries the node of a machine.
    async fn await_nodes(&self, names: &[String]) -> Result<()> {
        until_all(&self.machines, watcher::Config::default(), DEADLINE, |machines| {
            let all = machines.len() == names.len() && machines.values().all(is_running);
            Ok(all.then_some(()))
        })
        .await?;
        for name in names {
            let is_applied = |inventory: &MachineInventory| {
                inventory.plan().is_some_and(|plan| {
                    plan.kind == Some(PlanType::Reprovision) && plan.state == Some(PlanState::Applied)
                })
            };
            until(&self.inventories, name, DEADLINE, is_applied)
                .await
                .with_context(|| format!("{name} is a node"))?;
        }
        Ok(())
    }

    async fn await_free(&self, names: &[String]) -> Result<()> {
        for name in names {
            until(&self.inventories, name, DEADLINE, is_free)
                .await
                .with_context(|| format!("{name} is cleaned"))?;
        }
        Ok(())
    }

    /// The plans that every host had, by which it is seen that none came again.
    async fn read_generations(&self, names: &[String]) -> Result<Vec<i64>> {
        let mut generations = vec![];
        for name in names {
            let inventory = self.inventories.get(name).await?;
            generations.push(inventory.plan().and_then(|plan| plan.generation).context("no plan")?);
        }
        Ok(generations)
    }

    /// Every host has a session of a replica of the new coordinator, which has other boots.
    async fn await_sessions(&self, names: &[String], before: &[Option<String>]) -> Result<()> {
        for (name, before) in names.iter().zip(before) {
            let is_new = |inventory: &MachineInventory| {
                let replica = read_replica(inventory);
                replica.is_some() && replica != *before
            };
            until(&self.inventories, name, DEADLINE, is_new)
                .await
                .with_context(|| format!("{name} attaches again"))?;
        }
        Ok(())
    }

    async fn read_replicas(&self, names: &[String]) -> Result<Vec<Option<String>>> {
        let mut replicas = vec![];
        for name in names {
            replicas.push(read_replica(&self.inventories.get(name).await?));
        }
        Ok(replicas)
    }
}

/// One replica after the other, as a Deployment does it.
async fn replace_coordinator(setup: &mut Setup, coordinator: &Path, names: &[String]) -> Result<()> {
    let before = Rollout::new(setup).read_replicas(names).await?;
    let generations = Rollout::new(setup).read_generations(names).await?;
    for replica in &mut setup.environment.management.replicas {
        replica.replace(coordinator, None)?;
        replica.ready().await?;
    }
    let rollout = Rollout::new(setup);
    rollout.await_sessions(names, &before).await?;
    ensure!(rollout.read_generations(names).await? == generations, "a plan came again");
    Ok(())
}

async fn run(
    setup: &mut Setup,
    former: &Former,
    hosts: &mut Vec<Simulated>,
    others: &mut Vec<FormerHost>,
) -> Result<()> {
    let workload = setup.environment.workload.clone();
    let progress = setup.progress.clone();
    let mut names = vec![];

    // Both agents at the former coordinator, with the definitions of this release.
    hosts.push(Simulated::new(workload.clone(), 1)?);
    let mut lifecycle = Lifecycle::new(&setup.environment, &mut hosts[0], progress.clone());
    let iso = lifecycle.create_seed(&setup.base).await?;
    lifecycle.register(&iso).await?;
    names.push(hosts[0].inventory());
    others.push(former.boot_host(setup, &iso, 2).await?);
    names.push(others[0].name.clone());
    Rollout::new(setup).await_hosts(&names).await?;
    Lifecycle::new(&setup.environment, &mut hosts[0], progress.clone()).apply_cluster(&names, 2).await?;
    Rollout::new(setup).await_nodes(&names).await?;

    // Both at the coordinator of this release: hosts of before, and new ones.
    progress.step("the coordinator is upgraded");
    let present = find_binary("coordinator", "baremetal-coordinator")?;
    replace_coordinator(setup, &present, &names).await?;
    hosts.push(Simulated::new(workload, 3)?);
    hosts[1].boot(&iso).await?;
    names.push(hosts[1].inventory());
    others.push(former.boot_host(setup, &iso, 4).await?);
    names.push(others[1].name.clone());
    Rollout::new(setup).await_hosts(&names).await?;
    Lifecycle::new(&setup.environment, &mut hosts[0], progress.clone()).apply_cluster(&names, 4).await?;
    Rollout::new(setup).await_nodes(&names).await?;
    let lifecycle = Lifecycle::new(&setup.environment, &mut hosts[0], progress.clone());
    lifecycle.scale(json!({ "spec": { "replicas": 0 } })).await?;
    Rollout::new(setup).await_free(&names).await?;

    // And back: what this release wrote is read by the former one.
    progress.step("the coordinator is rolled back");
    replace_coordinator(setup, &former.coordinator(), &names).await?;
    let lifecycle = Lifecycle::new(&setup.environment, &mut hosts[0], progress.clone());
    lifecycle.scale(json!({ "spec": { "replicas": 4 } })).await?;
    Rollout::new(setup).await_nodes(&names).await?;
    for host in others {
        ensure!(host.process.try_wait()?.is_none(), "{} has ended", host.name);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_interoperate() {
    let former = Former::from_environment().unwrap();
    let mut setup = Setup::start().await;
    let (mut hosts, mut others) = (vec![], vec![]);
    let result = run(&mut setup, &former, &mut hosts, &mut others).await;
    setup.check(result);
}
