//! A workload cluster whose control planes are simulated hosts: one real API server stands for all of
//! theirs, and what kubeadm does on a host is done here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::documents::{self, Token};
use super::node::{self, Kubelet};
use super::{Error, Workload, request};
use crate::parts::Parts;
use crate::pki::Authority;
use crate::{ControlPlane, Role, Settings, control_plane};

/// `ConfigMap` of kubeadm.
const CONFIGURATION: &str = "kubeadm-config";
const KUBE_PROXY: &str = "kube-proxy";

impl Workload {
    /// Starts one that nothing was done to yet; it is reached at its own address only.
    ///
    /// # Errors
    /// When a part is missing or fails.
    pub async fn start_empty(parts: &Parts, directory: &Path) -> Result<Self, Error> {
        let settings =
            Settings { role: Role::Workload, addresses: vec![], directory: Some(directory.to_owned()) };
        let control_plane = ControlPlane::start(parts, &settings).await?;
        let endpoint = SocketAddr::from((Ipv4Addr::LOCALHOST, control_plane.port()));
        Ok(Self { control_plane, endpoint, token: Token::new() })
    }

    /// The Secrets by which an operator gives Cluster API the authorities of a cluster: its own, and
    /// that of an external etcd with a client's certificate.
    ///
    /// # Errors
    /// When a certificate cannot be made.
    pub fn authority_secrets(&self, namespace: &str, cluster: &str) -> Result<Vec<Secret>, Error> {
        let etcd = Authority::new("etcd").map_err(control_plane::Error::from)?;
        let client = etcd
            .client("kube-apiserver-etcd-client", control_plane::ADMINISTRATORS)
            .map_err(control_plane::Error::from)?;
        let authority = self.control_plane.authority().pair();
        let secret =
            |name, values: &[(&str, &str)]| documents::cluster_secret(namespace, cluster, name, values);
        Ok(vec![
            secret("ca", &[("tls.crt", &authority.certificate), ("tls.key", &authority.key)]),
            secret("etcd", &[("tls.crt", &etcd.pair().certificate)]),
            secret("apiserver-etcd-client", &[("tls.crt", &client.certificate), ("tls.key", &client.key)]),
        ])
    }

    /// What `kubeadm init` does beside the kubelet: it runs kube-proxy, and keeps its
    /// `ClusterConfiguration` for those who join.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn upload_configuration(&self, configuration: &str) -> Result<(), Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.control_plane.admin().await?, "kube-system");
        let map = json!({
            "metadata": { "name": CONFIGURATION },
            "data": { "ClusterConfiguration": configuration },
        });
        let attempt = "upload kubeadm-config";
        let map: ConfigMap =
            serde_json::from_value(map).map_err(kube::Error::SerdeError).map_err(request(attempt))?;
        maps.create(&PostParams::default(), &map).await.map_err(request(attempt))?;
        self.run_kube_proxy(&read_version(configuration)).await
    }

    /// No kubelet runs its Pods; Cluster API changes its image when a control plane is upgraded.
    async fn run_kube_proxy(&self, version: &str) -> Result<(), Error> {
        let attempt = "run kube-proxy";
        let labels = json!({ "k8s-app": KUBE_PROXY });
        let image = format!("registry.k8s.io/kube-proxy:{version}");
        let kube_proxy: DaemonSet = serde_json::from_value(json!({
            "metadata": { "name": KUBE_PROXY },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": KUBE_PROXY, "image": image }] },
                },
            },
        }))
        .map_err(kube::Error::SerdeError)
        .map_err(request(attempt))?;
        let daemon_sets: Api<DaemonSet> = Api::namespaced(self.control_plane.admin().await?, "kube-system");
        daemon_sets.create(&PostParams::default(), &kube_proxy).await.map_err(request(attempt))?;
        Ok(())
    }

    /// Makes a Node one of the control plane: its static Pods run, and it has the label that only an
    /// administrator may set, as kubeadm is one.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn run_control_plane(&self, kubelet: &Kubelet, node: &Node) -> Result<(), Error> {
        let client = self.control_plane.client(&kubelet.user(), "system:nodes").await?;
        let attempt = format!("run the static Pods of {}", kubelet.name);
        node::run_static_pods(client, node).await.map_err(request(&attempt))?;
        let label = json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "" } } });
        let nodes: Api<Node> = Api::all(self.control_plane.admin().await?);
        let patched = nodes.patch(&kubelet.name, &PatchParams::default(), &Patch::Merge(label)).await;
        patched.map_err(request(&format!("label node {}", kubelet.name)))?;
        Ok(())
    }

    /// Takes everything away that hosts and control planes left: the next cluster finds none of it.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn clear(&self) -> Result<(), Error> {
        let client = self.control_plane.admin().await?;
        let all = ListParams::default();
        let (system, at_once) = ("kube-system", DeleteParams::default().grace_period(0));
        let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), system);
        daemon_sets.delete_collection(&at_once, &all).await.map_err(request("delete all DaemonSets"))?;
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.delete_collection(&at_once, &all).await.map_err(request("delete all Nodes"))?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), system);
        pods.delete_collection(&at_once, &all).await.map_err(request("delete all Pods"))?;
        let maps: Api<ConfigMap> = Api::namespaced(client, system);
        match maps.delete(CONFIGURATION, &at_once).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop).map_err(request("delete kubeadm-config")),
        }
    }

    /// What the kubelet of a node reports when it starts again. A Node that was deleted stays so.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn find_node(&self, name: &str) -> Result<(), Error> {
        match self.set_ready(name, ("True", "KubeletReady", "")).await? {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            patched => patched.map_err(request(&format!("find node {name}"))),
        }
    }

    /// What the control plane records of a node whose kubelet is silent for too long.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn lose_node(&self, name: &str) -> Result<(), Error> {
        let unknown = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
        self.set_ready(name, unknown).await?.map_err(request(&format!("lose node {name}")))
    }

    /// Writes the condition `Ready` of a node: status, reason, message.
    async fn set_ready(
        &self,
        name: &str,
        (status, reason, message): (&str, &str, &str),
    ) -> Result<Result<(), kube::Error>, Error> {
        let ready = json!({ "type": "Ready", "status": status, "reason": reason, "message": message });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
        let nodes: Api<Node> = Api::all(self.control_plane.admin().await?);
        Ok(nodes.patch_status(name, &PatchParams::default(), &patch).await.map(drop))
    }
}

/// The release that a `ClusterConfiguration` names.
fn read_version(configuration: &str) -> String {
    let found: serde_json::Value = serde_norway::from_str(configuration).unwrap_or_default();
    found["kubernetesVersion"].as_str().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_configuration() {
        assert_eq!(read_version("kind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"), "v1.36.3");
        assert_eq!(read_version(r#"{"kubernetesVersion":"v1.36.4"}"#), "v1.36.4");
        assert_eq!(read_version("kind: ClusterConfiguration\n"), "unknown");
    }
}
