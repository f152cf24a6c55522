//! A cluster whose control plane and worker are hosts in QEMU or in User Mode Linux: docs/examples/, real
//! managers, real `kubeadm init` and `join`, real etcd.

mod endpoint;
mod hosts;
mod load_balancer;
mod losses;
mod partition;
mod quorum;
mod replacement;
mod scale;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use control_plane::kubeconfig;
use control_plane::parts::{Module, Part};
use coordinator_api::conditions::{Type, find_condition};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::{BaremetalMachine, Phase};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::commands::run_with_input;
use crate::control_planes::{
    control_planes, delete_cluster, has_settled, is_true, kubelet_version, patch, until_named,
};
use crate::lifecycle::{NAMESPACE, await_node_ref, cluster_api, is_free, is_running};
use crate::manifests::fill;
use crate::progress::Progress;
use crate::requests::retry;
use crate::site::Site;
use crate::watching::{until, until_all};

pub use hosts::{Hosts, taps};
use load_balancer::LoadBalancer;

/// Of the cluster, its control plane, and its workers in docs/examples/.
const NAME: &str = "site";
const WORKERS: &str = "workers";
/// The address that hosts hold, in `manifests/hosts/internal`.
const ADDRESS: &str = "10.77.0.100";
/// An emulated host takes its time.
const DEADLINE: Duration = Duration::from_hours(1);

/// What is in front of the API servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A load balancer outside of the cluster.
    External,
    /// The hosts hold the address themselves.
    Internal,
}

/// The cluster of docs/examples/.
pub struct ClusterOfHosts<'a> {
    site: &'a Site,
    progress: &'a Arc<Progress>,
    pub hosts: Hosts<'a>,
    endpoint: Endpoint,
    /// How many hosts are to be control planes.
    control_planes: usize,
    /// Numbers of the hosts that are control planes.
    members: Vec<u8>,
    /// Release of Kubernetes.
    release: &'static str,
    _load_balancer: Option<LoadBalancer>,
    pub proven: Vec<String>,
}

impl<'a> ClusterOfHosts<'a> {
    /// Nothing of it is there yet.
    ///
    /// # Errors
    /// When the address of the load balancer is taken.
    pub async fn create(
        site: &'a Site,
        progress: &'a Arc<Progress>,
        hosts: Hosts<'a>,
        endpoint: Endpoint,
        (control_planes, release): (usize, &'static str),
    ) -> anyhow::Result<Self> {
        let load_balancer = match endpoint {
            Endpoint::External => Some(LoadBalancer::start().await?),
            Endpoint::Internal => None,
        };
        Ok(Self {
            site,
            progress,
            hosts,
            endpoint,
            control_planes,
            members: vec![],
            release,
            _load_balancer: load_balancer,
            proven: vec![],
        })
    }

    /// Registers the hosts of the control plane, and applies the cluster.
    ///
    /// # Errors
    /// When a host does not attach, or the API server refuses.
    pub async fn apply(&mut self) -> anyhow::Result<()> {
        self.hosts.register(&hosts::CONTROL_PLANES[..self.control_planes]).await?;
        let what = "the examples are applied: pools, Cluster, KubeadmControlPlane, MachineDeployment";
        self.progress.step(what);
        let examples = match self.endpoint {
            Endpoint::External => "cluster",
            Endpoint::Internal if self.control_planes == 1 => "internal",
            Endpoint::Internal => "available",
        };
        apply_examples(self.site, examples, &[("RELEASE", self.release)]).await
    }

    fn client(&self) -> &Client {
        &self.site.management.admin
    }

    /// Waits until kubeadm has made the control plane on a host.
    ///
    /// # Errors
    /// When it does not come.
    pub async fn await_initialized(&mut self) -> anyhow::Result<()> {
        self.progress.step("the first host runs kubeadm init: etcd and the API server are static pods");
        let is_initialized = |found: &DynamicObject| is_true(found, "Initialized");
        until_named(&control_planes(self.client()), NAME, DEADLINE, is_initialized).await?;
        self.proven.push("kubeadm init on a host: the KubeadmControlPlane is initialized".to_owned());
        Ok(())
    }

    /// Registers the worker's host, and not before: hosts that wait take time from those
    /// that work.
    ///
    /// # Errors
    /// When the host does not attach.
    pub async fn register_worker(&mut self) -> anyhow::Result<()> {
        self.hosts.register(&[hosts::WORKER]).await
    }

    /// Waits until the cluster is available with its control plane and its
    /// worker of these releases.
    pub async fn await_available(&mut self, control_plane: &str, worker: &str) -> anyhow::Result<()> {
        let count = self.control_planes;
        self.progress
            .step(&format!("{count} control planes of {control_plane}, worker of {worker}: available"));
        // The statuses come last: at first they are those of the former releases.
        self.await_releases(control_plane, worker).await?;
        until_named(&control_planes(self.client()), NAME, DEADLINE, |found| {
            has_settled(found, count)
                && is_true(found, "Available")
                && found.data["status"]["version"] == control_plane
        })
        .await?;
        let deployments = cluster_api(self.client(), "MachineDeployment");
        until_named(&deployments, WORKERS, DEADLINE, |found| has_settled(found, 1)).await?;
        let clusters = cluster_api(self.client(), "Cluster");
        until_named(&clusters, NAME, DEADLINE, |cluster| is_true(cluster, "Available")).await?;
        let machines = self.await_machines().await?;
        self.members = self.check_nodes(&machines, control_plane, worker).await?;
        if self.endpoint == Endpoint::Internal {
            let holder = self.await_holder().await?;
            self.proven
                .push(format!("{ADDRESS}, the endpoint, is held by host {holder} and by no other host"));
        }
        self.proven.push(format!(
            "the Cluster is available with {count} control planes of {control_plane} and a worker of {worker}; \
             each Node has our providerID and metal3.io/uuid, and is the nodeRef of its Machine"
        ));
        Ok(())
    }

    /// Waits until each Machine is of the release of its role, and there is no other.
    async fn await_releases(&self, control_plane: &str, worker: &str) -> anyhow::Result<()> {
        let machines = cluster_api(self.client(), "Machine");
        until_all(&machines, watcher::Config::default(), DEADLINE, |machines| {
            let is_wanted = |machine: &DynamicObject| {
                let is_control_plane = machine.labels().contains_key("cluster.x-k8s.io/control-plane");
                machine.data["spec"]["version"] == if is_control_plane { control_plane } else { worker }
            };
            let all = machines.len() == self.control_planes + 1 && machines.values().all(is_wanted);
            Ok(all.then_some(()))
        })
        .await
    }

    /// The machines of both roles, and no other.
    async fn await_machines(&self) -> anyhow::Result<BTreeMap<String, BaremetalMachine>> {
        let api: Api<BaremetalMachine> = Api::namespaced(self.client().clone(), NAMESPACE);
        until_all(&api, watcher::Config::default(), DEADLINE, |machines| {
            let all = machines.len() == self.control_planes + 1 && machines.values().all(is_running);
            Ok(all.then(|| machines.clone()))
        })
        .await
    }

    async fn check_nodes(
        &self,
        machines: &BTreeMap<String, BaremetalMachine>,
        control_plane: &str,
        worker: &str,
    ) -> anyhow::Result<Vec<u8>> {
        let mut members = vec![];
        let nodes: Api<Node> = Api::all(self.workload().await?);
        let nodes = retry("list Nodes", async || nodes.list(&ListParams::default()).await).await?.items;
        ensure!(
            nodes.len() == machines.len(),
            "the machines are {:?}, the Nodes {nodes:#?}",
            machines.keys()
        );
        let inventories: Api<MachineInventory> = Api::namespaced(self.client().clone(), NAMESPACE);
        for machine in machines.values() {
            let provider_id = machine.spec.provider_id.as_deref().unwrap_or_default();
            let stated = |node: &&Node| {
                node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == Some(provider_id)
            };
            let node = nodes
                .iter()
                .find(stated)
                .with_context(|| format!("no Node has {provider_id}: {nodes:#?}"))?;
            let is_control_plane = node.labels().contains_key("node-role.kubernetes.io/control-plane");
            let version = if is_control_plane { control_plane } else { worker };
            ensure!(kubelet_version(node) == version, "{} runs {}", node.name_any(), kubelet_version(node));
            let name = provider_id.trim_start_matches("baremetal:///");
            if is_control_plane {
                members.push(self.hosts.find_number(name)?);
            }
            let inventory = retry("read an inventory", async || inventories.get(name).await).await?;
            ensure!(node.labels().get("metal3.io/uuid") == inventory.uid().as_ref(), "{:?}", node.labels());
            let owner = machine.owner_references().first().context("a machine without owner")?.name.clone();
            let named = await_node_ref(self.client(), &owner).await?;
            ensure!(named == node.name_any(), "the Machine of {} names {named}", node.name_any());
        }
        Ok(members)
    }

    /// Waits until each Node is ready.
    async fn await_ready_nodes(&self, nodes: &Api<Node>) -> anyhow::Result<()> {
        let count = self.members.len() + 1;
        until_all(nodes, watcher::Config::default(), DEADLINE, |nodes| {
            let is_ready = |node: &Node| {
                let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
                conditions.into_iter().flatten().any(|found| found.type_ == "Ready" && found.status == "True")
            };
            Ok((nodes.len() == count && nodes.values().all(is_ready)).then_some(()))
        })
        .await
    }

    /// A client of the cluster, by the Secret that Cluster API made.
    async fn workload(&self) -> anyhow::Result<Client> {
        Ok(kubeconfig::client(&self.kubeconfig().await?).await?)
    }

    async fn kubeconfig(&self) -> anyhow::Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.client().clone(), NAMESPACE);
        let name = format!("{NAME}-kubeconfig");
        let secret = retry("read the kubeconfig", async || secrets.get(&name).await).await?;
        let text = secret.data.and_then(|mut data| data.remove("value")).context("it has no value")?;
        Ok(String::from_utf8(text.0)?)
    }

    /// Rolls both to the newest release.
    pub async fn upgrade(&mut self) -> anyhow::Result<()> {
        if self.control_planes == 1 {
            let [_, spare, _] = hosts::CONTROL_PLANES;
            self.hosts.register(&[spare]).await?;
        }
        let (from, to) = (self.release, Module::Kubernetes.version());
        self.progress.step(&format!("the control plane is upgraded to {to}"));
        patch(&control_planes(self.client()), NAME, json!({ "version": to })).await?;
        self.await_available(to, from).await?;
        self.progress.step(&format!("the worker is upgraded to {to}, on its host"));
        let spec = json!({ "template": { "spec": { "version": to } } });
        patch(&cluster_api(self.client(), "MachineDeployment"), WORKERS, spec).await?;
        self.release = to;
        self.await_available(to, to).await
    }

    /// Deletes the Cluster: every host is available, and nothing of it is left
    /// there.
    pub async fn delete(&mut self) -> anyhow::Result<()> {
        self.progress.step("the Cluster is deleted, and every host is available");
        delete_cluster(self.client(), NAME, DEADLINE).await?;
        let inventories: Api<MachineInventory> = Api::namespaced(self.client().clone(), NAMESPACE);
        for (name, carried) in self.hosts.names().into_iter().zip(self.hosts.carried().await?) {
            // A host that was never needed has no plan.
            if carried {
                until(&inventories, &name, DEADLINE, is_free).await?;
            }
        }
        self.hosts.check_clean().await?;
        self.proven
            .push("deleted: each host is available, with nothing of etcd or of a node on it".to_owned());
        Ok(())
    }
}

/// Waits for the first machine whose plan has failed: only an operator can help it, so that all else
/// would be waited for in vain.
pub async fn first_failure(client: &Client) -> anyhow::Error {
    let machines: Api<BaremetalMachine> = Api::namespaced(client.clone(), NAMESPACE);
    let found = until_all(&machines, watcher::Config::default(), Duration::MAX, |machines| {
        Ok(machines.iter().find_map(|(name, machine)| Some((name.clone(), describe_failure(machine)?))))
    })
    .await;
    match found {
        Ok((name, message)) => anyhow!("BaremetalMachine {name} has failed: {message}"),
        Err(error) => error,
    }
}

fn describe_failure(machine: &BaremetalMachine) -> Option<String> {
    let status = machine.status.as_ref().filter(|status| status.phase == Some(Phase::Failed))?;
    let applied = find_condition(&status.conditions, Type::PlanApplied)?;
    (applied.status == "False").then(|| applied.message.clone())
}

/// Applies a part of docs/examples/ as an operator does, with what the lab changes
/// of it.
pub async fn apply_examples(site: &Site, what: &str, values: &[(&str, &str)]) -> anyhow::Result<()> {
    let kubectl = site.parts.path(Part::Kubectl)?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/hosts").join(what);
    let directory = directory.display().to_string();
    let arguments = ["kustomize", "--load-restrictor=LoadRestrictionsNone", &directory];
    let rendered = fill(&run_with_input(&kubectl, &arguments, "").await?, values);
    let kubeconfig = site.management.control_plane.admin_kubeconfig().display().to_string();
    run_with_input(&kubectl, &["--kubeconfig", &kubeconfig, "apply", "--filename=-"], &rendered).await?;
    Ok(())
}
