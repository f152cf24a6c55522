//! What Cluster API does: it creates machines, and deletes them in its order.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::dump::text;
use crate::world::World;

/// Namespace of everything that is not the coordinator's own.
pub const NAMESPACE: &str = "fleet";
/// Part of all bootstrap data: must never be seen outside of Secrets.
pub const BOOTSTRAP_CANARY: &str = "canary.0123456789abcdef";

/// The kubeconfig of a workload cluster that never answers.
pub const SILENT: &str = "silent";

/// Cluster API holds a Machine with it until its infrastructure is gone.
pub(crate) const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
const CLUSTER_FINALIZER: &str = "cluster.cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const ELEMENTAL: &str = "elemental.cattle.io";

/// What kubeadm's bootstrap provider writes, shortened.
pub fn bootstrap_data() -> String {
    format!(
        "## template: jinja
#cloud-config
write_files:
-   path: /run/kubeadm/kubeadm-join-config.yaml
    owner: root:root
    permissions: '0640'
    content: |
      ---
      apiVersion: kubeadm.k8s.io/v1beta4
      discovery:
        bootstrapToken:
          apiServerEndpoint: 10.0.2.2:6443
          token: {BOOTSTRAP_CANARY}
      kind: JoinConfiguration
      nodeRegistration:
        kubeletExtraArgs: []
        taints: null
runcmd:
  - 'kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml'
"
    )
}

impl World {
    /// Group, version and names of a kind that is written here.
    fn resource(&self, kind: &str) -> ApiResource {
        let (group, version) = match kind {
            "Machine" | "Cluster" => ("cluster.x-k8s.io", self.cluster_api),
            "MachineInventory" | "MachineRegistration" | "SeedImage" => (ELEMENTAL, "v1beta1"),
            "Secret" | "ConfigMap" | "Node" => ("", "v1"),
            "BareMetalHost" => ("metal3.io", "v1alpha1"),
            "IPPool" | "IPClaim" | "IPAddress" => ("ipam.metal3.io", "v1alpha1"),
            "KubeadmControlPlane" => ("controlplane.cluster.x-k8s.io", self.cluster_api),
            "IPAddressClaim" => ("ipam.cluster.x-k8s.io", "v1beta2"),
            _ => (INFRASTRUCTURE, "v1beta1"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    /// As Cluster API refers to an object: by group, at v1beta1 by group and version.
    fn reference(&self, kind: &str, name: &str) -> Value {
        let ApiResource { group, api_version, .. } = self.resource(kind);
        if self.cluster_api == "v1beta1" {
            return json!({ "apiVersion": api_version, "kind": kind, "name": name, "namespace": NAMESPACE });
        }
        json!({ "apiGroup": group, "kind": kind, "name": name })
    }

    /// An ownerReference to a controller.
    pub(crate) fn owner(&self, kind: &str, name: &str, uid: &str) -> Value {
        let version = self.resource(kind).api_version;
        json!({ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true })
    }

    pub(crate) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.operator.clone(), namespace, &self.resource(kind))
    }

    /// Creates an object in [`NAMESPACE`]; the answer is its UID.
    pub async fn create(&self, kind: &str, name: &str, rest: Value) -> String {
        let mut object = json!({ "metadata": { "name": name } });
        merge(&mut object, rest);
        let resource = self.resource(kind);
        object["apiVersion"] = json!(resource.api_version);
        object["kind"] = json!(resource.kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.api(kind, NAMESPACE).create(&PostParams::default(), &object).await.unwrap();
        made.metadata.uid.unwrap()
    }

    /// Merges into an object of [`NAMESPACE`].
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.try_patch(kind, name, patch).await.unwrap();
    }

    /// The same, where the API server may refuse it.
    pub async fn try_patch(&self, kind: &str, name: &str, patch: Value) -> kube::Result<()> {
        let api = self.api(kind, NAMESPACE);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Deletes an object of [`NAMESPACE`]; finalizers hold it.
    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind, NAMESPACE).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes an object of [`NAMESPACE`] that may be gone already, with its owner.
    pub async fn delete_if_there(&self, kind: &str, name: &str) {
        match self.api(kind, NAMESPACE).delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => panic!("{kind} {name}: {error}"),
        }
    }

    /// A Cluster and its `BaremetalCluster`, whose endpoint is known.
    pub async fn apply_cluster(&self, name: &str) {
        let endpoint = json!({ "host": "10.0.2.2", "port": 6443 });
        self.apply_cluster_of(name, json!({ "controlPlaneEndpoint": endpoint })).await;
        self.set_infrastructure_provisioned(name, true);
    }

    /// A Cluster and its `BaremetalCluster` with this spec.
    pub async fn apply_cluster_of(&self, name: &str, spec: Value) {
        let registry = json!({ "cpaas.io/registry-address": "registry.example" });
        let metadata = json!({ "annotations": registry, "finalizers": [CLUSTER_FINALIZER] });
        let references = json!({
            "infrastructureRef": self.reference("BaremetalCluster", name),
            "controlPlaneRef": self.reference("KubeadmControlPlane", name),
        });
        let uid = self.create("Cluster", name, json!({ "metadata": metadata, "spec": references })).await;
        let owners = json!({ "ownerReferences": [self.owner("Cluster", name, &uid)] });
        self.create("BaremetalCluster", name, json!({ "metadata": owners, "spec": spec })).await;
    }

    /// What Cluster API read of the infrastructure of a Cluster.
    pub fn set_infrastructure_provisioned(&self, cluster: &str, is: bool) {
        let status = match self.cluster_api {
            "v1beta1" => json!({ "infrastructureReady": is }),
            _ => json!({ "initialization": { "infrastructureProvisioned": is } }),
        };
        self.edit_cluster_status(cluster, &status);
    }

    /// Cluster API has reached the API server of the workload cluster.
    pub fn set_control_plane_initialized(&self, cluster: &str) {
        let status = match self.cluster_api {
            "v1beta1" => json!({ "controlPlaneReady": true }),
            _ => json!({ "initialization": { "controlPlaneInitialized": true } }),
        };
        self.edit_cluster_status(cluster, &status);
    }

    fn edit_cluster_status(&self, cluster: &str, status: &Value) {
        self.fake.edit(("clusters.cluster.x-k8s.io", NAMESPACE, cluster), |object| {
            merge(object, json!({ "status": status }));
        });
    }

    /// A template of machines that draw from a pool.
    pub async fn apply_template(&self, name: &str, pool: &str) {
        let spec = json!({ "template": { "spec": { "machineInventoryPoolRef": { "name": pool } } } });
        self.create("BaremetalMachineTemplate", name, json!({ "spec": spec })).await;
    }

    /// A pool of these hosts for Cluster `c1`.
    pub async fn apply_pool(&self, name: &str, hosts: &[&str]) {
        self.apply_pool_of(name, "c1", hosts).await;
    }

    /// A pool of these hosts for a Cluster.
    pub async fn apply_pool_of(&self, name: &str, cluster: &str, hosts: &[&str]) {
        let members: Vec<_> = hosts.iter().map(|host| json!({ "name": host })).collect();
        let spec = json!({ "clusterName": cluster, "machineInventories": members });
        self.create("MachineInventoryPool", name, json!({ "spec": spec })).await;
    }

    /// A Machine of version `v1` with its `BaremetalMachine` and bootstrap
    /// Secret, as Cluster API leaves them.
    pub async fn apply_machine(&self, name: &str) {
        self.apply_machine_of(name, "pool", "v1").await;
    }

    /// As [`World::apply_machine`].
    pub async fn apply_machine_of(&self, name: &str, pool: &str, version: &str) {
        self.apply_bootstrap(name, &bootstrap_data()).await;
        self.apply_bare_machine(name, pool, version).await;
    }

    /// As [`World::apply_machine`], for a machine of the control plane.
    pub async fn apply_control_plane_machine(&self, name: &str) {
        self.apply_machine(name).await;
        let label = json!({ "metadata": { "labels": { "cluster.x-k8s.io/control-plane": "" } } });
        self.patch("BaremetalMachine", name, label).await;
    }

    /// The bootstrap Secret of a machine.
    pub async fn apply_bootstrap(&self, machine: &str, data: &str) {
        let secret = json!({ "type": "cluster.x-k8s.io/secret", "stringData": { "value": data } });
        self.create("Secret", &format!("{machine}-bootstrap"), secret).await;
    }

    /// A machine of the Cluster of its pool, without its bootstrap Secret.
    pub async fn apply_bare_machine(&self, name: &str, pool: &str, version: &str) {
        let known = self.get_object("machineinventorypools.infrastructure.cluster.x-k8s.io", pool);
        let cluster = known.map_or_else(|| json!("c1"), |pool| pool["spec"]["clusterName"].clone());
        let spec = json!({
            "clusterName": cluster,
            "version": version,
            "bootstrap": { "dataSecretName": format!("{name}-bootstrap") },
            "infrastructureRef": self.reference("BaremetalMachine", name),
        });
        let held = json!({ "finalizers": [MACHINE_FINALIZER] });
        let uid = self.create("Machine", name, json!({ "metadata": held, "spec": spec })).await;
        let metadata = json!({
            "labels": { "cluster.x-k8s.io/cluster-name": cluster },
            "ownerReferences": [self.owner("Machine", name, &uid)],
        });
        let spec = json!({ "machineInventoryPoolRef": { "name": pool } });
        self.create("BaremetalMachine", name, json!({ "metadata": metadata, "spec": spec })).await;
    }

    /// Deletes a Machine as Cluster API does: it stays until its
    /// infrastructure is gone. [`World::wait_released`] waits for it.
    pub async fn delete_machine(&self, name: &str) {
        if self.get_object("machines.cluster.x-k8s.io", name).is_some() {
            self.delete("Machine", name).await;
        }
        self.delete("BaremetalMachine", name).await;
    }

    /// Each Machine whose infrastructure is provisioned refers to its Node.
    pub(crate) fn refer_to_nodes(&self) {
        for machine in self.fake.look_at_all("machines.cluster.x-k8s.io") {
            let name = text(&machine, "/metadata/name").to_owned();
            let is_provisioned =
                self.machine(&name).is_some_and(|machine| machine.spec.provider_id.is_some())
                    || self
                        .metal3_machine(&name)
                        .is_some_and(|machine| machine["spec"]["providerID"].is_string());
            if is_provisioned && machine["status"]["nodeRef"].is_null() {
                self.fake.edit(("machines.cluster.x-k8s.io", NAMESPACE, &name), |object| {
                    object["status"]["nodeRef"] = json!({ "name": name });
                });
            }
        }
    }

    /// A Node of the workload cluster, as its kubelet registers it.
    pub async fn join_node(&self, name: &str, provider_id: Option<&str>, uuid: &str) {
        let labels = json!({ "metal3.io/uuid": uuid, "kubernetes.io/hostname": name });
        let spec = json!({ "providerID": provider_id, "podCIDR": "10.0.0.0/24" });
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": labels }, "spec": spec,
        });
        let nodes: Api<DynamicObject> =
            Api::all_with(self.workload.client("kubelet"), &self.resource("Node"));
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    /// A Node of the workload cluster.
    pub fn node(&self, name: &str) -> Option<Value> {
        self.workload.look("nodes", "", name)
    }

    /// The Secret by which the workload cluster is reached.
    pub async fn apply_kubeconfig(&self) {
        self.apply_kubeconfig_of("c1", "workload").await;
    }

    /// A kubeconfig of a Cluster: of the workload cluster, or [`SILENT`].
    pub async fn apply_kubeconfig_of(&self, cluster: &str, value: &str) {
        let secret = json!({ "stringData": { "value": value } });
        self.create("Secret", &format!("{cluster}-kubeconfig"), secret).await;
    }

    /// Removes the finalizers of Cluster API from what is in deletion and has
    /// no infrastructure left.
    pub fn finish_deletions(&self) {
        for machine in self.fake.look_at_all("machines.cluster.x-k8s.io") {
            let name = text(&machine, "/metadata/name").to_owned();
            let is_deleted = !machine["metadata"]["deletionTimestamp"].is_null();
            let is_used = self.machine(&name).is_some() || self.metal3_machine(&name).is_some();
            if is_deleted && !is_used {
                self.fake.edit(("machines.cluster.x-k8s.io", NAMESPACE, &name), |object| {
                    object["metadata"]["finalizers"] = json!([]);
                });
            }
        }
    }
}

pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
