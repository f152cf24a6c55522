//! Everything but the host: two clusters, Cluster API, the coordinator.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use control_plane::audit::{Counts, Mark};
use control_plane::directory::Directory;
use control_plane::parts::Parts;
use control_plane::process::{Server, Signal, Spec};
use control_plane::{ClusterApi, ControlPlane, Settings, Workload, apply, ports};
use coordinator_api::crds;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::progress::Progress;

/// Where QEMU's user network lets guests reach this machine.
pub const GUEST_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
/// Ports at that address.
pub const GUEST_COORDINATOR: u16 = 8443;
/// Ports at that address.
pub const GUEST_API: u16 = 6443;
/// The coordinator's own user: the `ServiceAccount` that its RBAC names.
pub const USER: &str = "system:serviceaccount:baremetal-system:baremetal-coordinator";

/// Who is to reach the coordinator and the workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Processes of this machine.
    Loopback,
    /// QEMU guests, and processes of this machine.
    Guests,
}

/// Everything but the host.
pub struct Stage {
    /// Cluster API and our objects live here.
    pub management: ControlPlane,
    /// Cluster API's real manager.
    pub cluster_api: ClusterApi,
    /// The cluster that hosts join.
    pub workload: Arc<Workload>,
    /// A person with all rights.
    pub admin: Client,
    /// The real coordinator.
    pub coordinator: Server,
    /// Port of the coordinator on loopback.
    pub port: u16,
    health: u16,
    /// Parts of the Kubernetes release.
    pub parts: Parts,
    /// Logs and files; gone with the last who holds it.
    pub directory: Arc<Directory>,
}

impl Stage {
    /// Sets it up, telling each step.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn set(reach: Reach, progress: &Arc<Progress>) -> anyhow::Result<Self> {
        Self::set_in(Arc::new(Directory::temporary()?), reach, progress).await
    }

    /// The same, with logs and files in `directory`.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn set_in(
        directory: Arc<Directory>,
        reach: Reach,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let parts = Parts::from_environment()?;
        progress.step("management cluster: etcd, kube-apiserver, kube-controller-manager");
        let management = ControlPlane::start(
            &parts,
            &Settings::management().kept_in(&directory.path().join("management")),
        )
        .await?;
        let admin = management.admin().await?;
        progress.step("our definitions and rights, Cluster API");
        install(&admin).await?;
        let cluster_api = ClusterApi::start(&parts, &management).await?;
        progress.step("workload cluster: etcd, kube-apiserver, kube-controller-manager, kubeadm phases");
        let endpoint = match reach {
            Reach::Guests => SocketAddr::from((GUEST_GATEWAY, GUEST_API)),
            Reach::Loopback => SocketAddr::from((Ipv4Addr::LOCALHOST, GUEST_API)),
        };
        let workload =
            Arc::new(Workload::start(&parts, endpoint, Some(&directory.path().join("workload"))).await?);
        // Owner references are collected only for kinds that it has seen.
        management.restart_controllers().await?;
        progress.step("coordinator, as its own least-privilege user");
        let (port, health) = (ports::free()?, ports::free()?);
        let coordinator = Server::start(coordinator(&management, &directory, reach, (port, health))?)?;
        let stage =
            Self { management, cluster_api, workload, admin, coordinator, port, health, parts, directory };
        stage.coordinator_ready().await?;
        Ok(stage)
    }

    /// Waits until the coordinator serves hosts.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub async fn coordinator_ready(&self) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.health);
        self.coordinator
            .ready(Duration::from_mins(1), || curl(vec!["--silent".into(), "--fail".into(), url.clone()]))
            .await?;
        Ok(())
    }

    /// Kills the coordinator and starts it anew.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart_coordinator(&self) -> anyhow::Result<()> {
        self.coordinator.signal(Signal::SIGKILL)?;
        self.coordinator.restart()?;
        self.coordinator_ready().await
    }

    /// The coordinator's CA certificate, as a person reads it.
    ///
    /// # Errors
    /// When the Secret is not there.
    pub async fn authority(&self) -> anyhow::Result<PathBuf> {
        let api: Api<Secret> = Api::namespaced(self.admin.clone(), "baremetal-system");
        let secret = api.get("baremetal-coordinator-ca").await?;
        let pem =
            secret.data.and_then(|mut data| data.remove("ca.crt")).context("the CA Secret has no ca.crt")?;
        let path = self.directory.path().join("coordinator-ca.pem");
        std::fs::write(&path, pem.0)?;
        Ok(path)
    }

    /// Downloads what the coordinator serves, as a person would.
    ///
    /// # Errors
    /// What curl says.
    pub async fn download(&self, url: &str, to: &Path) -> anyhow::Result<()> {
        let authority = self.authority().await?;
        // Guests reach the coordinator by an address that is not this machine's.
        let here = format!("{GUEST_GATEWAY}:{GUEST_COORDINATOR}:127.0.0.1:{}", self.port);
        let words = ["--silent", "--show-error", "--fail", "--connect-to", &here, "--cacert"];
        let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
        arguments.push(authority.display().to_string());
        arguments.extend(["--output".to_owned(), to.display().to_string(), url.to_owned()]);
        curl(arguments).await.map_err(anyhow::Error::msg)
    }

    /// Applies a manifest as a person would.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        apply::manifest(&self.admin, manifest).await?;
        Ok(())
    }

    /// A place in the audit log.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn mark(&self) -> anyhow::Result<Mark> {
        Ok(self.management.audit().mark()?)
    }

    /// What the coordinator asked the API server for since then.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn counts(&self, since: Mark) -> anyhow::Result<Counts> {
        Ok(self.management.audit().counts(USER, since)?)
    }
}

/// Our definitions and rights, as they are installed anywhere.
async fn install(admin: &Client) -> anyhow::Result<()> {
    for crd in crds::all() {
        apply::manifest(admin, &crds::yaml(&crd)?).await?;
    }
    let rights = include_str!("../../../coordinator/config/rbac.yaml");
    apply::manifest(admin, rights).await?;
    Ok(())
}

fn coordinator(
    management: &ControlPlane,
    directory: &Directory,
    reach: Reach,
    ports: (u16, u16),
) -> anyhow::Result<Spec> {
    let (port, health) = ports;
    let url = match reach {
        Reach::Guests => format!("https://{GUEST_GATEWAY}:{GUEST_COORDINATOR}"),
        Reach::Loopback => format!("https://127.0.0.1:{port}"),
    };
    let kubeconfig = management.kubeconfig(USER, "system:serviceaccounts")?;
    let cache = directory.path().join("iso-cache");
    std::fs::create_dir_all(&cache)?;
    Ok(Spec {
        name: "coordinator".to_owned(),
        binary: binary()?,
        arguments: vec![
            format!("--server-url={url}"),
            format!("--listen=127.0.0.1:{port}"),
            format!("--health-listen=127.0.0.1:{health}"),
            "--namespace=baremetal-system".to_owned(),
            "--server-name=127.0.0.1".to_owned(),
            format!("--cache-directory={}", cache.display()),
        ],
        environment: vec![("KUBECONFIG".to_owned(), kubeconfig.display().to_string())],
        log: directory.path().join("coordinator.log"),
    })
}

/// The coordinator that was built beside us.
fn binary() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let beside = here.ancestors().skip(1).take(2).map(|directory| directory.join("baremetal-coordinator"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.context("there is no baremetal-coordinator beside this program: run `cargo build --package coordinator` first")
}

async fn curl(arguments: Vec<String>) -> Result<(), String> {
    let output = tokio::process::Command::new("curl").args(&arguments).output().await;
    let output = output.map_err(|error| format!("curl: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
