//! A kubelet that only says what a real one would: its Node and its static Pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _, Result};
use serde_json::{Value, json};

use crate::parts::Module;

/// Taint of nodes that Cluster API has not seen yet, as its bootstrap data of workers asks for.
const UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";
/// What kubeadm runs on a control plane with external etcd.
const STATIC_PODS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// What a kubelet is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubelet {
    /// Name of its Node.
    pub name: String,
    /// `--provider-id`.
    pub provider_id: String,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `--register-with-taints`.
    pub taints: Vec<Taint>,
    /// Its version, as in `v1.36.3`.
    pub version: String,
}

impl Kubelet {
    /// One of a worker, with the taint that Cluster API's bootstrap data asks for.
    pub fn of_worker(name: &str, provider_id: &str) -> Self {
        let taint =
            Taint { effect: "NoSchedule".to_owned(), key: UNINITIALIZED.to_owned(), ..Taint::default() };
        Self {
            name: name.to_owned(),
            provider_id: provider_id.to_owned(),
            labels: BTreeMap::new(),
            taints: vec![taint],
            version: Module::Kubernetes.version().to_owned(),
        }
    }

    /// The node's own user.
    pub(super) fn user(&self) -> String {
        format!("system:node:{}", self.name)
    }

    fn node(&self) -> Node {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), self.name.clone());
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        let metadata =
            ObjectMeta { name: Some(self.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let spec = NodeSpec {
            provider_id: Some(self.provider_id.clone()),
            taints: Some(self.taints.clone()),
            ..NodeSpec::default()
        };
        Node { metadata, spec: Some(spec), ..Node::default() }
    }

    /// Creates the Node and reports it ready. `client` is the node's own user.
    pub(super) async fn register(&self, client: Client) -> Result<Node> {
        let nodes: Api<Node> = Api::all(client);
        nodes.create(&PostParams::default(), &self.node()).await?;
        let patch = Patch::Strategic(ready(&self.version));
        nodes.patch_status(&self.name, &PatchParams::default(), &patch).await
    }
}

/// Reports the static Pods of a control plane as running: mirror Pods, made by the node's own user.
/// Those of an earlier node of this name are replaced.
pub(super) async fn run_static_pods(client: Client, node: &Node) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, "kube-system");
    for component in STATIC_PODS {
        let pod: Pod =
            serde_json::from_value(mirror_pod(component, node)).map_err(kube::Error::SerdeError)?;
        let name = pod.name_any();
        match pods.create(&PostParams::default(), &pod).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
                pods.create(&PostParams::default(), &pod).await?;
            }
            answer => drop(answer?),
        }
        let running = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(running)).await?;
    }
    Ok(())
}

fn mirror_pod(component: &str, node: &Node) -> Value {
    let name = node.name_any();
    json!({
        "metadata": {
            "name": format!("{component}-{name}"),
            "labels": { "component": component, "tier": "control-plane" },
            "annotations": { "kubernetes.io/config.mirror": component },
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Node",
                "name": name,
                "uid": node.uid(),
                "controller": true,
            }],
        },
        "spec": {
            "nodeName": name,
            "hostNetwork": true,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": component, "image": component }],
        },
    })
}

fn ready(version: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str| json!({ "type": kind, "status": status, "reason": reason, "message": "" });
    json!({
        "status": {
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "containerd://2",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": version,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    })
}
