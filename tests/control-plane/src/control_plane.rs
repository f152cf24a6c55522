//! One cluster's control plane: etcd, kube-apiserver, kube-controller-manager.

mod flags;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::audit::{self, Audit};
use crate::directory::Directory;
use crate::etcd::{self, Etcd, Key};
use crate::parts::{self, Part, Parts};
use crate::pki::{self, Authority, ServiceAccountKeys};
use crate::process::{self, Server, Signal, Spec};
use crate::{kubeconfig, ports};
use flags::Layout;
pub(crate) use flags::SERVICE_SUBNET;

/// How long a part may take until it is ready. Quiet machines need 3 s; crowded ones much more.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// The group whose members may do everything.
pub const ADMINISTRATORS: &str = "system:masters";

/// A control plane could not be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A binary is missing.
    #[error("find the parts of a control plane")]
    Parts(#[from] parts::Error),
    /// A file of its directory could not be written.
    #[error("write the files of a control plane")]
    Files(#[from] io::Error),
    /// A certificate could not be made.
    #[error("make the certificates of a control plane")]
    Certificates(#[from] pki::Error),
    /// A process did not start or get ready.
    #[error("run a control plane")]
    Process(#[from] process::Error),
    /// No client could be made.
    #[error("connect to a control plane")]
    Connect(#[from] kubeconfig::Error),
    /// A key could not be removed from etcd.
    #[error("remove keys from etcd")]
    Etcd(#[from] etcd::Error),
}

/// What a control plane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Cluster API and the coordinator live in it.
    Management,
    /// Hosts join it: node authorizer, node restriction, bootstrap tokens.
    Workload,
}

/// How to start a control plane.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it is for.
    pub role: Role,
    /// Addresses by which guests reach it, beside localhost and 127.0.0.1.
    pub addresses: Vec<IpAddr>,
    /// Where data, certificates and logs are kept; `None` is a temporary directory, removed with
    /// the control plane.
    pub directory: Option<PathBuf>,
}

impl Settings {
    /// A management cluster in a temporary directory.
    pub fn management() -> Self {
        Self { role: Role::Management, addresses: Vec::new(), directory: None }
    }

    /// The same, with its files kept in `directory`.
    pub fn kept_in(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }
}

/// A running control plane. Dropping it ends its processes.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: clients before servers, files last.
    controllers: Server,
    api_server: Server,
    etcd: Server,
    authority: Authority,
    audit: Audit,
    store: Etcd,
    url: String,
    port: u16,
    directory: Directory,
}

impl ControlPlane {
    /// Starts one and waits until it serves and its controllers work.
    ///
    /// # Errors
    /// When a part is missing or does not get ready.
    pub async fn start(parts: &Parts, settings: &Settings) -> Result<Self, Error> {
        parts.ensure(&[Part::Etcd, Part::KubeApiserver, Part::KubeControllerManager], &parts::to_stderr)?;
        let directory = match &settings.directory {
            Some(path) => Directory::kept(path)?,
            None => Directory::temporary()?,
        };
        let authority = Authority::new("kubernetes")?;
        let layout = Layout {
            role: settings.role,
            directory: directory.path().to_owned(),
            port: ports::free()?,
            etcd_port: ports::free()?,
            etcd_peer_port: ports::free()?,
        };
        write_files(&directory, &authority, &layout, &settings.addresses)?;
        let etcd = Server::start(spec(parts, Part::Etcd, &layout, layout.etcd_flags())?)?;
        let flags = layout.api_server_flags();
        let api_server = Server::start(spec(parts, Part::KubeApiserver, &layout, flags)?)?;
        // The controllers end when it takes more than ten seconds.
        let pair = authority.client("admin", ADMINISTRATORS)?;
        let text = kubeconfig::render(&layout.url(), &authority.pair().certificate, "admin", &pair);
        let client = kubeconfig::client(&text).await?;
        api_server.ready(TIME_LIMIT, || probe(client.clone())).await?;
        let flags = layout.controller_flags();
        let controllers = spec(parts, Part::KubeControllerManager, &layout, flags)?;
        let control_plane = Self {
            controllers: Server::start(controllers)?,
            api_server,
            etcd,
            authority,
            audit: Audit::at(&layout.file("audit.jsonl")),
            store: Etcd::at(layout.etcd_port),
            url: layout.url(),
            port: layout.port,
            directory,
        };
        control_plane.kubeconfig("admin", ADMINISTRATORS)?;
        control_plane.ready().await?;
        Ok(control_plane)
    }

    /// Waits until the API server serves and the controllers work. Their work is seen by the
    /// service account that they make in the default namespace.
    ///
    /// # Errors
    /// When one of the processes ends or takes too long.
    pub async fn ready(&self) -> Result<(), Error> {
        let client = self.admin().await?;
        self.api_server.ready(TIME_LIMIT, || probe(client.clone())).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        let seen = || async {
            match accounts.get_opt("default").await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err("no default service account yet".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        };
        self.controllers.ready(TIME_LIMIT, seen).await?;
        Ok(())
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The loopback port of the API server: guests are forwarded to it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority that signs everything here.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The directory of its files: `*.kubeconfig`, `*.log`, `audit.jsonl`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The audit log: who asked for what.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// A kubeconfig for a new certificate of `user` in `group`.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn kubeconfig_text(&self, user: &str, group: &str) -> Result<String, Error> {
        let pair = self.authority.client(user, group)?;
        let authority = &self.authority.pair().certificate;
        Ok(kubeconfig::render(&self.url, authority, user, &pair))
    }

    /// The same as a file in [`ControlPlane::directory`], named after the user.
    ///
    /// # Errors
    /// When it cannot be made or written.
    pub fn kubeconfig(&self, user: &str, group: &str) -> Result<PathBuf, Error> {
        let text = self.kubeconfig_text(user, group)?;
        Ok(self.directory.write(&file_name(user), &text)?)
    }

    /// The administrator's kubeconfig file.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.directory.path().join(file_name("admin"))
    }

    /// A client as administrator, for the runtime that calls this.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn admin(&self) -> Result<Client, Error> {
        self.client("admin", ADMINISTRATORS).await
    }

    /// A client as `user` in `group`, for the runtime that calls this.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn client(&self, user: &str, group: &str) -> Result<Client, Error> {
        let text = self.kubeconfig_text(user, group)?;
        Ok(kubeconfig::client(&text).await?)
    }

    /// A client with a token of a service account, as a pod of it has.
    ///
    /// # Errors
    /// When the account is not there, or no client can be made.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Client, Error> {
        let token = self.issue_token(namespace, name).await?;
        let authority = &self.authority.pair().certificate;
        let text = kubeconfig::render_token(&self.url, authority, name, &token);
        Ok(kubeconfig::client(&text).await?)
    }

    /// A token of a service account.
    ///
    /// # Errors
    /// When the account is not there.
    pub async fn issue_token(&self, namespace: &str, name: &str) -> Result<String, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let request = TokenRequest::default();
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let token = answer.map_err(kubeconfig::Error::from)?.status.and_then(|status| status.token);
        Ok(token.unwrap_or_default())
    }

    /// Takes objects out of etcd beneath the API server, all in one revision: its watches see them
    /// go without a `deletionTimestamp`, and no finalizer holds them. The answer is the keys that
    /// were not there.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn take_out(&self, keys: &[Key]) -> Result<Vec<Key>, Error> {
        Ok(self.store.remove(keys).await?)
    }

    /// Lets the API server hang: connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause_api_server(&self) -> Result<(), Error> {
        Ok(self.api_server.signal(Signal::SIGSTOP)?)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume_api_server(&self) -> Result<(), Error> {
        Ok(self.api_server.signal(Signal::SIGCONT)?)
    }

    /// Kills the API server: connections break and new ones are refused.
    pub fn kill_api_server(&self) {
        self.api_server.kill();
    }

    /// Starts the API server again, on the same port and data, and waits for it.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn restart_api_server(&self) -> Result<(), Error> {
        self.api_server.restart()?;
        self.ready().await
    }

    /// Starts kube-controller-manager again. Its garbage collector discovers new kinds every 30 s
    /// only: after this it knows the CRDs of now.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn restart_controllers(&self) -> Result<(), Error> {
        self.controllers.restart()?;
        self.ready().await
    }

    /// Kills and starts all parts again on the same data.
    ///
    /// # Errors
    /// When one does not get ready.
    pub async fn restart(&self) -> Result<(), Error> {
        for server in [&self.controllers, &self.api_server, &self.etcd] {
            server.kill();
        }
        self.etcd.restart()?;
        self.api_server.restart()?;
        let client = self.admin().await?;
        self.api_server.ready(TIME_LIMIT, || probe(client.clone())).await?;
        self.controllers.restart()?;
        self.ready().await
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, Error> {
        Ok(self.directory.write(name, content)?)
    }
}

async fn probe(client: Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn file_name(user: &str) -> String {
    let plain = user.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    format!("{plain}.kubeconfig")
}

fn spec(parts: &Parts, part: Part, layout: &Layout, arguments: Vec<String>) -> Result<Spec, Error> {
    Ok(Spec {
        name: part.name().to_owned(),
        binary: parts.path(part)?,
        arguments,
        environment: Vec::new(),
        log: layout.file(&format!("{}.log", part.name())),
    })
}

fn write_files(
    directory: &Directory,
    authority: &Authority,
    layout: &Layout,
    addresses: &[IpAddr],
) -> Result<(), Error> {
    let server = authority.server("kube-apiserver", addresses)?;
    let tokens = ServiceAccountKeys::new()?;
    // The controller manager acts as administrator under its own name: with one account for each
    // controller it would make two dozen accounts and tokens first, which only a real cluster needs.
    let controllers = authority.client("system:kube-controller-manager", ADMINISTRATORS)?;
    let kubeconfig = kubeconfig::render(
        &layout.url(),
        &authority.pair().certificate,
        "system:kube-controller-manager",
        &controllers,
    );
    let files = [
        (flags::AUTHORITY, &authority.pair().certificate),
        (flags::AUTHORITY_KEY, &authority.pair().key),
        (flags::SERVER, &server.certificate),
        (flags::SERVER_KEY, &server.key),
        (flags::TOKENS, &tokens.public),
        (flags::TOKENS_KEY, &tokens.private),
        (flags::CONTROLLERS, &kubeconfig),
        (flags::AUDIT_POLICY, &audit::POLICY.to_owned()),
    ];
    for (name, content) in files {
        directory.write(name, content)?;
    }
    Ok(())
}
