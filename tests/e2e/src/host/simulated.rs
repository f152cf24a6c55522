//! A host made of files: the real agent, a simulated operating system, and a
//! kubelet that only registers its Node.

mod kubeadm;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::boot;
use agent::client::config::Config;
use agent::client::error::CallError;
use agent::client::transport::Transport;
use agent::ground::failure::Failure;
use agent::ground::paths::Root;
use agent::host::network::changes::NetworkChanges;
use agent::host::network::{KernelNetwork, NetworkObserver};
use agent::installed::link;
use agent::live::register;
use agent::plan::executor::{Executor, Policy};
use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use control_plane::Workload;
use control_plane::directory::Directory;
use proto::v1alpha1::{Interface, ObservedNetwork, Route};
use simulated_host::firmware::Identity;
use simulated_host::{Medium, Program, SimulatedHost, SimulatedSystem};
use tokio::task::JoinHandle;

use super::{Host, Image, Secret};
use crate::commands::extract_file;

/// What the seed ISO installs.
const LIVE_IMAGE: &str = "live";
/// Interval at which a request for a reboot is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// systemd starts an agent that ended after this pause.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// One of several hosts that differ in UUID, serial numbers and MAC addresses.
pub struct Simulated {
    number: u8,
    directory: Directory,
    workload: Arc<Workload>,
    task: Option<JoinHandle<()>>,
}

/// The disk of a host, read from outside.
#[derive(Clone, Debug)]
pub struct Disk {
    host: SimulatedHost,
    directory: PathBuf,
}

impl Simulated {
    /// Host `number` that joins `workload`, not yet powered on.
    ///
    /// # Errors
    /// When its directory cannot be created.
    pub fn new(workload: Arc<Workload>, number: u8) -> io::Result<Self> {
        Ok(Self { number, directory: Directory::temporary()?, workload, task: None })
    }

    /// The host loses its power: what it does ends at once.
    pub fn power_off(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// The host boots its disk.
    pub fn power_on(&mut self) {
        let host = SimulatedHost::at(self.directory.path());
        let (workload, number) = (self.workload.clone(), self.number);
        self.run(run_disk(host, workload, number));
    }

    fn run(&mut self, life: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let number = self.number;
        self.power_off();
        self.task = Some(tokio::spawn(async move {
            if let Err(error) = Box::pin(life).await {
                eprintln!("simulated host {number} stopped: {error:#}");
            }
        }));
    }

    /// Serial number of the disk, and two cards.
    fn add_devices(&self, root: &Root) -> io::Result<()> {
        let write = |path: &str, content: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(path, content)
        };
        write("/sys/block/vda/serial", &format!("DISK-{}\n", self.number))?;
        for (card, name) in [(1, "ens3"), (2, "ens4")] {
            let mac = SimulatedNetwork::mac(self.number, card);
            write(&format!("/sys/class/net/{name}/address"), &format!("{mac}\n"))?;
            fs::create_dir_all(root.join(format!("/sys/class/net/{name}/device")))?;
        }
        Ok(())
    }

    /// Its disk, for a test that inspects the host from outside.
    pub fn disk(&self) -> Disk {
        let directory = self.directory.path().to_owned();
        Disk { host: SimulatedHost::at(&directory), directory }
    }
}

#[async_trait]
impl Host for Simulated {
    /// Boots the ISO, and from then on whatever the host boots.
    async fn boot(&mut self, iso: &Path) -> anyhow::Result<()> {
        let host = SimulatedHost::at(self.directory.path());
        let copy = self.directory.path().join("livecd-cloud-config.yaml");
        extract_file(iso, "/livecd-cloud-config.yaml", &copy).await?;
        let seed = fs::read(&copy)?;
        let serial = format!("SIM-{}", self.number);
        let identity = Identity { serial: &serial, uuid_end: self.number };
        let medium = Medium { image: LIVE_IMAGE, seed: &seed, boot_id: "live-1", identity };
        let system = host.boot_medium(&medium).context("boot the medium")?;
        self.add_devices(&host.live())?;
        let (workload, number) = (self.workload.clone(), self.number);
        self.run(async move {
            Box::pin(install_system(&host, &system, number)).await?;
            run_disk(host, workload, number).await
        });
        Ok(())
    }

    fn uuid(&self) -> String {
        Identity { serial: "", uuid_end: self.number }.uuid()
    }

    fn static_mac(&self) -> String {
        SimulatedNetwork::mac(self.number, 2)
    }

    /// Its kubelet is of the version that the tag names.
    fn images(&self) -> [Image; 2] {
        ["v1.36.3", "v1.36.3-2"].map(|tag| Image {
            catalog: format!("registry.example/os:{tag}"),
            runs: format!("registry.example/os:{tag}"),
        })
    }

    /// Long enough for an API server that is away for a minute.
    fn limit(&self) -> Duration {
        Duration::from_mins(3)
    }

    /// The network-config on its disk replays the network of the registration.
    async fn check_network(&self) -> anyhow::Result<()> {
        let path = self.disk().root().nocloud_seed().join("network-config");
        let replayed = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let text = replayed.to_lowercase();
        for (what, wanted) in [
            ("the card with DHCP", SimulatedNetwork::mac(self.number, 1)),
            ("DHCP", "dhcp4: true".to_owned()),
            ("the card with a static address", SimulatedNetwork::mac(self.number, 2)),
            ("the static address", SimulatedNetwork::address(self.number)),
            ("the static route", "10.78.0.0/16".to_owned()),
        ] {
            ensure!(text.contains(&wanted), "network-config lacks {what} ({wanted}):\n{replayed}");
        }
        Ok(())
    }

    async fn check_name(&self, name: &str) -> anyhow::Result<()> {
        let path = self.disk().root().nocloud_seed().join("meta-data");
        let meta_data = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let found = read_value(&meta_data, "local-hostname: ");
        ensure!(found.as_deref() == Some(name), "the host is named {found:?}, wanted {name}");
        Ok(())
    }

    async fn check_clean(&self, secret: &str, _secrets: &[Secret]) -> anyhow::Result<()> {
        let disk = self.disk();
        for left in [disk.root().state().node_identity(), disk.root().join("/etc/kubernetes/kubelet.conf")] {
            ensure!(!left.exists(), "{} is left on the host", left.display());
        }
        let left = disk.find_text(secret)?;
        ensure!(left.is_empty(), "the bootstrap token is left on the host in {left:?}");
        Ok(())
    }

    fn log(&self) -> String {
        self.directory.path().display().to_string()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.power_off();
    }
}

impl Disk {
    /// The installed system's files.
    pub fn root(&self) -> Root {
        self.host.disk()
    }

    /// Everything that the installed system did, in order.
    pub fn effects(&self) -> Vec<String> {
        SimulatedSystem::new(self.root()).effects()
    }

    /// The kubelet has no credentials that hold: it is not heard of any more.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn break_kubelet(&self) -> io::Result<()> {
        fs::write(self.root().join("/etc/kubernetes/kubelet.conf"), kubeadm::EXPIRED)
    }

    /// The node that the disk carries: identity and credentials, as bytes.
    pub fn node(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let identity = fs::read(self.root().state().node_identity()).ok()?;
        let credentials = fs::read(self.root().join("/etc/kubernetes/kubelet.conf")).ok()?;
        Some((identity, credentials))
    }

    /// Files of the installed system and its persistent partition that contain
    /// `text`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn find_text(&self, text: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = vec![];
        let mut pending = vec![self.root().join("/"), self.host.persistent().path().to_owned()];
        while let Some(directory) = pending.pop() {
            let entries = match fs::read_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let path = entry?.path();
                let holds = match holds_text(&path, text) {
                    // The agent runs, and replaces files.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    holds => holds?,
                };
                if holds {
                    found.push(path.strip_prefix(&self.directory).unwrap_or(&path).to_owned());
                } else if path.is_dir() && !path.is_symlink() {
                    pending.push(path);
                }
            }
        }
        Ok(found)
    }
}

fn holds_text(path: &Path, text: &str) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.is_file() && contains(&fs::read(path)?, text.as_bytes()))
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

/// One card with DHCP, one with a static address and a route, as the seed's
/// cloud-config sets them. Connections are the machine's own.
struct SimulatedNetwork {
    number: u8,
    transport: KernelNetwork,
}

impl SimulatedNetwork {
    fn mac(number: u8, card: u8) -> String {
        format!("52:54:00:00:{number:02x}:{card:02x}")
    }

    fn address(number: u8) -> String {
        format!("10.77.0.{number}/24")
    }
}

impl Transport for SimulatedNetwork {
    type Stream = <KernelNetwork as Transport>::Stream;

    async fn dial(&self, config: &Config) -> Result<Self::Stream, CallError> {
        self.transport.dial(config).await
    }
}

impl NetworkObserver for SimulatedNetwork {
    fn observe(&self) -> Result<ObservedNetwork, Failure> {
        let interface = |name: &str, card: u8| Interface {
            name: name.to_owned(),
            mac: Self::mac(self.number, card),
            permanent_mac: Self::mac(self.number, card),
            mtu: 1500,
            ..Interface::default()
        };
        let dynamic = Interface { dhcp4: true, ..interface("ens3", 1) };
        let fixed = Interface { addresses: vec![Self::address(self.number)], ..interface("ens4", 2) };
        let route = Route {
            destination: "10.78.0.0/16".to_owned(),
            gateway: "10.77.0.2".to_owned(),
            interface: "ens4".to_owned(),
            ..Route::default()
        };
        Ok(ObservedNetwork { interfaces: vec![dynamic, fixed], routes: vec![route], ..Default::default() })
    }

    fn watch(&self) -> io::Result<Option<NetworkChanges>> {
        Ok(None)
    }
}

async fn install_system(host: &SimulatedHost, system: &SimulatedSystem, number: u8) -> anyhow::Result<()> {
    let root = host.live();
    let summary = boot::run(&root);
    ensure!(summary.problems.is_empty(), "early boot: {:?}", summary.problems);
    let network = SimulatedNetwork { number, transport: KernelNetwork::below(&root) };
    register::register(&root, system, host, &network).await?;
    Ok(())
}

/// The installed system, until it is dropped.
async fn run_disk(host: SimulatedHost, workload: Arc<Workload>, number: u8) -> anyhow::Result<()> {
    let root = host.disk();
    let network = SimulatedNetwork { number, transport: KernelNetwork::below(&root) };
    loop {
        let boot = host.boot_disk(LIVE_IMAGE)?;
        ensure!(boot.problems.is_empty(), "early boot: {:?}", boot.problems);
        kubeadm::run(&root, &workload).await?;
        tokio::select! {
            () = run_agent(&root, &boot.system, &network, number) => {}
            () = wait_for_reboot(&boot.system) => {}
        }
    }
}

/// Runs the agent as systemd does, until it is dropped.
async fn run_agent(root: &Root, system: &SimulatedSystem, network: &SimulatedNetwork, number: u8) {
    loop {
        let ended = match Executor::open(root.clone(), system.clone(), Policy::default()) {
            Ok(executor) => {
                let Program { version, .. } = Program::start(root);
                let ended = Box::pin(link::run(root, system.clone(), executor, network, version)).await;
                ended.err().map(anyhow::Error::from)
            }
            Err(error) => Some(error.into()),
        };
        if let Some(error) = ended {
            eprintln!("the agent of simulated host {number} ended: {error:#}");
        }
        tokio::time::sleep(RESTART_INTERVAL).await;
    }
}

async fn wait_for_reboot(system: &SimulatedSystem) {
    while !system.reboot_was_asked_for() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The word after `key`.
fn read_value(text: &str, key: &str) -> Option<String> {
    let rest = &text[text.find(key)? + key.len()..];
    let end = |c: char| c.is_whitespace() || c == '"' || c == '\'' || c == ',';
    Some(rest.split(end).find(|word| !word.is_empty())?.to_owned())
}
