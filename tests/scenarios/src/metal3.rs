//! What operators of Metal3 and Cluster API write, and what they read.

use serde_json::{Value, json};

use crate::NAMESPACE;
use crate::cluster_api::{MACHINE_FINALIZER, bootstrap_data, merge};
use crate::dump::text;
use crate::world::World;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const HOSTS: &str = "baremetalhosts.metal3.io";
const MACHINES: &str = "metal3machines.infrastructure.cluster.x-k8s.io";

impl World {
    /// A `BareMetalHost` that names the inventory of a host.
    pub async fn apply_bare_metal_host(&self, name: &str, inventory: &str) {
        let metadata = json!({ "annotations": { "baremetal.cluster.io/machine-inventory": inventory } });
        self.create("BareMetalHost", name, json!({ "metadata": metadata, "spec": { "online": true } })).await;
    }

    /// Its `status.provisioning.state`.
    pub fn host_state(&self, host: &str) -> String {
        self.get_object(HOSTS, host)
            .map(|host| text(&host, "/status/provisioning/state").to_owned())
            .unwrap_or_default()
    }

    /// Hosts that register, each with a `BareMetalHost` named `bmh-` and its name.
    pub async fn register_bare_metal_hosts(&mut self, names: &[&str]) {
        self.apply_registration().await;
        self.register_hosts(names).await;
        for name in names {
            self.apply_bare_metal_host(&format!("bmh-{name}"), name).await;
        }
        for name in names {
            let host = format!("bmh-{name}");
            self.wait_until(&format!("{host} is available"), |world| world.host_state(&host) == "available")
                .await;
        }
    }

    /// A Cluster and its `Metal3Cluster`.
    pub async fn apply_metal3_cluster(&self, name: &str) {
        let reference = json!({ "apiGroup": INFRASTRUCTURE, "kind": "Metal3Cluster", "name": name });
        let uid = self.create("Cluster", name, json!({ "spec": { "infrastructureRef": reference } })).await;
        let spec = json!({ "controlPlaneEndpoint": { "host": "10.0.2.2", "port": 6443 } });
        let mut object = json!({ "spec": spec });
        merge(&mut object, json!({ "metadata": { "ownerReferences": [self.owner("Cluster", name, &uid)] } }));
        self.create("Metal3Cluster", name, object).await;
        self.apply_kubeconfig().await;
    }

    /// A Machine of Cluster `c1`, its bootstrap Secret and its `Metal3Machine`, as
    /// Cluster API leaves them. `rest` is merged into the `Metal3Machine`.
    pub async fn apply_metal3_machine(&self, name: &str, rest: Value) {
        self.apply_bootstrap(name, &bootstrap_data()).await;
        self.apply_metal3_machine_with(name, Value::Null, rest).await;
    }

    /// The same without the bootstrap Secret, and with a bootstrap configuration.
    pub async fn apply_metal3_machine_with(&self, name: &str, config_ref: Value, rest: Value) {
        let spec = json!({
            "clusterName": "c1",
            "version": "v1",
            "bootstrap": { "dataSecretName": format!("{name}-bootstrap"), "configRef": config_ref },
            "infrastructureRef": { "apiGroup": INFRASTRUCTURE, "kind": "Metal3Machine", "name": name },
        });
        let metadata = json!({
            "finalizers": [MACHINE_FINALIZER],
            "labels": { "cluster.x-k8s.io/deployment-name": "workers" },
        });
        let uid = self.create("Machine", name, json!({ "metadata": metadata, "spec": spec })).await;
        let condition = json!({ "type": "BootstrapConfigReady", "status": "True", "reason": "Ready" });
        self.fake.edit(("machines.cluster.x-k8s.io", NAMESPACE, name), |machine| {
            machine["status"]["conditions"] = json!([condition]);
        });
        let mut object = json!({
            "metadata": {
                "labels": { "cluster.x-k8s.io/cluster-name": "c1" },
                "ownerReferences": [self.owner("Machine", name, &uid)],
            },
            "spec": { "image": { "url": "oci://registry.example/os:v1" } },
        });
        merge(&mut object, rest);
        self.create("Metal3Machine", name, object).await;
    }

    /// A `Metal3Machine`.
    pub fn metal3_machine(&self, name: &str) -> Option<Value> {
        self.get_object(MACHINES, name)
    }

    /// Its host, by its annotation.
    pub fn host_of(&self, machine: &str) -> Option<String> {
        let machine = self.metal3_machine(machine)?;
        let host = text(&machine, "/metadata/annotations/metal3.io~1BareMetalHost");
        host.split_once('/').map(|(_, name)| name.to_owned())
    }

    /// Waits until it is provisioned and ready.
    pub async fn wait_metal3_ready(&self, machine: &str) {
        let is_ready = |world: &Self| {
            let object = world.metal3_machine(machine).unwrap_or_default();
            object["status"]["ready"] == true && !text(&object, "/spec/providerID").is_empty()
        };
        self.wait_until(&format!("{machine} is ready"), is_ready).await;
    }

    /// Waits for its condition `Ready` to be False with this reason.
    pub async fn wait_metal3_reason(&self, machine: &str, reason: &str) -> String {
        let found = |world: &Self| {
            let object = world.metal3_machine(machine)?;
            let conditions = object["status"]["conditions"].as_array()?.clone();
            let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready")?;
            (ready["status"] == "False" && ready["reason"] == reason)
                .then(|| text(&ready, "/message").to_owned())
        };
        self.wait_until(&format!("{machine} waits: {reason}"), |world| found(world).is_some()).await;
        found(self).unwrap_or_default()
    }

    /// As [`World::delete_metal3_machine`], without a wait.
    pub async fn begin_metal3_deletion(&self, name: &str) {
        self.delete_if_there("Machine", name).await;
        self.delete("Metal3Machine", name).await;
    }

    /// Deletes a Machine as Cluster API does.
    pub async fn delete_metal3_machine(&self, name: &str) {
        self.begin_metal3_deletion(name).await;
        self.wait_until(&format!("{name} is gone"), |world| world.metal3_machine(name).is_none()).await;
        self.finish_deletions();
    }
}
