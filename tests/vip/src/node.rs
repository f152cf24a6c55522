//! One node: a root directory, the agent's duty, keepalived, perhaps etcd and an API server.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::ground::paths::Root;
use agent::state::duty;
use anyhow::Context as _;
use control_plane::parts::{Part, Parts};
use control_plane::pki::{Authority, ServiceAccountKeys};
use control_plane::process::{Process, Signal, Spec};
use nix::errno::Errno;
use nix::unistd::Pid;
use proto::v1alpha1::{LoadBalancerDuty, LoadBalancerState};
use serde_json::Value;

use crate::network::{Family, Network, run_ip, run_ip_with};

/// Port of the API servers.
pub const PORT: u16 = 6443;
/// Where this file is beside its certificates, a stand-in is not ready.
pub const UNREADY: &str = "unready";
/// Where this file is, it answers late.
pub const LATE: &str = "late";
/// Where this file is, it never answers.
pub const HUNG: &str = "hung";
/// How long keepalived may take that is asked to end.
const STOP: Duration = Duration::from_secs(8);

/// Authority and keys that all API servers of a cluster share.
pub struct Keys {
    /// Signs servers and clients.
    pub authority: Authority,
    accounts: ServiceAccountKeys,
}

impl Keys {
    /// New ones.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn create() -> anyhow::Result<Self> {
        Ok(Self { authority: Authority::new("kubernetes")?, accounts: ServiceAccountKeys::new()? })
    }
}

pub struct Node {
    namespace: String,
    index: usize,
    family: Family,
    directory: tempfile::TempDir,
    agent: Option<Process>,
    api: Option<Process>,
    etcd: Option<Process>,
}

impl Node {
    /// A node without anything running.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn create(network: &Network, index: usize, keys: &Keys) -> anyhow::Result<Self> {
        let family = network.family;
        let directory = tempfile::tempdir()?;
        let root = Root::at(directory.path());
        fs::create_dir_all(root.state().path())?;
        let pki = root.join("/etc/kubernetes/pki");
        fs::create_dir_all(&pki)?;
        let server = keys.authority.server("kube-apiserver", &[family.address(index), family.endpoint()])?;
        let admin = keys.authority.client("admin", control_plane::control_plane::ADMINISTRATORS)?;
        for (name, text) in [
            ("ca.crt", &keys.authority.pair().certificate),
            ("server.crt", &server.certificate),
            ("server.key", &server.key),
            ("admin.crt", &admin.certificate),
            ("admin.key", &admin.key),
            ("sa.pub", &keys.accounts.public),
            ("sa.key", &keys.accounts.private),
        ] {
            fs::write(pki.join(name), text)?;
        }
        let namespace = network.namespace(index);
        Ok(Self { namespace, index, family, directory, agent: None, api: None, etcd: None })
    }

    pub fn root(&self) -> Root {
        Root::at(self.directory.path())
    }

    fn pki(&self, name: &str) -> PathBuf {
        self.root().join("/etc/kubernetes/pki").join(name)
    }

    /// Lets its agent see the kernel's files of its namespace below its root directory.
    ///
    /// # Errors
    /// When the link cannot be made.
    pub fn show_kernel(&self) -> anyhow::Result<()> {
        Ok(std::os::unix::fs::symlink("/proc", self.root().join("/proc"))?)
    }

    /// Gives it a duty among `members`, as the coordinator does.
    ///
    /// # Errors
    /// When it is refused.
    pub fn give_duty(&self, generation: u64, members: &[usize]) -> anyhow::Result<()> {
        let position = members.iter().position(|member| *member == self.index).unwrap_or_default();
        let duty = LoadBalancerDuty {
            generation,
            address: self.family.endpoint().to_string(),
            port: PORT.into(),
            router_id: 51,
            interface: String::new(),
            members: members.iter().map(|member| self.family.address(*member).to_string()).collect(),
            position: u32::try_from(position)?,
            holds_first: members.len() == 1,
        };
        self.keep_duty(&duty)
    }

    /// Gives it that duty.
    ///
    /// # Errors
    /// When it is refused.
    pub fn keep_duty(&self, duty: &LoadBalancerDuty) -> anyhow::Result<()> {
        Ok(duty::keep_duty(&self.root(), duty)?)
    }

    /// How far it is with its duty.
    pub fn state(&self) -> LoadBalancerState {
        duty::read_state(&self.root()).unwrap_or_default()
    }

    /// Starts the verb `alive` of `program`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_agent(&mut self, program: &Path) -> anyhow::Result<()> {
        let root = self.directory.path().display().to_string();
        self.agent = Some(self.start("agent", program, &["--root", &root, "alive"])?);
        Ok(())
    }

    /// Starts a stand-in that answers `/readyz`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_stand_in(&mut self, program: &Path) -> anyhow::Result<()> {
        let pki = self.root().join("/etc/kubernetes/pki").display().to_string();
        let listen = SocketAddr::new(self.family.unspecified(), PORT).to_string();
        self.api = Some(self.start("readyz", program, &["serve-readyz", &listen, &pki])?);
        Ok(())
    }

    /// Has the stand-in answer as the mark says, or no longer: [`UNREADY`], [`LATE`], [`HUNG`].
    ///
    /// # Errors
    /// When its directory cannot be written.
    pub fn set_mark(&self, mark: &str, is_set: bool) -> anyhow::Result<()> {
        let path = self.root().join("/etc/kubernetes/pki").join(mark);
        if is_set {
            fs::write(path, "")?;
        } else {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Starts etcd as one of `members`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_etcd(&mut self, parts: &Parts, members: &[usize]) -> anyhow::Result<()> {
        let peer = |node: usize| format!("http://{}", SocketAddr::new(self.family.address(node), 2380));
        let all: Vec<_> = members.iter().map(|member| format!("n{member}={}", peer(*member))).collect();
        let own = peer(self.index);
        let arguments = [
            format!("--name=n{}", self.index),
            format!("--data-dir={}", self.directory.path().join("etcd").display()),
            "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
            "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
            format!("--listen-peer-urls={own}"),
            format!("--initial-advertise-peer-urls={own}"),
            format!("--initial-cluster={}", all.join(",")),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.etcd = Some(self.start("etcd", &parts.path(Part::Etcd)?, &arguments)?);
        Ok(())
    }

    /// Member ID of the node's etcd, and of its leader.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn etcd_ids(&self, parts: &Parts) -> anyhow::Result<(u64, u64)> {
        let status = self.run_etcdctl(parts, &["endpoint", "status", "--write-out=json"])?;
        let status: Value = serde_json::from_str(&status)?;
        let id = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64);
        let ids = id("/0/Status/header/member_id").zip(id("/0/Status/leader"));
        ids.with_context(|| format!("etcd's status has no IDs: {status}"))
    }

    /// Has this leader make another member the leader.
    ///
    /// # Errors
    /// When it refuses.
    pub fn hand_over_etcd(&self, parts: &Parts, member: u64) -> anyhow::Result<()> {
        self.run_etcdctl(parts, &["move-leader", &format!("{member:x}")]).map(drop)
    }

    fn run_etcdctl(&self, parts: &Parts, arguments: &[&str]) -> anyhow::Result<String> {
        let program = parts.path(Part::Etcdctl)?.display().to_string();
        run_ip_with(&[&["netns", "exec", &self.namespace, &program], arguments].concat())
    }

    /// Starts a real API server on the node's etcd.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_api_server(&mut self, parts: &Parts) -> anyhow::Result<()> {
        let file = |name: &str| self.pki(name).display().to_string();
        let arguments = [
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--secure-port={PORT}"),
            format!("--bind-address={}", self.family.unspecified()),
            format!("--advertise-address={}", self.family.address(self.index)),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--profiling=false".to_owned(),
            format!("--cert-dir={}", self.directory.path().join("run").display()),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
        ];
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.api = Some(self.start("kube-apiserver", &parts.path(Part::KubeApiserver)?, &arguments)?);
        Ok(())
    }

    fn start(&self, name: &str, program: &Path, arguments: &[&str]) -> anyhow::Result<Process> {
        let mut all = vec!["netns".to_owned(), "exec".to_owned(), self.namespace.clone()];
        all.push(program.display().to_string());
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Ok(Process::start(Spec {
            name: format!("{name} of {}", self.namespace),
            binary: "ip".into(),
            arguments: all,
            environment: Vec::new(),
            log: self.log(name),
        })?)
    }

    /// Where a process of the node writes to.
    pub fn log(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.log"))
    }

    /// Ends the API server at once.
    pub fn kill_api_server(&mut self) {
        self.api = None;
    }

    /// Ends etcd at once.
    pub fn kill_etcd(&mut self) {
        self.etcd = None;
    }

    /// Ends keepalived at once, and leaves the agent that watches it.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_keepalived(&self) -> anyhow::Result<()> {
        // The child ends with its parent, and takes its file along.
        let read = |name: &str| fs::read_to_string(self.root().load_balancer().join(name));
        for text in [read("vrrp.pid")?, read("keepalived.pid")?] {
            match nix::sys::signal::kill(Pid::from_raw(text.trim().parse()?), Signal::SIGKILL) {
                Err(Errno::ESRCH) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Its keepalived, while it runs.
    pub fn keepalived(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.root().load_balancer().join("keepalived.pid")).ok()?;
        let id = text.trim().parse().ok().filter(|id| Path::new(&format!("/proc/{id}/exe")).exists())?;
        Some(Pid::from_raw(id))
    }

    /// Takes the power away: everything ends at once, and what the kernel had is gone. The files stay.
    pub fn lose_power(&mut self) {
        (self.agent, self.api, self.etcd) = (None, None, None);
        let _ = self.kill_keepalived();
        let _ = fs::remove_dir_all(self.root().runtime());
        let (endpoint, device) = (self.family.endpoint(), crate::network::CARD);
        let _ = run_ip(&format!("-n {} addr del {endpoint} dev {device}", self.namespace));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop(STOP);
        }
    }
}
