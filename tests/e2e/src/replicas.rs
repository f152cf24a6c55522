//! The replicas of one coordinator: real processes that can be killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use control_plane::directory::Directory;
use control_plane::process::{Server, Signal, Spec};
use control_plane::{ControlPlane, ports};

use crate::commands::run_curl;

/// The coordinator's own user: the `ServiceAccount` that its RBAC names.
pub const USER: &str = "system:serviceaccount:baremetal-system:baremetal-coordinator";
/// The coordinator's own namespace.
pub const NAMESPACE: &str = "baremetal-system";

/// Where the replicas of one coordinator run, and under which URL.
#[derive(Debug)]
pub struct Placement<'a> {
    pub control_plane: &'a ControlPlane,
    pub directory: &'a Directory,
    /// Prefix of the replicas' names.
    pub name: &'a str,
    pub url: &'a str,
    /// What they are limited to; empty for all namespaces.
    pub namespaces: &'a [String],
    /// Whether they serve the kinds of Metal3.
    pub has_metal3: bool,
    /// What they have in their environment beside the usual.
    pub environment: &'a [(String, String)],
}

#[derive(Debug)]
pub struct Replica {
    name: String,
    server: Server,
    spec: Spec,
    port: u16,
    health: u16,
    diagnostics: u16,
}

impl Replica {
    /// Starts replica `number`.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(placement: &Placement<'_>, number: usize) -> anyhow::Result<Self> {
        let name = format!("{}-{number}", placement.name);
        let (port, health, diagnostics) = (ports::free()?, ports::free()?, ports::free()?);
        let kubeconfig = placement.control_plane.kubeconfig(USER, "system:serviceaccounts")?;
        let cache = placement.directory.path().join(format!("{name}-cache"));
        std::fs::create_dir_all(&cache)?;
        let mut spec = Spec {
            name: name.clone(),
            binary: find_coordinator()?,
            arguments: vec![
                format!("--server-url={}", placement.url),
                format!("--listen=127.0.0.1:{port}"),
                format!("--health-listen=127.0.0.1:{health}"),
                format!("--own-namespace={NAMESPACE}"),
                "--server-name=127.0.0.1".to_owned(),
                format!("--cache-directory={}", cache.display()),
                "--allow-base=127.0.0.1".to_owned(),
                "--allow-workload=127.0.0.1".to_owned(),
            ],
            environment: vec![
                ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
                ("POD_NAME".to_owned(), name.clone()),
                // Former releases know no such flags, and ignore the variables.
                ("DIAGNOSTICS_ADDRESS".to_owned(), format!("127.0.0.1:{diagnostics}")),
                ("INSECURE_DIAGNOSTICS".to_owned(), "true".to_owned()),
            ],
            log: placement.directory.path().join(format!("{name}.log")),
        };
        // For bases without it.
        if let Some(agent) = std::env::var_os("AGENT").filter(|path| !path.is_empty()) {
            spec.arguments.push(format!("--agent-path={}", Path::new(&agent).display()));
        }
        if placement.has_metal3 {
            let conversion = ports::free()?;
            spec.arguments.push("--metal3=full".to_owned());
            let address = ("CONVERSION_ADDRESS".to_owned(), format!("127.0.0.1:{conversion}"));
            let url = ("CONVERSION_URL".to_owned(), format!("https://127.0.0.1:{conversion}"));
            spec.environment.extend([address, url]);
        }
        spec.environment.extend(placement.environment.iter().cloned());
        spec.arguments.extend(placement.namespaces.iter().map(|one| format!("--namespace={one}")));
        Ok(Self { name, server: Server::start(spec.clone())?, spec, port, health, diagnostics })
    }

    /// Its identity: the name of its pod.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves hosts.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.server.log()).unwrap_or_default()
    }

    /// Waits until it serves hosts.
    ///
    /// # Errors
    /// When it does not, with the end of its log.
    pub async fn ready(&self) -> anyhow::Result<()> {
        self.server.ready(Duration::from_mins(2), || self.probe()).await?;
        Ok(())
    }

    /// Whether it serves hosts now.
    pub async fn is_ready(&self) -> bool {
        self.probe().await.is_ok()
    }

    async fn probe(&self) -> Result<(), String> {
        let url = format!("http://127.0.0.1:{}/readyz", self.health);
        run_curl(["--silent", "--fail", "--max-time", "5", &url].map(str::to_owned).to_vec()).await
    }

    /// What Prometheus would read.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let url = format!("http://127.0.0.1:{}/metrics", self.diagnostics);
        let curl = ["--silent", "--fail", "--show-error", "--max-time", "5", &url];
        let output = tokio::process::Command::new("curl").args(curl).output().await?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Whether the process lives.
    pub fn is_running(&self) -> bool {
        self.server.is_running()
    }

    /// Kills it, as the kernel does when memory runs out.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.server.signal(Signal::SIGKILL)?;
        self.server.kill();
        Ok(())
    }

    /// Starts another program in its place, or the same with another agent for hosts.
    ///
    /// # Errors
    /// When it does not start.
    pub fn replace(&mut self, coordinator: &Path, agent: Option<&Path>) -> anyhow::Result<()> {
        coordinator.clone_into(&mut self.spec.binary);
        if let Some(agent) = agent {
            self.spec.arguments.retain(|argument| !argument.starts_with("--agent-path="));
            self.spec.arguments.push(format!("--agent-path={}", agent.display()));
        }
        self.start_anew()
    }

    /// Starts it again with this URL and these names, which a Deployment has among its arguments.
    ///
    /// # Errors
    /// When it does not start.
    pub fn reconfigure(&mut self, arguments: &[String]) -> anyhow::Result<()> {
        let is_name = |argument: &str| {
            ["--server-url=", "--server-name="].iter().any(|option| argument.starts_with(option))
        };
        self.spec.arguments.retain(|argument| !is_name(argument));
        self.spec.arguments.extend(arguments.iter().filter(|argument| is_name(argument)).cloned());
        self.start_anew()
    }

    /// Ends it, and starts what its specification says now.
    fn start_anew(&mut self) -> anyhow::Result<()> {
        self.server.kill();
        self.server = Server::start(self.spec.clone())?;
        Ok(())
    }

    /// Starts it again on the same ports, under the same name.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&self) -> anyhow::Result<()> {
        Ok(self.server.restart()?)
    }
}

/// The coordinator that `COORDINATOR` names, else that of this workspace.
fn find_coordinator() -> anyhow::Result<PathBuf> {
    match std::env::var_os("COORDINATOR").filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => find_binary("coordinator", "baremetal-coordinator"),
    }
}

/// A program of the workspace that was built beside this one.
///
/// # Errors
/// When it was not built.
pub fn find_binary(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let mut beside = here.ancestors().skip(1).take(2).map(|directory| directory.join(name));
    let found = beside.find(|path| path.is_file());
    found.with_context(|| {
        format!("there is no {name} beside this program: run `cargo build --package {package}` first")
    })
}
