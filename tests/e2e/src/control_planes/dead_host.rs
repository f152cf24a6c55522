//! A worker whose host dies: Cluster API's health check replaces its machine.

use std::time::Duration;

use anyhow::Context as _;
use coordinator_api::conditions::{Reason, Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use coordinator_api::pool::MachineInventoryPool;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Cluster, WORKERS};
use crate::fleet::Fleet;
use crate::lifecycle::{NAMESPACE, is_free};
use crate::manifests;
use crate::requests::retry;
use crate::watching::until;

/// Longer than the time after which a host is unreachable.
const SILENCE: Duration = Duration::from_hours(1);
const DEADLINE: Duration = Duration::from_mins(2);

impl Cluster<'_> {
    /// The host of a worker loses its power, and its Node is not ready
    /// any more. Its machine is replaced, and held until the pool gives up
    /// unreachable hosts.
    pub async fn lose_worker(&self, fleet: &mut Fleet) -> anyhow::Result<String> {
        self.progress.step("the host of the worker dies: a MachineHealthCheck replaces its machine");
        self.environment.management.apply(manifests::HEALTH_CHECK).await?;
        let (machine, host) = self.find_worker().await?;
        fleet.host(&host)?.power_off();
        self.environment.workload.lose_node(&host).await?;
        self.age_session(&host).await?;
        self.await_held(&machine.name_any()).await?;
        Ok(host)
    }

    /// The pool gives up unreachable hosts.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn abandon_unreachable_hosts(&self) -> anyhow::Result<()> {
        self.progress.step("the pool gives up unreachable hosts: the machine of the dead host goes");
        let pools: Api<MachineInventoryPool> = self.api();
        let opt_in = Patch::Merge(json!({ "spec": { "abandonUnreachableAfter": "1m" } }));
        retry("change the pool", async || pools.patch(WORKERS, &PatchParams::default(), &opt_in).await)
            .await?;
        Ok(())
    }

    /// The dead host returns: it is cleaned, and available.
    ///
    /// # Errors
    /// When it is not.
    pub async fn return_host(&self, fleet: &mut Fleet, host: &str) -> anyhow::Result<()> {
        self.progress.step("the dead host returns, is cleaned and available");
        fleet.host(host)?.power_on();
        until(&self.api::<MachineInventory>(), host, DEADLINE, is_free).await?;
        Ok(())
    }

    /// A worker and its host.
    pub(super) async fn find_worker(&self) -> anyhow::Result<(BaremetalMachine, String)> {
        let machines: Api<BaremetalMachine> = self.api();
        let workers = ListParams::default().labels("lab/role=worker");
        let found = retry("list workers", async || machines.list(&workers).await).await?;
        let worker = found.items.into_iter().next().context("there is no worker")?;
        let host = worker.annotations().get(annotation::MACHINE_INVENTORY).cloned();
        Ok((worker, host.context("a worker without host")?))
    }

    /// Waits until the end of the host's session is recorded, and records that
    /// it was long ago: only the passing of time is simulated.
    pub(super) async fn age_session(&self, host: &str) -> anyhow::Result<()> {
        let inventories: Api<MachineInventory> = self.api();
        let session = |inventory: &MachineInventory| inventory.status.clone()?.host?.session;
        let ended = |inventory: &MachineInventory| session(inventory).is_some_and(|it| it.ended.is_some());
        let inventory = until(&inventories, host, DEADLINE, ended).await?;
        let mut session = session(&inventory).context("a host without session")?;
        for time in [Some(&mut session.since), session.ended.as_mut()].into_iter().flatten() {
            time.0 = time.0.checked_sub(SILENCE)?;
        }
        let aged: Value = json!({ "status": { "host": { "session": session } } });
        let params = PatchParams::default();
        retry("age a session", async || inventories.patch_status(host, &params, &Patch::Merge(&aged)).await)
            .await?;
        Ok(())
    }

    /// Waits until the machine is in deletion and says what it waits for.
    async fn await_held(&self, name: &str) -> anyhow::Result<()> {
        let is_held = |machine: &BaremetalMachine| {
            let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice());
            let ready = find_condition(conditions.unwrap_or_default(), Type::Ready);
            machine.metadata.deletion_timestamp.is_some()
                && ready.is_some_and(|ready| {
                    ready.reason == Reason::HostUnreachable.as_str()
                        && ready.message.contains(annotation::RELEASE_WITHOUT_CLEAN)
                })
        };
        until(&self.api::<BaremetalMachine>(), name, DEADLINE, is_held).await?;
        Ok(())
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client().clone(), NAMESPACE)
    }
}
