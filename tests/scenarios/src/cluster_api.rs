//! What Cluster API does: it creates machines, and deletes them in its order.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::coordinator::CAPI;
use crate::dump::text;
use crate::world::World;

/// Namespace of everything that is not the coordinator's own.
pub const NAMESPACE: &str = "fleet";
/// Part of all bootstrap data: must never be seen outside of Secrets.
pub const BOOTSTRAP_CANARY: &str = "canary.0123456789abcdef";

/// Cluster API holds a Machine with it until its infrastructure is gone.
pub(crate) const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
const CLUSTER_FINALIZER: &str = "cluster.cluster.x-k8s.io";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const ELEMENTAL: &str = "elemental.cattle.io";

/// What kubeadm's bootstrap provider writes, shortened.
#[must_use]
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

/// Group, version and names of a kind that is written here.
pub(crate) fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "Machine" | "Cluster" => ("cluster.x-k8s.io", CAPI),
        "MachineInventory" | "MachineRegistration" | "SeedImage" => (ELEMENTAL, "v1beta1"),
        "Secret" | "ConfigMap" | "Node" => ("", "v1"),
        "BareMetalHost" => ("metal3.io", "v1alpha1"),
        "IPPool" | "IPClaim" | "IPAddress" => ("ipam.metal3.io", "v1alpha1"),
        "KubeadmControlPlane" => ("controlplane.cluster.x-k8s.io", CAPI),
        "IPAddressClaim" => ("ipam.cluster.x-k8s.io", CAPI),
        _ => (INFRASTRUCTURE, "v1beta1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl World {
    pub(crate) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.operator.clone(), namespace, &resource(kind))
    }

    /// Creates an object in [`NAMESPACE`]; the answer is its UID.
    pub async fn create(&self, kind: &str, name: &str, rest: Value) -> String {
        let mut object = json!({ "metadata": { "name": name } });
        merge(&mut object, rest);
        let resource = resource(kind);
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
    ///
    /// # Errors
    /// The refusal.
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

    /// A Cluster and its `BaremetalCluster`.
    pub async fn apply_cluster(&self, name: &str) {
        let reference = json!({ "apiGroup": INFRASTRUCTURE, "kind": "BaremetalCluster", "name": name });
        let registry = json!({ "cpaas.io/registry-address": "registry.example" });
        let control_plane = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name });
        let spec = json!({ "infrastructureRef": reference, "controlPlaneRef": control_plane });
        let metadata = json!({ "annotations": registry, "finalizers": [CLUSTER_FINALIZER] });
        let cluster = json!({ "metadata": metadata, "spec": spec });
        let uid = self.create("Cluster", name, cluster).await;
        self.set_infrastructure_provisioned(name, true);
        let spec = json!({ "controlPlaneEndpoint": { "host": "10.0.2.2", "port": 6443 } });
        let owners = json!({ "metadata": { "ownerReferences": [owner("Cluster", name, &uid)] } });
        let mut object = json!({ "spec": spec });
        merge(&mut object, owners);
        self.create("BaremetalCluster", name, object).await;
    }

    /// What Cluster API read of the infrastructure of a Cluster.
    pub fn set_infrastructure_provisioned(&self, cluster: &str, is: bool) {
        self.fake.edit(("clusters.cluster.x-k8s.io", NAMESPACE, cluster), |object| {
            object["status"]["initialization"]["infrastructureProvisioned"] = json!(is);
        });
    }

    /// A template of machines that draw from a pool.
    pub async fn apply_template(&self, name: &str, pool: &str) {
        let spec = json!({ "template": { "spec": { "machineInventoryPoolRef": { "name": pool } } } });
        self.create("BaremetalMachineTemplate", name, json!({ "spec": spec })).await;
    }

    /// A pool of these hosts, and a catalog with `v1` and `v2`.
    pub async fn apply_pool(&self, name: &str, hosts: &[&str]) {
        let members: Vec<_> = hosts.iter().map(|host| json!({ "name": host })).collect();
        let spec = json!({ "clusterName": "c1", "machineInventories": members });
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

    /// The bootstrap Secret of a machine.
    pub async fn apply_bootstrap(&self, machine: &str, data: &str) {
        let secret = json!({ "type": "cluster.x-k8s.io/secret", "stringData": { "value": data } });
        self.create("Secret", &format!("{machine}-bootstrap"), secret).await;
    }

    /// A machine without its bootstrap Secret.
    pub async fn apply_bare_machine(&self, name: &str, pool: &str, version: &str) {
        let spec = json!({
            "clusterName": "c1",
            "version": version,
            "bootstrap": { "dataSecretName": format!("{name}-bootstrap") },
            "infrastructureRef": { "apiGroup": INFRASTRUCTURE, "kind": "BaremetalMachine", "name": name },
        });
        let held = json!({ "finalizers": [MACHINE_FINALIZER] });
        let uid = self.create("Machine", name, json!({ "metadata": held, "spec": spec })).await;
        let metadata = json!({
            "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
            "ownerReferences": [owner("Machine", name, &uid)],
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
        let nodes: Api<DynamicObject> = Api::all_with(self.workload.client("kubelet"), &resource("Node"));
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    /// A Node of the workload cluster.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<Value> {
        self.workload.look("nodes", "", name)
    }

    /// The Secret by which the workload cluster is reached.
    pub async fn apply_kubeconfig(&self) {
        self.create("Secret", "c1-kubeconfig", json!({ "stringData": { "value": "workload" } })).await;
    }

    /// Removes the finalizers of Cluster API from what is in deletion and has
    /// no infrastructure left.
    pub(crate) fn finish_deletions(&self) {
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

pub(crate) fn owner(kind: &str, name: &str, uid: &str) -> Value {
    let version = resource(kind).api_version;
    json!({ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true })
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
