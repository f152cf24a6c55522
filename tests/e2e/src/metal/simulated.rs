//! A host made of files: the real agent, a simulated operating system, and a
//! played kubelet.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::boot;
use agent::host::network::KernelNetwork;
use agent::installed::link;
use agent::live::register;
use agent::paths::Root;
use agent::plan::executor::{Executor, Policy};
use anyhow::{Context as _, bail};
use control_plane::Workload;
use control_plane::directory::Directory;
use simulated_host::firmware::Identity;
use simulated_host::{Medium, SimulatedHost, SimulatedSystem};
use tokio::task::JoinHandle;

/// SMBIOS UUID of the host.
pub const UUID: &str = "4c616200-0000-4000-8000-0000000000aa";
const IDENTITY: Identity<'static> = Identity { serial: "SIM-1", uuid_end: 0xaa };
/// What the seed ISO installs.
const LIVE_IMAGE: &str = "live";
/// Interval at which a request for a reboot is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The host.
pub struct Simulated {
    directory: Directory,
    workload: Arc<Workload>,
    life: Option<JoinHandle<()>>,
}

impl Simulated {
    /// A host that joins `workload`, not yet powered on.
    ///
    /// # Errors
    /// When its files cannot be made.
    pub fn new(workload: Arc<Workload>) -> io::Result<Self> {
        Ok(Self { directory: Directory::temporary()?, workload, life: None })
    }

    /// Boots the ISO, and from then on whatever the host boots.
    pub(super) async fn boot(&mut self, iso: &Path) -> anyhow::Result<()> {
        let host = self.host();
        let copy = self.directory.path().join("livecd-cloud-config.yaml");
        extract(iso, &copy).await?;
        let seed = fs::read(&copy)?;
        let medium = Medium { image: LIVE_IMAGE, seed: &seed, boot_id: "live-1", identity: IDENTITY };
        let system = host.boot_medium(&medium).context("boot the medium")?;
        let workload = self.workload.clone();
        self.life = Some(tokio::spawn(async move {
            if let Err(error) = Box::pin(live(host, system, workload)).await {
                eprintln!("the simulated host died: {error:#}");
            }
        }));
        Ok(())
    }

    fn host(&self) -> SimulatedHost {
        SimulatedHost::at(self.directory.path())
    }

    pub(super) fn check_clean(&self) -> anyhow::Result<()> {
        let root = self.host().disk();
        for left in [root.state().node_identity(), root.join("/etc/kubernetes/kubelet.conf")] {
            if left.exists() {
                bail!("{} is left on the host", left.display());
            }
        }
        Ok(())
    }

    pub(super) fn log(&self) -> String {
        self.directory.path().display().to_string()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }
}

async fn extract(iso: &Path, to: &Path) -> anyhow::Result<()> {
    let output = tokio::process::Command::new("xorriso")
        .args(["-osirrox", "on", "-indev"])
        .arg(iso)
        .args(["-extract", "/livecd-cloud-config.yaml"])
        .arg(to)
        .output()
        .await
        .context("run xorriso")?;
    anyhow::ensure!(output.status.success(), "xorriso: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The live system, then the installed one for ever.
async fn live(host: SimulatedHost, system: SimulatedSystem, workload: Arc<Workload>) -> anyhow::Result<()> {
    let root = host.live();
    let summary = boot::run(&root);
    anyhow::ensure!(summary.problems.is_empty(), "early boot: {:?}", summary.problems);
    register::register(&root, &system, &host, &KernelNetwork::below(&root)).await?;
    let root = host.disk();
    let network = KernelNetwork::below(&root);
    loop {
        let boot = host.boot_disk(LIVE_IMAGE)?;
        anyhow::ensure!(boot.problems.is_empty(), "early boot: {:?}", boot.problems);
        join(&root, &workload).await?;
        let executor = Executor::open(root.clone(), boot.system.clone(), Policy::default())?;
        tokio::select! {
            ended = link::run(&root, boot.system.clone(), executor, &network) => { ended?; }
            () = asked_to_reboot(&boot.system) => {}
        }
    }
}

async fn asked_to_reboot(system: &SimulatedSystem) {
    while !system.reboot_was_asked_for() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// What kubeadm and the kubelet would do: the Node says of itself what the
/// agent wrote into the kubelet's configuration.
async fn join(root: &Root, workload: &Workload) -> anyhow::Result<()> {
    let seed = fs::read_to_string(root.nocloud_seed().join("user-data")).unwrap_or_default();
    if !seed.contains("kubeadm join") || root.join("/etc/kubernetes/kubelet.conf").exists() {
        return Ok(());
    }
    let meta_data = fs::read_to_string(root.nocloud_seed().join("meta-data"))?;
    let hostname = value(&meta_data, "local-hostname: ").context("the seed names no host")?;
    let flags = fs::read_to_string(root.join("/etc/default/kubelet"))?;
    let provider_id = value(&flags, "--provider-id=").context("the kubelet has no provider id")?;
    let uuid = value(&flags, "metal3.io/uuid=").context("the kubelet has no label")?;
    let labels = BTreeMap::from([("metal3.io/uuid".to_owned(), uuid)]);
    workload.register_node(&hostname, &provider_id, &labels).await?;
    fs::create_dir_all(root.join("/etc/kubernetes"))?;
    fs::write(root.join("/etc/kubernetes/kubelet.conf"), "credentials")?;
    Ok(())
}

/// The word after `key`.
fn value(text: &str, key: &str) -> Option<String> {
    let rest = &text[text.find(key)? + key.len()..];
    let end = |c: char| c.is_whitespace() || c == '"' || c == '\'' || c == ',';
    Some(rest.split(end).find(|word| !word.is_empty())?.to_owned())
}
