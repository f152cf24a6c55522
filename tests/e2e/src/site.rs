//! What hosts register with: a management cluster with its coordinator, and the
//! address under which hosts find it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use control_plane::audit::{Counts, Mark};
use control_plane::directory::Directory;
use control_plane::parts::Parts;
use control_plane::{ClusterApi, ControlPlane, Settings, apply, ports};
use coordinator_api::{crds, metal3};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use crate::commands::run_curl;
use crate::forwarder::Forwarder;
use crate::manifests;
use crate::progress::Progress;
use crate::replicas::{NAMESPACE, Placement, Replica, USER};
use crate::requests::retry;
use crate::switch;

/// Where QEMU's user network lets guests reach this machine.
pub const GUEST_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
/// Port of the coordinator at that address, and at that of a switch.
pub const GUEST_COORDINATOR: u16 = 8443;
/// Replicas of a coordinator.
const REPLICAS: usize = 2;

/// Who is to reach the coordinator and the workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Processes of this machine.
    Loopback,
    /// QEMU guests, each in a network of its own, and processes of this machine.
    Guests,
    /// Guests at one switch, and processes in its network namespace.
    Switch,
    /// A guest at the two segments of [`switch::create_segments`], and processes in their network namespace.
    Segments,
}

/// Which of Cluster API's managers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managers {
    /// That of Clusters and Machines.
    Core,
    /// Those for kubeadm too: bootstrap data and control planes.
    Kubeadm,
}

/// What a management cluster is started for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served<'a> {
    /// What its coordinator is limited to; empty for all namespaces.
    pub namespaces: &'a [&'a str],
    /// Whether the kinds of Metal3 are served.
    pub has_metal3: bool,
    /// What its coordinator has in its environment.
    pub environment: &'a [(String, String)],
}

/// A management cluster: Cluster API and our objects, and the coordinator.
pub struct Management {
    /// Its etcd, API server and controllers.
    pub control_plane: ControlPlane,
    /// Cluster API's real managers.
    pub cluster_api: ClusterApi,
    /// A client with all rights.
    pub admin: Client,
    /// The real coordinator; empty until it is started.
    pub replicas: Vec<Replica>,
    name: String,
    namespaces: Vec<String>,
    has_metal3: bool,
    environment: Vec<(String, String)>,
}

/// A management cluster with its coordinator.
pub struct Site {
    pub management: Management,
    /// The address that hosts know.
    pub forwarder: Forwarder,
    /// Parts of the Kubernetes release.
    pub parts: Parts,
    /// Logs and files; removed with its last holder.
    pub directory: Arc<Directory>,
    /// URL of the coordinator for hosts.
    pub url: String,
}

impl Management {
    /// Starts one without a coordinator.
    async fn start(
        parts: &Parts,
        directory: &Directory,
        name: &str,
        served: Served<'_>,
    ) -> anyhow::Result<Self> {
        let files = directory.path().join(name);
        let control_plane = ControlPlane::start(parts, &Settings::management().kept_in(&files)).await?;
        let admin = control_plane.admin().await?;
        for crd in crds::all() {
            apply::manifest(&admin, &crds::yaml(&crd)?).await?;
        }
        let mut rights = manifests::rights(served.namespaces);
        if served.has_metal3 {
            for crd in metal3::crds() {
                apply::manifest(&admin, &crds::yaml(&crd)?).await?;
            }
            rights.extend(manifests::METAL3_RIGHTS.map(str::to_owned));
            rights.push(manifests::METAL3_CONVERSION.to_owned());
        }
        for manifest in rights {
            apply::manifest(&admin, &manifest).await?;
        }
        let cluster_api = ClusterApi::start(parts, &control_plane).await?;
        let namespaces = served.namespaces.iter().map(|&one| one.to_owned()).collect();
        let (name, has_metal3) = (name.to_owned(), served.has_metal3);
        let (replicas, environment) = (vec![], served.environment.to_vec());
        Ok(Self { control_plane, cluster_api, admin, replicas, name, namespaces, has_metal3, environment })
    }

    /// Applies a manifest as an operator does.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn apply(&self, manifest: &str) -> anyhow::Result<()> {
        retry("apply a manifest", async || apply::manifest(&self.admin, manifest).await).await?;
        Ok(())
    }

    /// Applies a Secret as an operator does.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn apply_secret(&self, namespace: &str, mut secret: Secret) -> anyhow::Result<()> {
        let api: Api<Secret> = Api::namespaced(self.admin.clone(), namespace);
        secret.metadata.namespace = Some(namespace.to_owned());
        let name = secret.metadata.name.clone().context("a Secret without name")?;
        let params = PatchParams::apply(apply::FIELD_MANAGER).force();
        retry("apply a Secret", async || api.patch(&name, &params, &Patch::Apply(&secret)).await).await?;
        Ok(())
    }

    /// Waits until every replica serves hosts.
    ///
    /// # Errors
    /// When one does not, with the end of its log.
    pub async fn coordinator_ready(&self) -> anyhow::Result<()> {
        for replica in &self.replicas {
            replica.ready().await?;
        }
        Ok(())
    }

    /// Where the replicas serve hosts.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(Replica::address).collect()
    }

    /// A place in the audit log.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn mark(&self) -> anyhow::Result<Mark> {
        Ok(self.control_plane.audit().mark()?)
    }

    /// What the coordinator asked the API server for since then.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn counts(&self, since: Mark) -> anyhow::Result<Counts> {
        Ok(self.control_plane.audit().counts(USER, since)?)
    }
}

impl Site {
    /// Starts it, with a line for each step.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start(
        directory: Arc<Directory>,
        reach: Reach,
        served: Served<'_>,
        managers: Managers,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let parts = Parts::from_environment()?;
        progress.step("management cluster: etcd, kube-apiserver, kube-controller-manager, Cluster API");
        let mut management = Management::start(&parts, &directory, "management", served).await?;
        if managers == Managers::Kubeadm {
            progress.step("Cluster API's managers for kubeadm: bootstrap data and control planes");
            management.cluster_api.start_kubeadm(&parts, &management.control_plane).await?;
        }
        // Owner references are collected only for kinds that it has seen.
        management.control_plane.restart_controllers().await?;
        progress.step("coordinator: two replicas, with their own least-privilege user");
        let (forwarder, url) = open(reach).await?;
        let mut site = Self { management, forwarder, parts, directory, url };
        site.management.replicas = start_replicas(&site.management, &site.directory, &site.url)?;
        site.management.coordinator_ready().await?;
        site.forwarder.set_targets(site.management.addresses());
        Ok(site)
    }

    /// Starts another management cluster, without a coordinator.
    ///
    /// # Errors
    /// Whatever does not start, with the end of its log.
    pub async fn start_management(&self, name: &str) -> anyhow::Result<Management> {
        let management = Management::start(&self.parts, &self.directory, name, Served::default()).await?;
        management.control_plane.restart_controllers().await?;
        Ok(management)
    }

    /// Stops the management cluster: its API server and its coordinator. Hosts reach nothing.
    ///
    /// # Errors
    /// When a replica does not run.
    pub fn stop_management(&self) -> anyhow::Result<()> {
        self.forwarder.set_targets(vec![]);
        self.management.replicas.iter().try_for_each(Replica::kill)?;
        self.management.control_plane.kill_api_server();
        Ok(())
    }

    /// Starts it again, with Cluster API's managers, which do not outlive the API server.
    ///
    /// # Errors
    /// When a part does not get ready, with the end of its log.
    pub async fn resume_management(&self) -> anyhow::Result<()> {
        self.management.control_plane.restart_api_server().await?;
        self.management.control_plane.restart_controllers().await?;
        self.management.cluster_api.restart().await?;
        self.management.replicas.iter().try_for_each(Replica::restart)?;
        self.management.coordinator_ready().await?;
        self.forwarder.set_targets(self.management.addresses());
        Ok(())
    }

    /// Starts the coordinator of another management cluster, under the same URL.
    ///
    /// # Errors
    /// When it does not get ready, with the end of its log.
    pub async fn start_coordinator(&self, management: &mut Management) -> anyhow::Result<()> {
        management.replicas = start_replicas(management, &self.directory, &self.url)?;
        management.coordinator_ready().await
    }

    /// The coordinator's CA certificate, as an operator reads it.
    ///
    /// # Errors
    /// When the Secret is not there.
    pub async fn authority(&self) -> anyhow::Result<PathBuf> {
        let api: Api<Secret> = Api::namespaced(self.management.admin.clone(), NAMESPACE);
        let secret = retry("read the CA", async || api.get("baremetal-coordinator-ca").await).await?;
        let pem =
            secret.data.and_then(|mut data| data.remove("ca.crt")).context("the CA Secret has no ca.crt")?;
        let path = self.directory.path().join("coordinator-ca.pem");
        std::fs::write(&path, pem.0)?;
        Ok(path)
    }

    /// Downloads what the coordinator serves, as an operator does.
    ///
    /// # Errors
    /// When curl fails.
    pub async fn download(&self, url: &str, to: &Path) -> anyhow::Result<()> {
        let authority = self.authority().await?;
        // QEMU guests reach the coordinator by an address that is not this machine's.
        let here = format!("{GUEST_GATEWAY}:{GUEST_COORDINATOR}:{}", self.forwarder.address());
        let options = ["--silent", "--show-error", "--fail", "--retry", "5", "--retry-all-errors"];
        let mut arguments: Vec<String> = options.map(str::to_owned).to_vec();
        arguments.extend(["--connect-to".to_owned(), here, "--cacert".to_owned()]);
        arguments.push(authority.display().to_string());
        arguments.extend(["--output".to_owned(), to.display().to_string(), url.to_owned()]);
        run_curl(arguments).await.map_err(anyhow::Error::msg)
    }

    /// The ends of the logs of all replicas, for errors.
    pub fn logs(&self) -> String {
        let log = |replica: &Replica| format!("{}:\n{}\n", replica.name(), replica.log());
        self.management.replicas.iter().map(log).collect()
    }
}

/// The address of the coordinator, and its URL for hosts.
async fn open(reach: Reach) -> anyhow::Result<(Forwarder, String)> {
    let loopback = async || anyhow::Ok(Forwarder::start(ports::free()?).await?);
    Ok(match reach {
        Reach::Loopback => {
            let forwarder = loopback().await?;
            let url = format!("https://127.0.0.1:{}", forwarder.port());
            (forwarder, url)
        }
        Reach::Guests => (loopback().await?, format!("https://{GUEST_GATEWAY}:{GUEST_COORDINATOR}")),
        Reach::Switch => {
            let address = SocketAddr::from((IpAddr::V4(switch::ADDRESS), GUEST_COORDINATOR));
            (Forwarder::start_at(address).await?, format!("https://{address}"))
        }
        Reach::Segments => {
            let address = SocketAddr::from((IpAddr::V4(GUEST_GATEWAY), GUEST_COORDINATOR));
            (Forwarder::start_at(address).await?, format!("https://{address}"))
        }
    })
}

fn start_replicas(management: &Management, directory: &Directory, url: &str) -> anyhow::Result<Vec<Replica>> {
    let name = format!("{}-coordinator", management.name);
    let (control_plane, namespaces) = (&management.control_plane, &*management.namespaces);
    let (has_metal3, environment) = (management.has_metal3, &*management.environment);
    let placement =
        Placement { control_plane, directory, name: &name, url, namespaces, has_metal3, environment };
    (0..REPLICAS).map(|number| Replica::start(&placement, number)).collect()
}
