//! Workers whose Node is not ready: Cluster API's health check has their hosts rebooted,
//! and replaces those that stay unhealthy. And its claims on addresses.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coordinator_api::capi_ipam::{IPAddress, IPAddressClaim};
use coordinator_api::metal3::host::BareMetalHost;
use coordinator_api::metal3::machine::Metal3Machine;
use coordinator_api::metal3::names::HOST_OF_MACHINE;
use coordinator_api::metal3::remediation::{Metal3Remediation, Phase};
use coordinator_api::names::annotation;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{CONTROL_PLANE_LABEL, Cluster};
use crate::fleet::Fleet;
use crate::host::Disk;
use crate::lifecycle::NAMESPACE;
use crate::manifests;
use crate::requests::retry;
use crate::watching::{until, until_all};

const DEADLINE: Duration = Duration::from_mins(3);
/// What CAPM3 and ours write on a host that is given up.
const UNHEALTHY: &str = "capi.metal3.io/unhealthy";

/// A worker: names of its machine, its `BareMetalHost` and the inventory of that.
struct Worker {
    machine: String,
    host: String,
    inventory: String,
}

impl Cluster<'_> {
    fn metal3_api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client().clone(), NAMESPACE)
    }

    async fn find_metal3_worker(&self) -> anyhow::Result<Worker> {
        let machines: Api<Metal3Machine> = self.metal3_api();
        let all = retry("list machines", async || machines.list(&ListParams::default()).await).await?;
        let is_worker = |machine: &&Metal3Machine| !machine.labels().contains_key(CONTROL_PLANE_LABEL);
        let machine = all.items.iter().find(is_worker).context("there is no worker")?;
        let host = machine.annotations().get(HOST_OF_MACHINE).and_then(|text| text.split_once('/'));
        let host = host.map(|(_, name)| name.to_owned()).context("a worker without host")?;
        let hosts: Api<BareMetalHost> = self.metal3_api();
        let object = retry("read a host", async || hosts.get(&host).await).await?;
        let inventory = object.annotations().get(annotation::MACHINE_INVENTORY).cloned();
        let inventory = inventory.context("a host without inventory")?;
        Ok(Worker { machine: machine.name_any(), host, inventory })
    }

    /// The Node of a worker is not heard of: its host is rebooted, once, and its kubelet
    /// is heard of again.
    pub async fn remediate_worker(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        self.progress.step("a worker is not heard of: a MachineHealthCheck has its host rebooted");
        self.environment.management.apply(manifests::METAL3_HEALTH_CHECK).await?;
        let worker = self.find_metal3_worker().await?;
        let disk = fleet.host(&worker.inventory)?.disk();
        let before = count_reboots(&disk);
        self.environment.workload.lose_node(&worker.host).await?;
        let hosts: Api<BareMetalHost> = self.metal3_api();
        // The request is on the host until it was carried out, and its remediation has seen that.
        let is_over = |host: &BareMetalHost| count_reboots(&disk) > before && !is_asked(host);
        until(&hosts, &worker.host, DEADLINE, is_over).await?;
        self.await_no_remediation().await?;
        let reboots = count_reboots(&disk) - before;
        ensure!(reboots == 1, "the host rebooted {reboots} times");
        let machines: Api<Metal3Machine> = self.metal3_api();
        until(&machines, &worker.machine, DEADLINE, |machine| {
            machine.metadata.deletion_timestamp.is_none()
                && machine.status.as_ref().is_some_and(|status| status.ready)
        })
        .await?;
        Ok(())
    }

    async fn await_no_remediation(&self) -> anyhow::Result<()> {
        let remediations: Api<Metal3Remediation> = self.metal3_api();
        let is_empty = |all: &BTreeMap<String, Metal3Remediation>| Ok(all.is_empty().then_some(()));
        until_all(&remediations, watcher::Config::default(), DEADLINE, is_empty).await
    }

    /// The kubelet of a worker does not come back with a reboot, nor with another one: the
    /// worker is replaced on another host. The answer is the host that it was on.
    pub async fn replace_worker(&self, fleet: &mut Fleet) -> anyhow::Result<String> {
        self.progress.step("reboots do not help another worker: it is replaced, on another host");
        let worker = self.find_metal3_worker().await?;
        let disk = fleet.host(&worker.inventory)?.disk();
        let before = count_reboots(&disk);
        disk.break_kubelet()?;
        self.environment.workload.lose_node(&worker.host).await?;
        for retries in 0..2 {
            self.await_try(&worker.machine, retries).await?;
            ensure!(count_reboots(&disk) == before + 1 + usize::try_from(retries)?, "try {retries}");
            self.age_try(&worker.machine).await?;
        }
        let hosts: Api<BareMetalHost> = self.metal3_api();
        // A host is kept for the successors of its machine: no machine uses it.
        until(&hosts, &worker.host, DEADLINE, |host| {
            let consumer = host.spec.consumer_ref.as_ref();
            host.annotations().contains_key(UNHEALTHY)
                && consumer.is_none_or(|consumer| consumer.kind == "Cluster")
        })
        .await?;
        self.await_no_remediation().await?;
        Ok(worker.host)
    }

    /// Waits until the host has rebooted that often, and the node is waited for.
    async fn await_try(&self, name: &str, retries: i32) -> anyhow::Result<()> {
        let remediations: Api<Metal3Remediation> = self.metal3_api();
        until(&remediations, name, DEADLINE, |remediation| {
            let status = remediation.status.clone().unwrap_or_default();
            status.phase == Some(Phase::Waiting) && status.retry_count.unwrap_or_default() == retries
        })
        .await?;
        Ok(())
    }

    /// Its try began long ago: only the passing of time is simulated.
    async fn age_try(&self, name: &str) -> anyhow::Result<()> {
        let remediations: Api<Metal3Remediation> = self.metal3_api();
        let aged = Patch::Merge(json!({ "status": { "lastRemediated": "2020-01-01T00:00:00Z" } }));
        let params = PatchParams::default();
        retry("age a remediation", async || remediations.patch_status(name, &params, &aged).await).await?;
        Ok(())
    }

    /// A host that was given up is repaired.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn repair_host(&self, host: &str) -> anyhow::Result<()> {
        let hosts: Api<BareMetalHost> = self.metal3_api();
        let repaired = Patch::Merge(json!({ "metadata": { "annotations": { UNHEALTHY: null } } }));
        let params = PatchParams::default();
        retry("repair a host", async || hosts.patch(host, &params, &repaired).await).await?;
        Ok(())
    }

    /// A claim of Cluster API, at its older version, is given an address of the pool that
    /// the machines use, and gives it back.
    pub async fn check_address_claim(&self) -> anyhow::Result<()> {
        self.progress.step("an IPAddressClaim of Cluster API has an address of the pool");
        let claim = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
            "kind": "IPAddressClaim",
            "metadata": { "name": "spare", "namespace": NAMESPACE },
            "spec": {
                "clusterName": "lab",
                "poolRef": { "apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "provisioning" },
            },
        });
        self.environment.management.apply(&claim.to_string()).await?;
        let claims: Api<IPAddressClaim> = self.metal3_api();
        let is_given = |claim: &IPAddressClaim| {
            let status = claim.status.clone().unwrap_or_default();
            let ready =
                status.conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True");
            ready && status.address_ref.is_some_and(|given| given.name == "spare")
        };
        until(&claims, "spare", DEADLINE, is_given).await?;
        let addresses: Api<IPAddress> = self.metal3_api();
        let given = retry("read an address", async || addresses.get("spare").await).await?.spec;
        ensure!(given.address.starts_with("192.0.2.2"), "{given:?}");
        ensure!((given.prefix, given.gateway.as_deref()) == (Some(24), Some("192.0.2.1")), "{given:?}");
        let params = DeleteParams::default();
        retry("delete a claim", async || claims.delete("spare", &params).await.map(drop)).await?;
        let is_empty = |all: &BTreeMap<String, IPAddress>| Ok(all.is_empty().then_some(()));
        until_all(&addresses, watcher::Config::default(), DEADLINE, is_empty).await
    }
}

fn is_asked(host: &BareMetalHost) -> bool {
    host.annotations().keys().any(|key| key.contains("reboot"))
}

fn count_reboots(disk: &Disk) -> usize {
    disk.effects().iter().filter(|effect| effect.starts_with("reboot")).count()
}
