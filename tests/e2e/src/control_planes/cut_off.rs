//! Workers that lose the coordinator for an hour while their Nodes are healthy: a health check of Cluster API's book
//! deletes no machine.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use tokio::time::sleep;

use super::{Cluster, until_named};
use crate::fleet::Fleet;
use crate::lifecycle::cluster_api;
use crate::manifests;
use crate::requests::retry;
use crate::watching::until;

const DEADLINE: Duration = Duration::from_mins(2);
/// Many times longer than the check waits and than its controller takes to see a change.
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker, with the names of its Machine and its host.
struct Worker {
    name: String,
    machine: String,
    host: String,
}

impl Cluster<'_> {
    /// The connections of all workers to the coordinator end, and none is made for an hour.
    ///
    /// # Errors
    /// When a machine is deleted, or does not say that its host is away.
    pub async fn lose_coordinator(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        self.progress
            .step("the workers lose the coordinator for an hour: the book's health check deletes none");
        self.environment.management.apply(manifests::BOOK_HEALTH_CHECK).await?;
        let workers = self.list_workers().await?;
        for worker in &workers {
            // Its Node stays as it is: to the management cluster a host without power and one without network are one.
            fleet.host(&worker.host)?.power_off();
            self.age_session(&worker.host).await?;
        }
        for worker in &workers {
            self.await_unknown(worker).await?;
        }
        let checks = cluster_api(self.client(), "MachineHealthCheck");
        let count = workers.len();
        let counts_all = |check: &DynamicObject| {
            let status = &check.data["status"];
            status["expectedMachines"] == count && status["currentHealthy"] == count
        };
        until_named(&checks, "book", DEADLINE, counts_all)
            .await
            .context("the health check counts the workers")?;
        sleep(PATIENCE).await;
        let check = retry("read the health check", async || checks.get("book").await).await?;
        ensure!(counts_all(&check), "the health check holds healthy nodes for unhealthy: {:#?}", check.data);
        self.check_kept(&workers).await?;
        for worker in &workers {
            fleet.host(&worker.host)?.power_on();
        }
        for worker in &workers {
            let is_ready =
                |machine: &BaremetalMachine| ready(machine).is_some_and(|(status, _)| status == "True");
            until(&self.api::<BaremetalMachine>(), &worker.name, DEADLINE, is_ready).await?;
        }
        retry("delete the health check", async || checks.delete("book", &DeleteParams::default()).await)
            .await?;
        Ok(())
    }

    async fn list_workers(&self) -> anyhow::Result<Vec<Worker>> {
        let selected = ListParams::default().labels("lab/role=worker");
        let machines = self.api::<BaremetalMachine>();
        let found = retry("list workers", async || machines.list(&selected).await).await?;
        let workers = found.items.iter().map(|worker| {
            let owner = worker.owner_references().iter().find(|owner| owner.kind == "Machine");
            Ok(Worker {
                name: worker.name_any(),
                machine: owner.context("a worker without Machine")?.name.clone(),
                host: worker
                    .annotations()
                    .get(annotation::MACHINE_INVENTORY)
                    .cloned()
                    .context("a worker without host")?,
            })
        });
        let workers = workers.collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!workers.is_empty(), "there are workers");
        Ok(workers)
    }

    /// Waits until the machine says that nothing is known of its host, and Cluster API has read that.
    async fn await_unknown(&self, worker: &Worker) -> anyhow::Result<()> {
        let is_away = |machine: &BaremetalMachine| {
            ready(machine).is_some_and(|(status, reason)| {
                status == "Unknown" && reason == Reason::HostUnreachable.as_str()
            })
        };
        until(&self.api::<BaremetalMachine>(), &worker.name, DEADLINE, is_away).await?;
        let machines = cluster_api(self.client(), "Machine");
        until_named(&machines, &worker.machine, DEADLINE, |machine| {
            let conditions = machine.data["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "InfrastructureReady" && condition["status"] == "Unknown"
            })
        })
        .await
        .context("Cluster API mirrors it")
    }

    async fn check_kept(&self, workers: &[Worker]) -> anyhow::Result<()> {
        let machines = cluster_api(self.client(), "Machine");
        for worker in workers {
            let found = retry("read a Machine", async || machines.get(&worker.machine).await).await?;
            ensure!(found.metadata.deletion_timestamp.is_none(), "Machine {} is deleted", worker.machine);
        }
        Ok(())
    }
}

/// Status and reason of `Ready`.
fn ready(machine: &BaremetalMachine) -> Option<(String, String)> {
    let ready = find_condition(&machine.status.as_ref()?.conditions, Type::Ready)?;
    Some((ready.status.clone(), ready.reason.clone()))
}
