//! The cluster that hosts join: a control plane prepared the way `kubeadm init` leaves one, so that
//! a real `kubeadm join` works against it, and a simulated host can register a Node. Or an empty one
//! that stands for the control planes which simulated hosts initialize.

mod documents;
mod node;
mod stand_in;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::parts::{self, Part, Parts};
use crate::{ControlPlane, Role, Settings, control_plane};
use documents::Token;
pub use node::Kubelet;

/// A workload cluster could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A binary is missing.
    #[error("find the parts of the workload cluster")]
    Parts(#[from] parts::Error),
    /// Its control plane could not be used.
    #[error("use the control plane of the workload cluster")]
    ControlPlane(#[from] control_plane::Error),
    /// A file could not be written or a command not be run.
    #[error("run kubeadm for the workload cluster")]
    Run(#[from] io::Error),
    #[error("kubeadm {phase} failed; its output is:\n{output}")]
    Kubeadm {
        /// The phase of `kubeadm init`.
        phase: String,
        output: String,
    },
    /// The API server refused something.
    #[error("{attempt} in the workload cluster")]
    Request { attempt: String, source: Box<kube::Error> },
    /// The cluster-info that kubeadm made is not as expected.
    #[error("ConfigMap kube-public/cluster-info has no kubeconfig")]
    ClusterInfo,
}

/// A running workload cluster. Dropping it ends its processes.
#[derive(Debug)]
pub struct Workload {
    control_plane: ControlPlane,
    endpoint: SocketAddr,
    token: Token,
}

impl Workload {
    /// Starts one that guests reach at `endpoint`, as in `10.0.2.100:6443`; forwarding that address
    /// to [`ControlPlane::port`] is the network's task. `directory` keeps the files, `None` is a
    /// temporary one.
    ///
    /// # Errors
    /// When a part is missing or fails.
    pub async fn start(parts: &Parts, endpoint: SocketAddr, directory: Option<&Path>) -> Result<Self, Error> {
        let settings = Settings {
            role: Role::Workload,
            addresses: vec![endpoint.ip()],
            directory: directory.map(Path::to_owned),
        };
        let workload = Self {
            control_plane: ControlPlane::start(parts, &settings).await?,
            endpoint,
            token: Token::new(),
        };
        workload.prepare(parts).await?;
        Ok(workload)
    }

    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The address by which guests reach it.
    pub fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    /// Bootstrap data of a worker: cloud-config with real kubeadm join data of v1beta4, in the
    /// shape of Cluster API's own. It lacks the host's name, provider id, labels or
    /// container runtime. The token in it lives for a day.
    pub fn join_config(&self) -> String {
        let endpoint = self.endpoint.to_string();
        documents::join(&endpoint, self.control_plane.authority().pin(), &self.token)
    }

    /// The token of the bootstrap data: what must not be left on a host that was cleaned.
    pub fn bootstrap_token(&self) -> &str {
        self.token.as_str()
    }

    /// The Secret `<cluster>-kubeconfig` by which Cluster API reaches this cluster. A control-plane
    /// provider would make it.
    ///
    /// # Errors
    /// When its certificate cannot be made.
    pub fn kubeconfig_secret(&self, namespace: &str, cluster: &str) -> Result<Secret, Error> {
        let user = "cluster-api";
        let group = control_plane::ADMINISTRATORS;
        let kubeconfig = self.control_plane.kubeconfig_text(user, group)?;
        Ok(documents::kubeconfig_secret(namespace, cluster, &kubeconfig))
    }

    /// Plays the kubelet of a simulated host: registers a Node as that node's own user, so that node
    /// restriction judges it as it would judge a kubelet, and reports it ready.
    ///
    /// # Errors
    /// When the server refuses it; a Node of this name that exists already is refused too.
    pub async fn register_node(&self, kubelet: &Kubelet) -> Result<Node, Error> {
        let client = self.control_plane.client(&kubelet.user(), "system:nodes").await?;
        kubelet.register(client).await.map_err(request(&format!("register node {}", kubelet.name)))
    }

    /// All Nodes.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let nodes: Api<Node> = Api::all(self.control_plane.admin().await?);
        let listed = nodes.list(&ListParams::default()).await;
        Ok(listed.map_err(request("list nodes"))?.items)
    }

    /// What `kubeadm init` leaves in a cluster for those who join: its configuration, the kubelet's,
    /// the token, the rights of who brings it, and cluster-info.
    async fn prepare(&self, parts: &Parts) -> Result<(), Error> {
        let version = parts::Module::Kubernetes.version();
        let config = documents::init(self.endpoint, version, &self.token);
        let config = self.control_plane.write("kubeadm.yaml", &config)?;
        for phase in [&["upload-config", "all"][..], &["bootstrap-token"]] {
            self.kubeadm(parts, phase, &config)?;
        }
        self.correct_cluster_info().await
    }

    fn kubeadm(&self, parts: &Parts, phase: &[&str], config: &PathBuf) -> Result<(), Error> {
        let output = Command::new(parts.path(Part::Kubeadm)?)
            .args(["init", "phase"])
            .args(phase)
            .arg("--config")
            .arg(config)
            .arg("--kubeconfig")
            .arg(self.control_plane.admin_kubeconfig())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let output = [output.stdout, output.stderr].concat();
        Err(Error::Kubeadm { phase: phase.join(" "), output: String::from_utf8_lossy(&output).into_owned() })
    }

    /// cluster-info carries the address of the kubeconfig that made it, which is loopback: those who
    /// join need the one that they reach. The signatures follow, made by the bootstrap signer.
    async fn correct_cluster_info(&self) -> Result<(), Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.control_plane.admin().await?, "kube-public");
        let attempt = "correct cluster-info";
        let found = maps.get("cluster-info").await.map_err(request(attempt))?;
        let kubeconfig = found.data.as_ref().and_then(|data| data.get("kubeconfig"));
        let kubeconfig = kubeconfig
            .ok_or(Error::ClusterInfo)?
            .replace(self.control_plane.url(), &format!("https://{}", self.endpoint));
        let patch = Patch::Merge(json!({ "data": { "kubeconfig": kubeconfig } }));
        maps.patch("cluster-info", &PatchParams::default(), &patch).await.map_err(request(attempt))?;
        Ok(())
    }
}

fn request(attempt: &str) -> impl FnOnce(kube::Error) -> Error {
    let attempt = attempt.to_owned();
    |source| Error::Request { attempt, source: Box::new(source) }
}
