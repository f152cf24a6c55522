//! The objects of a cluster, created as Cluster API would.

use anyhow::Context as _;
use control_plane::apply;
use coordinator_api::capi;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::protocol::host_name;
use crate::site::{NAMESPACE, Site};

/// Creations and deletions at a time.
const CONCURRENT: usize = 16;
/// The image catalog has it.
const VERSION: &str = "v1.36.3";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

const CLUSTER: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: elemental-image-catalog, namespace: baremetal-system}
data: {v1.36.3: 'registry.example/os:v1'}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: BaremetalCluster
metadata: {name: lab, namespace: default}
spec:
  controlPlaneLoadBalancer: {type: External, host: 10.0.2.2, port: 6443}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: lab, namespace: default}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: BaremetalCluster, name: lab}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: lab}
";

pub(crate) fn machine_name(number: usize) -> String {
    format!("machine-{number:05}")
}

impl Site {
    fn clusters(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), NAMESPACE, &capi::cluster_resource("v1beta2"))
    }

    fn machines(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), NAMESPACE, &capi::machine("v1beta2"))
    }

    fn baremetal_machines(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(INFRASTRUCTURE, "v1beta1", "BaremetalMachine");
        Api::namespaced_with(self.admin.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    /// Cluster, catalog, bootstrap data, and a pool of the first `hosts` hosts.
    pub(crate) async fn create_cluster(&self, hosts: usize) -> anyhow::Result<()> {
        apply::manifest(&self.admin, CLUSTER).await?;
        let provisioned = json!({ "status": { "initialization": { "infrastructureProvisioned": true } } });
        self.clusters().patch_status("lab", &PatchParams::default(), &Patch::Merge(provisioned)).await?;
        let members: Vec<Value> = (0..hosts).map(|number| json!({ "name": host_name(number) })).collect();
        let objects = [
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": { "name": "lab-join", "namespace": NAMESPACE },
                "stringData": { "value": scenarios::bootstrap_data(), "format": "cloud-config" },
            }),
            json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
                "kind": "MachineInventoryPool",
                "metadata": { "name": "pool", "namespace": NAMESPACE },
                "spec": { "clusterName": "lab", "machineInventories": members },
            }),
        ];
        let objects = objects.into_iter().map(serde_json::from_value).collect::<Result<Vec<_>, _>>()?;
        apply::objects(&self.admin, &objects).await?;
        Ok(())
    }

    /// A Machine without its infrastructure; the answer is its UID.
    pub(crate) async fn create_owner(&self, number: usize) -> anyhow::Result<String> {
        let name = machine_name(number);
        let machine = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            // As Cluster API holds it until its infrastructure is gone.
            "metadata": { "name": name, "finalizers": ["machine.cluster.x-k8s.io"] },
            "spec": {
                "clusterName": "lab",
                "version": VERSION,
                "bootstrap": { "dataSecretName": "lab-join" },
                "infrastructureRef": {
                    "apiGroup": INFRASTRUCTURE, "kind": "BaremetalMachine", "name": name,
                },
            },
        }))?;
        let created = self.machines().create(&PostParams::default(), &machine).await?;
        // Its Node is found as soon as it is there.
        let found = json!({ "status": { "nodeRef": { "name": name } } });
        self.machines().patch_status(&name, &PatchParams::default(), &Patch::Merge(found)).await?;
        created.metadata.uid.context("a Machine without UID")
    }

    /// The infrastructure of a Machine: what the coordinator acts on.
    pub(crate) async fn create_baremetal_machine(&self, number: usize, owner: &str) -> anyhow::Result<()> {
        let name = machine_name(number);
        let machine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
            "kind": "BaremetalMachine",
            "metadata": {
                "name": name,
                "labels": { "cluster.x-k8s.io/cluster-name": "lab" },
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                    "name": name, "uid": owner, "controller": true,
                }],
            },
            "spec": { "machineInventoryPoolRef": { "name": "pool" } },
        }))?;
        self.baremetal_machines().create(&PostParams::default(), &machine).await?;
        Ok(())
    }

    pub(crate) async fn create_machines(&self, count: usize) -> anyhow::Result<()> {
        let create = async |number| {
            let owner = self.create_owner(number).await?;
            self.create_baremetal_machine(number, &owner).await
        };
        stream::iter(0..count).map(create).buffer_unordered(CONCURRENT).try_collect().await
    }

    /// Deletes Machines and their infrastructure, in Cluster API's order.
    pub(crate) async fn delete_machines(&self, count: usize) -> anyhow::Result<()> {
        let delete = async |number| {
            let (name, params) = (machine_name(number), DeleteParams::default());
            self.machines().delete(&name, &params).await?;
            self.baremetal_machines().delete(&name, &params).await?;
            anyhow::Ok(())
        };
        stream::iter(0..count).map(delete).buffer_unordered(CONCURRENT).try_collect().await
    }
}
