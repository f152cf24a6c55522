//! A management cluster of real processes on loopback, and coordinators beside it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use control_plane::audit::{Counts, Mark};
use control_plane::directory::Directory;
use control_plane::parts::{Parts, Provider};
use control_plane::process::{Process, Spec};
use control_plane::{ControlPlane, Settings, apply, ports};
use coordinator_api::conditions::{Type, is_true};
use coordinator_api::crds;
use coordinator_api::registration::MachineRegistration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::protocol::Endpoint;
use crate::usage;
use crate::wait::until;

/// Namespace of hosts and machines.
pub(crate) const NAMESPACE: &str = "default";
const OWN_NAMESPACE: &str = "baremetal-system";
/// The user of the coordinator.
const USER: &str = "system:serviceaccount:baremetal-system:baremetal-coordinator";
const TIME_LIMIT: Duration = Duration::from_mins(2);

const REGISTRATION: &str = "
apiVersion: elemental.cattle.io/v1beta1
kind: MachineRegistration
metadata: {name: bench, namespace: default}
spec:
  machineName: ${System Information/UUID}
  maxHosts: 100000
  newHostsPerMinute: 1000000
  config:
    elemental:
      install: {device: /dev/vda}
      registration: {emulate-tpm: true}
";

/// etcd, kube-apiserver and kube-controller-manager with our kinds and Cluster API's.
pub(crate) struct Site {
    pub(crate) management: ControlPlane,
    pub(crate) admin: Client,
    binary: PathBuf,
    directory: Directory,
}

/// A running coordinator; killed when dropped.
pub(crate) struct Coordinator {
    process: Process,
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

impl Coordinator {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        usage::cpu_seconds(self.id())
    }

    pub(crate) fn resident_bytes(&self) -> anyhow::Result<f64> {
        usage::resident_bytes(self.id())
    }
}

impl Site {
    /// Starts the management cluster. `binary` is the coordinator that is measured.
    pub(crate) async fn start(binary: &Path) -> anyhow::Result<Self> {
        let parts = Parts::from_environment()?;
        let directory = Directory::temporary()?;
        let settings = Settings::management().kept_in(&directory.path().join("management"));
        let management = ControlPlane::start(&parts, &settings).await?;
        let admin = management.admin().await?;
        for crd in crds::all() {
            apply::manifest(&admin, &crds::yaml(&crd)?).await?;
        }
        apply::manifest(&admin, include_str!("../../../coordinator/config/rbac.yaml")).await?;
        apply::manifest(&admin, include_str!("../../../coordinator/config/all-namespaces.yaml")).await?;
        apply::objects(&admin, &cluster_api_kinds(&parts)?).await?;
        Ok(Self { management, admin, binary: binary.to_owned(), directory })
    }

    /// Starts a coordinator and waits until it serves. `url` is where hosts reach it, by default
    /// its own port.
    pub(crate) async fn start_coordinator(
        &self,
        name: &str,
        url: Option<&str>,
    ) -> anyhow::Result<Coordinator> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let health = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let diagnostics = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let kubeconfig = self.management.kubeconfig(USER, "system:serviceaccounts")?;
        let cache = self.directory.path().join(format!("{name}-cache"));
        std::fs::create_dir_all(&cache)?;
        let url = url.map_or_else(|| format!("https://{address}"), str::to_owned);
        let process = Process::start(Spec {
            name: name.to_owned(),
            binary: self.binary.clone(),
            arguments: vec![
                format!("--server-url={url}"),
                format!("--listen={address}"),
                format!("--health-listen={health}"),
                format!("--own-namespace={OWN_NAMESPACE}"),
                format!("--instance={name}"),
                "--server-name=127.0.0.1".to_owned(),
                // All hosts have one address.
                "--source-connections=30000".to_owned(),
                "--source-anonymous=30000".to_owned(),
                "--source-handshakes=30000".to_owned(),
                "--source-rate=1000000".to_owned(),
                "--anonymous-connections=30000".to_owned(),
                "--source-requests=1000000".to_owned(),
                "--registrations=256".to_owned(),
                format!("--cache-directory={}", cache.display()),
            ],
            environment: vec![
                ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
                // An earlier program, which may be measured too, does not know the flags.
                ("DIAGNOSTICS_ADDRESS".to_owned(), diagnostics.to_string()),
                ("INSECURE_DIAGNOSTICS".to_owned(), "true".to_owned()),
            ],
            log: self.directory.path().join(format!("{name}.log")),
        })?;
        until(&format!("{name} is ready"), TIME_LIMIT, async || Ok(is_ready(health).await)).await?;
        Ok(Coordinator { process, name: name.to_owned(), address })
    }

    /// The name of the replica that leads, as soon as there is one of `coordinators`.
    pub(crate) async fn leader(&self, coordinators: &[Coordinator]) -> anyhow::Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), OWN_NAMESPACE);
        let mut found = None;
        until("a leader", TIME_LIMIT, async || {
            let lease = leases.get_opt("baremetal-coordinator").await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            let leads = |it: &&Coordinator| holder.starts_with(&format!("{}-", it.name));
            found = coordinators.iter().find(leads).map(|it| it.name.clone());
            Ok(found.is_some())
        })
        .await?;
        found.context("no coordinator leads")
    }

    /// Applies the registration and answers how hosts reach `address` with its token.
    pub(crate) async fn open_registration(&self, address: SocketAddr) -> anyhow::Result<Endpoint> {
        apply::manifest(&self.admin, REGISTRATION).await?;
        let registrations: Api<MachineRegistration> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let mut token = None;
        until("the registration has a token", TIME_LIMIT, async || {
            let status = registrations.get("bench").await?.status.unwrap_or_default();
            let is_ready = is_true(&status.conditions, Type::Ready);
            token = status.registration_token.filter(|_| is_ready);
            Ok(token.is_some())
        })
        .await?;
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), OWN_NAMESPACE);
        let data = secrets.get("baremetal-coordinator-ca").await?.data;
        let authority = data.and_then(|mut data| data.remove("ca.crt")).context("there is no ca.crt")?;
        Endpoint::new(address, &authority.0, &token.context("no token")?)
    }

    pub(crate) fn mark(&self) -> anyhow::Result<Mark> {
        Ok(self.management.audit().mark()?)
    }

    /// What the coordinators asked for since `mark`, once the log is complete.
    pub(crate) async fn requests_since(&self, mark: Mark) -> anyhow::Result<RequestCounts> {
        let audit = self.management.audit();
        let mut counts = audit.counts(USER, mark)?;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let again = audit.counts(USER, mark)?;
            let (old, new) = (RequestCounts::of(&counts), RequestCounts::of(&again));
            if old.requests == new.requests {
                return Ok(new);
            }
            counts = again;
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }
}

/// Requests of coordinators without those that do not depend on hosts: Leases, watches, and the
/// question each minute which version of Cluster API is served.
pub(crate) struct RequestCounts {
    pub(crate) requests: u64,
    pub(crate) writes: u64,
    pub(crate) lists: u64,
    /// Each kind of request, the most frequent ones first.
    pub(crate) details: String,
}

impl RequestCounts {
    fn of(counts: &Counts) -> Self {
        let is_counted =
            |key: &str| !key.contains(" leases") && !key.starts_with("watch ") && key != "get /apis";
        let mut by: Vec<(&String, u64)> =
            counts.by.iter().filter(|(key, _)| is_counted(key)).map(|(key, count)| (key, *count)).collect();
        by.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let sum = |verbs: &[&str]| -> u64 {
            let is_one = |key: &str| verbs.iter().any(|verb| key.starts_with(verb));
            by.iter().filter(|(key, _)| is_one(key)).map(|(_, count)| count).sum()
        };
        let details: Vec<String> = by.iter().map(|(key, count)| format!("{count} {key}")).collect();
        Self {
            requests: by.iter().map(|(_, count)| count).sum(),
            writes: sum(&["create ", "update ", "patch ", "delete "]),
            lists: sum(&["list "]),
            details: details.join(", "),
        }
    }
}

/// Cluster API's Machine and Cluster. Its manager does not run: the benchmark creates the
/// Machines, and nothing converts between versions.
fn cluster_api_kinds(parts: &Parts) -> anyhow::Result<Vec<kube::api::DynamicObject>> {
    let components = std::fs::read_to_string(parts.cluster_api_components(Provider::Core)?)?;
    let mut objects = apply::parse_manifest(&components)?;
    objects.retain(|object| {
        let is_definition = object.types.as_ref().is_some_and(|it| it.kind == "CustomResourceDefinition");
        let name = object.metadata.name.as_deref();
        is_definition && matches!(name, Some("machines.cluster.x-k8s.io" | "clusters.cluster.x-k8s.io"))
    });
    for object in &mut objects {
        object.data["spec"]["conversion"] = serde_json::json!({ "strategy": "None" });
    }
    Ok(objects)
}

async fn is_ready(health: SocketAddr) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(health).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    ask.await.is_ok_and(|answer| answer.lines().next().is_some_and(|line| line.contains(" 200 ")))
}

/// A URL under which hosts reach `address`.
pub(crate) fn url_of(address: SocketAddr) -> Arc<str> {
    format!("https://{address}").into()
}
