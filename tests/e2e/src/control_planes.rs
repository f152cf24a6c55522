//! A cluster whose control planes are hosts: what Cluster API's kubeadm managers
//! make of ours.

mod cut_off;
mod dead_host;
pub mod metal3;
mod remediation;
mod removal;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::metal3::machine::Metal3Machine;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::lifecycle::{NAMESPACE, cluster_api, is_available, is_free};
use crate::manifests::{self, fill};
use crate::progress::Progress;
use crate::requests::retry;
use crate::watching::{until, until_all};

/// The group of control planes.
pub const GROUP: &str = "controlplane.cluster.x-k8s.io";
/// Of the cluster and its control plane.
const NAME: &str = "lab";
const WORKERS: &str = "workers";
const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// A rollout of three control planes, one after the other.
const DEADLINE: Duration = Duration::from_mins(6);

/// How many machines of which version a cluster has.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Replicas and version of the `KubeadmControlPlane`.
    pub control_planes: (usize, &'a str),
    /// Replicas and version of the `MachineDeployment`.
    pub workers: (usize, &'a str),
}

/// The kinds that the infrastructure of a cluster is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Infrastructure {
    Baremetal,
    Metal3,
}

impl Infrastructure {
    fn kind(self) -> ApiResource {
        match self {
            Self::Baremetal => ApiResource::erase::<BaremetalMachine>(&()),
            Self::Metal3 => ApiResource::erase::<Metal3Machine>(&()),
        }
    }

    /// Whether a machine has a node and shows it.
    fn is_running(self, machine: &DynamicObject) -> bool {
        let running = match self {
            Self::Baremetal => "Running",
            Self::Metal3 => "provisioned",
        };
        machine.data["spec"]["providerID"].is_string()
            && machine.data["status"]["ready"] == true
            && machine.data["status"]["phase"] == running
    }
}

/// The cluster `lab`.
pub struct Cluster<'a> {
    environment: &'a Environment,
    progress: &'a Arc<Progress>,
    infrastructure: Infrastructure,
}

impl<'a> Cluster<'a> {
    /// Applies it, with one control plane and one worker of v1.36.3.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn apply(
        environment: &'a Environment,
        progress: &'a Arc<Progress>,
        (control_planes, workers): (&[String], &[String]),
    ) -> anyhow::Result<Self> {
        let members = |names: &[String]| {
            let members: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
            json!(members).to_string()
        };
        let cluster = Self { environment, progress, infrastructure: Infrastructure::Baremetal };
        let values = [("CONTROL_PLANES", members(control_planes)), ("WORKERS", members(workers))];
        cluster.apply_manifest(manifests::CONTROL_PLANES, &values).await?;
        Ok(cluster)
    }

    /// Applies it by the kinds of Metal3, with one control plane and two workers of
    /// v1.36.3.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn apply_metal3(
        environment: &'a Environment,
        progress: &'a Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let cluster = Self { environment, progress, infrastructure: Infrastructure::Metal3 };
        cluster.apply_manifest(manifests::METAL3, &[]).await?;
        Ok(cluster)
    }

    async fn apply_manifest(&self, manifest: &str, values: &[(&str, String)]) -> anyhow::Result<()> {
        self.progress.step("cluster, KubeadmControlPlane and MachineDeployment are applied");
        let (management, workload) = (&self.environment.management, &self.environment.workload);
        for secret in workload.authority_secrets(NAMESPACE, NAME)? {
            management.apply_secret(NAMESPACE, secret).await?;
        }
        let endpoint = workload.endpoint();
        let (host, port) = (endpoint.ip().to_string(), endpoint.port().to_string());
        let mut filled = vec![("ENDPOINT_HOST", host.as_str()), ("ENDPOINT_PORT", port.as_str())];
        filled.extend(values.iter().map(|(name, value)| (*name, value.as_str())));
        management.apply(&fill(manifest, &filled)).await
    }

    fn client(&self) -> &Client {
        &self.environment.management.admin
    }

    /// Changes the `KubeadmControlPlane`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn change_control_plane(&self, what: &str, spec: Value) -> anyhow::Result<()> {
        self.progress.step(what);
        patch(&control_planes(self.client()), NAME, spec).await
    }

    /// Changes the `MachineDeployment`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn change_workers(&self, what: &str, spec: Value) -> anyhow::Result<()> {
        self.progress.step(what);
        patch(&cluster_api(self.client(), "MachineDeployment"), WORKERS, spec).await
    }

    /// Waits until the cluster is available in this shape, checks that machines,
    /// hosts and Nodes agree, and returns the providerIDs.
    pub async fn await_shape(&self, shape: Shape<'_>) -> anyhow::Result<BTreeSet<String>> {
        // The statuses come last: at first they are those of the former shape.
        self.await_nodes(shape, None).await?;
        let machines = self.await_machines(shape).await?;
        let hosts: BTreeSet<String> = machines.values().filter_map(read_provider_id).collect();
        self.await_nodes(shape, Some(&hosts)).await?;
        let (count, version) = shape.control_planes;
        until_named(&control_planes(self.client()), NAME, DEADLINE, |control_plane| {
            has_settled(control_plane, count)
                && is_true(control_plane, "Initialized")
                && is_true(control_plane, "Available")
                && control_plane.data["status"]["version"] == version
        })
        .await?;
        let deployments = cluster_api(self.client(), "MachineDeployment");
        let is_settled = |deployment: &DynamicObject| has_settled(deployment, shape.workers.0);
        until_named(&deployments, WORKERS, DEADLINE, is_settled).await?;
        let clusters = cluster_api(self.client(), "Cluster");
        until_named(&clusters, NAME, DEADLINE, |cluster| is_true(cluster, "Available")).await?;
        Ok(hosts)
    }

    /// Waits until each Node is of a role and version of the shape, and on one
    /// of `hosts` where they are known, and there is no other Node.
    async fn await_nodes(&self, shape: Shape<'_>, hosts: Option<&BTreeSet<String>>) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.environment.workload.control_plane().admin().await?);
        let (control_planes, workers) = (shape.control_planes, shape.workers);
        until_all(&nodes, watcher::Config::default(), DEADLINE, |nodes| {
            let count = |is_control_plane: bool, version: &str| {
                let wanted = |node: &&Node| {
                    node.labels().contains_key("node-role.kubernetes.io/control-plane") == is_control_plane
                        && kubelet_version(node) == version
                };
                nodes.values().filter(wanted).count()
            };
            let stated = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            let found: BTreeSet<String> = nodes.values().filter_map(stated).collect();
            let is_shape = nodes.len() == control_planes.0 + workers.0
                && count(true, control_planes.1) == control_planes.0
                && count(false, workers.1) == workers.0;
            Ok((is_shape && hosts.is_none_or(|hosts| *hosts == found)).then_some(()))
        })
        .await
        .with_context(|| format!("wait for the Nodes of {shape:?} on {hosts:?}"))
    }

    /// The machines, once all run and there is no other; control planes are
    /// marked as such.
    async fn await_machines(&self, shape: Shape<'_>) -> anyhow::Result<BTreeMap<String, DynamicObject>> {
        let control_planes = shape.control_planes.0;
        let count = control_planes + shape.workers.0;
        let infrastructure = self.infrastructure;
        let kind = infrastructure.kind();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client().clone(), NAMESPACE, &kind);
        let machines = until_all(&api, watcher::Config::default(), DEADLINE, |machines| {
            let is_running = |machine: &DynamicObject| infrastructure.is_running(machine);
            let all = machines.len() == count && machines.values().all(is_running);
            Ok(all.then(|| machines.clone()))
        })
        .await?;
        let marked = machines.values().filter(|machine| machine.labels().contains_key(CONTROL_PLANE_LABEL));
        ensure!(marked.count() == control_planes, "{machines:#?}");
        for machine in machines.values() {
            let cloned = machine.annotations().get("cluster.x-k8s.io/cloned-from-groupkind");
            let wanted = format!("{}Template.infrastructure.cluster.x-k8s.io", kind.kind);
            ensure!(cloned == Some(&wanted), "{:?}", machine.annotations());
            let owned = machine.owner_references().iter().filter(|owner| owner.controller == Some(true));
            ensure!(owned.count() == 1, "{:?}", machine.owner_references());
        }
        Ok(machines)
    }

    /// A line of the private key of the cluster's authority, which its control
    /// planes have.
    ///
    /// # Errors
    /// When the key has none.
    pub fn secret(&self) -> anyhow::Result<&str> {
        let authority = self.environment.workload.control_plane().authority();
        authority.pair().key.lines().nth(1).context("the key of the authority is empty")
    }

    /// Deletes the Cluster and waits until every one of `hosts` is available.
    ///
    /// # Errors
    /// When something stays.
    pub async fn delete(&self, hosts: &[String]) -> anyhow::Result<()> {
        self.progress.step("the Cluster is deleted, and every host is available");
        delete_cluster(self.client(), NAME, DEADLINE).await?;
        let inventories: Api<MachineInventory> = Api::namespaced(self.client().clone(), NAMESPACE);
        for host in hosts {
            // A spare one may never have had a plan.
            let had_none = |host: &MachineInventory| host.plan().is_none_or(|plan| plan.kind.is_none());
            let is_spare = |host: &MachineInventory| had_none(host) && is_available(host);
            until(&inventories, host, DEADLINE, |host| is_free(host) || is_spare(host)).await?;
        }
        Ok(())
    }
}

/// Deletes the only Cluster, and waits until it is gone.
pub(crate) async fn delete_cluster(client: &Client, name: &str, limit: Duration) -> anyhow::Result<()> {
    let clusters = cluster_api(client, "Cluster");
    retry("delete the Cluster", async || clusters.delete(name, &DeleteParams::default()).await).await?;
    let is_empty = |objects: &BTreeMap<String, DynamicObject>| Ok(objects.is_empty().then_some(()));
    until_all(&clusters, watcher::Config::default(), limit, is_empty).await
}

fn read_provider_id(machine: &DynamicObject) -> Option<String> {
    machine.data["spec"]["providerID"].as_str().map(str::to_owned)
}

pub(crate) fn kubelet_version(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map_or("", |info| &info.kubelet_version)
}

/// The kind of control planes.
pub fn control_plane_kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta2", "KubeadmControlPlane"))
}

pub(crate) fn control_planes(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &control_plane_kind())
}

pub(crate) async fn patch(api: &Api<DynamicObject>, name: &str, spec: Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    retry("change a cluster", async || api.patch(name, &PatchParams::default(), &patch).await).await?;
    Ok(())
}

pub(crate) async fn until_named(
    api: &Api<DynamicObject>,
    name: &str,
    limit: Duration,
    is: impl Fn(&DynamicObject) -> bool,
) -> anyhow::Result<()> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let found = |objects: &BTreeMap<String, DynamicObject>| Ok(objects.values().any(&is).then_some(()));
    until_all(api, config, limit, found).await.with_context(|| format!("wait for {name}"))
}

/// Whether the status is one of the newest spec, and says that all of
/// `replicas` are there, no more, and of that spec.
pub(crate) fn has_settled(object: &DynamicObject, replicas: usize) -> bool {
    let status = &object.data["status"];
    let counts = ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"];
    status["observedGeneration"].as_i64() == object.metadata.generation
        && counts.iter().all(|count| status[count] == replicas)
        && !is_true(object, "RollingOut")
}

pub(crate) fn is_true(object: &DynamicObject, condition: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["status"] == "True")
}
