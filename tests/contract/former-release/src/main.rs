//! A host made of files with the agent of the former release: it boots a seed, installs, and runs.
//! Compiled against the commit in `../commit`, and changed with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::client::config::Config;
use agent::client::tls::ConnectError;
use agent::client::transport::Transport;
use agent::host::network::changes::NetworkChanges;
use agent::host::network::{KernelNetwork, NetworkError, NetworkObserver};
use agent::installed::link;
use agent::live::register;
use agent::paths::Root;
use agent::plan::executor::{Executor, Policy};
use anyhow::{Context as _, Result, ensure};
use proto::v1alpha1::{Interface, ObservedNetwork};
use simulated_host::firmware::Identity;
use simulated_host::{Medium, SimulatedHost, SimulatedSystem};
use tokio::net::TcpStream;

const IMAGE: &str = "live";
/// Interval at which a request for a reboot is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

struct Network {
    number: u8,
    transport: KernelNetwork,
}

impl Transport for Network {
    type Stream = TcpStream;

    async fn dial(&self, config: &Config) -> Result<TcpStream, ConnectError> {
        self.transport.dial(config).await
    }
}

impl NetworkObserver for Network {
    fn observe(&self) -> Result<ObservedNetwork, NetworkError> {
        let mac = mac_address(self.number);
        let card = Interface {
            name: "ens3".into(),
            permanent_mac: mac.clone(),
            mac,
            mtu: 1500,
            dhcp4: true,
            ..Interface::default()
        };
        Ok(ObservedNetwork { interfaces: vec![card], ..Default::default() })
    }

    fn watch(&self) -> io::Result<Option<NetworkChanges>> {
        Ok(None)
    }
}

fn mac_address(number: u8) -> String {
    format!("52:54:00:00:{number:02x}:01")
}

fn add_devices(root: &Root, number: u8) -> io::Result<()> {
    for (path, content) in [
        ("/sys/block/vda/serial", format!("DISK-{number}\n")),
        ("/sys/class/net/ens3/address", format!("{}\n", mac_address(number))),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(path, content)?;
    }
    fs::create_dir_all(root.join("/sys/class/net/ens3/device"))
}

/// `former-host DIRECTORY SEED NUMBER`
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("give DIRECTORY, SEED and NUMBER");
    let (directory, seed, number) = (PathBuf::from(next()?), fs::read(next()?)?, next()?.parse()?);
    let host = SimulatedHost::at(directory);
    let serial = format!("SIM-{number}");
    let identity = Identity { serial: &serial, uuid_end: number };
    let medium = Medium { image: IMAGE, seed: &seed, boot_id: "live-1", identity };
    let system = host.boot_medium(&medium).context("boot the medium")?;
    add_devices(&host.live(), number)?;
    let summary = agent::boot::run(&host.live());
    ensure!(summary.problems.is_empty(), "early boot: {:?}", summary.problems);
    let network = Network { number, transport: KernelNetwork::below(&host.live()) };
    Box::pin(register::register(&host.live(), &system, &host, &network)).await?;
    run_disk(&host, number).await
}

async fn run_disk(host: &SimulatedHost, number: u8) -> Result<()> {
    let root = host.disk();
    let network = Network { number, transport: KernelNetwork::below(&root) };
    loop {
        let boot = host.boot_disk(IMAGE)?;
        ensure!(boot.problems.is_empty(), "early boot: {:?}", boot.problems);
        if boot.has_joined {
            boot.system.clone().with_node()?;
        }
        tokio::select! {
            ended = run_agent(&root, &boot.system, &network) => ended?,
            () = wait_for_reboot(&boot.system) => {}
        }
    }
}

async fn run_agent(root: &Root, system: &SimulatedSystem, network: &Network) -> Result<()> {
    let executor = Executor::open(root.clone(), system.clone(), Policy::default())?;
    match Box::pin(link::run(root, system.clone(), executor, network)).await {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}

async fn wait_for_reboot(system: &SimulatedSystem) {
    while !system.reboot_was_asked_for() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
