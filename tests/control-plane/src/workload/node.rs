//! A Node as a kubelet registers it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Result};
use serde_json::{Value, json};

/// The Node as a kubelet registers it.
pub(super) fn node(name: &str, provider_id: &str, labels: &BTreeMap<String, String>) -> Node {
    let mut labels = labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec {
            provider_id: Some(provider_id.to_owned()),
            taints: Some(vec![Taint {
                effect: "NoSchedule".to_owned(),
                key: "node.cluster.x-k8s.io/uninitialized".to_owned(),
                ..Taint::default()
            }]),
            ..NodeSpec::default()
        }),
        ..Node::default()
    }
}

/// Creates `node` and reports it ready. `client` is the node's own user.
pub(super) async fn register(client: Client, name: &str, node: &Node, version: &str) -> Result<Node> {
    let nodes: Api<Node> = Api::all(client);
    nodes.create(&PostParams::default(), node).await?;
    let patch = Patch::Strategic(ready(version));
    nodes.patch_status(name, &PatchParams::default(), &patch).await
}

fn ready(version: &str) -> Value {
    json!({
        "status": {
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
            }],
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
