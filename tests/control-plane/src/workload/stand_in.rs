//! A workload cluster whose control planes are simulated hosts: one real API server stands for all of
//! theirs, and what kubeadm does on a host is done here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::documents::{self, Token};
use super::node::{self, Kubelet};
use super::{Error, Workload, request};
use crate::parts::Parts;
use crate::pki::Authority;
use crate::{ControlPlane, Role, Settings, control_plane};

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

    /// What `kubeadm init` does beside the kubelet: keeps its `ClusterConfiguration` for those who
    /// join.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn upload_configuration(&self, configuration: &str) -> Result<(), Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.control_plane.admin().await?, "kube-system");
        let map = json!({
            "metadata": { "name": "kubeadm-config" },
            "data": { "ClusterConfiguration": configuration },
        });
        let attempt = "upload kubeadm-config";
        let map: ConfigMap =
            serde_json::from_value(map).map_err(kube::Error::SerdeError).map_err(request(attempt))?;
        maps.create(&PostParams::default(), &map).await.map_err(request(attempt))?;
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

    /// What the kubelet of a node reports when it starts again. A Node that was deleted stays so.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn find_node(&self, name: &str) -> Result<(), Error> {
        let ready = json!({ "status": { "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "",
        }] } });
        let nodes: Api<Node> = Api::all(self.control_plane.admin().await?);
        match nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            patched => patched.map(drop).map_err(request(&format!("find node {name}"))),
        }
    }

    /// What the control plane records of a node whose kubelet is silent for too long.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn lose_node(&self, name: &str) -> Result<(), Error> {
        let unknown = json!({ "status": { "conditions": [{
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }] } });
        let nodes: Api<Node> = Api::all(self.control_plane.admin().await?);
        let patched = nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(unknown)).await;
        patched.map_err(request(&format!("lose node {name}")))?;
        Ok(())
    }
}
