//! Cluster API's real managers beside a management control plane.
//!
//! Each manager runs under the name of the service account that its own manifest binds, as in
//! `system:serviceaccount:capi-system:capi-manager`: so its RBAC counts, with the rules of those
//! `ClusterRole`s that have the label `cluster.x-k8s.io/aggregate-to-manager: "true"`.

mod adapt;

use std::env;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::DynamicObject;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::parts::{self, Parts, Provider};
use crate::process::{self, Server, Spec};
use crate::{ControlPlane, apply, control_plane, pki, ports};

const TIME_LIMIT: Duration = Duration::from_mins(2);
/// With this environment variable the version v1beta1 of Cluster API is not served.
const WITHOUT_V1BETA1: &str = "WITHOUT_V1BETA1";

/// Cluster API could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its binary or manifest is missing.
    #[error("find the parts of Cluster API")]
    Parts(#[from] parts::Error),
    /// A file could not be read or written.
    #[error("read and write the files of Cluster API")]
    Files(#[from] io::Error),
    /// A certificate could not be made.
    #[error("make the certificate of Cluster API's webhooks")]
    Certificates(#[from] pki::Error),
    /// The control plane beside which it should run could not be used.
    #[error("use the control plane for Cluster API")]
    ControlPlane(#[from] control_plane::Error),
    /// Its manifests were refused.
    #[error("apply Cluster API's manifests")]
    Apply(#[from] apply::Error),
    /// Its role has no rules.
    #[error("the ClusterRole {role} got no rules within {} s: {seen}", TIME_LIMIT.as_secs())]
    Aggregation {
        role: &'static str,
        /// What was seen instead.
        seen: String,
    },
    /// Its process did not start or get ready.
    #[error("run a manager of Cluster API")]
    Process(#[from] process::Error),
}

/// The running managers. Dropping it ends the processes; their objects stay.
#[derive(Debug)]
pub struct ClusterApi {
    managers: Vec<Manager>,
}

#[derive(Debug)]
struct Manager {
    provider: Provider,
    /// As they were applied.
    objects: Vec<DynamicObject>,
    server: Server,
    health: u16,
}

impl ClusterApi {
    /// Applies CRDs, RBAC and webhooks, starts the core manager and waits until it is ready.
    ///
    /// # Errors
    /// When a part is missing, refused or not ready in time.
    pub async fn start(parts: &Parts, control_plane: &ControlPlane) -> Result<Self, Error> {
        let core = Manager::start(parts, control_plane, Provider::Core).await?;
        Ok(Self { managers: vec![core] })
    }

    /// The same for kubeadm's bootstrap data and control planes.
    pub async fn start_kubeadm(&mut self, parts: &Parts, control_plane: &ControlPlane) -> Result<(), Error> {
        for provider in [Provider::Bootstrap, Provider::ControlPlane] {
            self.managers.push(Manager::start(parts, control_plane, provider).await?);
        }
        Ok(())
    }

    /// What was applied for each provider, as a manifest.
    pub fn components(&self) -> Result<Vec<(Provider, String)>, serde_norway::Error> {
        let render = |manager: &Manager| {
            let documents = manager.objects.iter().map(serde_norway::to_string);
            Ok((manager.provider, documents.collect::<Result<Vec<_>, _>>()?.join("---\n")))
        };
        self.managers.iter().map(render).collect()
    }

    /// Waits until the managers and their webhooks answer.
    ///
    /// # Errors
    /// When one ends or takes too long.
    pub async fn ready(&self) -> Result<(), Error> {
        for manager in &self.managers {
            manager.ready().await?;
        }
        Ok(())
    }

    /// Starts the managers again so that they reconcile nothing and their webhooks still answer: what
    /// an operator does while objects are restored. [`ClusterApi::restart`] ends it.
    ///
    /// # Errors
    /// When one does not get ready.
    pub async fn stop_reconciling(&self) -> Result<(), Error> {
        for manager in &self.managers {
            // A label value that no object has.
            manager.server.restart_with(&["--watch-filter=restore-in-progress"])?;
        }
        self.ready().await
    }

    /// Kills and starts the managers again and waits for them.
    ///
    /// # Errors
    /// When one does not get ready.
    pub async fn restart(&self) -> Result<(), Error> {
        for manager in &self.managers {
            manager.server.restart()?;
        }
        self.ready().await
    }
}

impl Manager {
    async fn start(parts: &Parts, control_plane: &ControlPlane, provider: Provider) -> Result<Self, Error> {
        let components = std::fs::read_to_string(parts.cluster_api_components(provider)?)?;
        let (webhooks, health) = (ports::free()?, ports::free()?);
        let endpoint = adapt::Endpoint {
            url: format!("https://127.0.0.1:{webhooks}"),
            authority: control_plane.authority().pair().certificate.clone(),
        };
        let mut objects = adapt::adapt(apply::parse_manifest(&components)?, &endpoint);
        if env::var_os(WITHOUT_V1BETA1).is_some() {
            adapt::stop_serving_v1beta1(&mut objects);
        }
        apply::objects(&control_plane.admin().await?, &objects).await?;
        // Without its rights the manager's first reads fail, and it backs off for seconds.
        if let Some(role) = provider.aggregated_role() {
            role_is_aggregated(control_plane, role).await?;
        }
        let server = Server::start(spec(parts, control_plane, provider, (webhooks, health))?)?;
        let manager = Self { provider, objects, server, health };
        manager.ready().await?;
        Ok(manager)
    }

    async fn ready(&self) -> Result<(), Error> {
        let probe = || probe(self.health);
        Ok(self.server.ready(TIME_LIMIT, probe).await?)
    }
}

fn spec(
    parts: &Parts,
    control_plane: &ControlPlane,
    provider: Provider,
    (webhooks, health): (u16, u16),
) -> Result<Spec, Error> {
    let name = provider.part().name();
    let kubeconfig = control_plane.kubeconfig(&provider.user(), "system:serviceaccounts")?;
    let directory = control_plane.directory();
    let certificates = directory.join(name);
    std::fs::create_dir_all(&certificates)?;
    let server = control_plane.authority().server(name, &[])?;
    control_plane.write(&format!("{name}/tls.crt"), &server.certificate)?;
    control_plane.write(&format!("{name}/tls.key"), &server.key)?;
    let mut arguments = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--webhook-port={webhooks}"),
        format!("--webhook-cert-dir={}", certificates.display()),
        format!("--health-addr=127.0.0.1:{health}"),
        // "0" serves no metrics at all.
        "--diagnostics-address=0".to_owned(),
        "--insecure-diagnostics=true".to_owned(),
        "--v=2".to_owned(),
    ];
    arguments.extend(provider.feature_gates().map(str::to_owned));
    Ok(Spec {
        name: name.to_owned(),
        binary: parts.path(provider.part())?,
        arguments,
        environment: [
            ("POD_NAMESPACE", provider.namespace()),
            ("POD_NAME", name),
            ("POD_UID", "00000000-0000-0000-0000-000000000000"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        log: directory.join(format!("{name}.log")),
    })
}

/// A controller of kube-controller-manager collects the rules.
async fn role_is_aggregated(control_plane: &ControlPlane, role: &'static str) -> Result<(), Error> {
    let roles: Api<ClusterRole> = Api::all(control_plane.admin().await?);
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let seen = match roles.get(role).await {
            Ok(found) if found.rules.as_ref().is_some_and(|rules| !rules.is_empty()) => {
                return Ok(());
            }
            Ok(_) => "it has none".to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            return Err(Error::Aggregation { role, seen });
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn probe(port: u16) -> Result<(), String> {
    let answer = ask(port).await.map_err(|error| error.to_string())?;
    match answer.lines().next() {
        Some(line) if line.contains(" 200 ") => Ok(()),
        _ => Err(answer),
    }
}

async fn ask(port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
