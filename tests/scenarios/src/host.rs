//! One host: real agent, simulated operating system, files in memory.

mod transport;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::ground::paths::Root;
use agent::installed::link;
use agent::live::register;
use agent::plan::executor::{Executor, Policy};
use simulated_host::firmware::Identity;
use simulated_host::{Behaviour, Medium, Program, SimulatedHost, SimulatedSystem};
use tokio::task::JoinHandle;

use crate::fault_injection::{Call, Fault, FaultPoint, FaultySystem, Side};
use crate::network::Network;
use crate::token_search::TokenSearch;

/// Pause between two checks for a requested reboot.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// What a firmware and a kernel take to come up.
const BOOT: Duration = Duration::from_secs(20);
/// Pause of systemd before it starts an agent again.
const RESTART: Duration = Duration::from_secs(2);
/// A host with this address reaches no coordinator.
pub const STRANDED_ADDRESS: &str = "192.0.2.66/24";
/// No host reaches a coordinator at this name.
pub const UNREACHABLE_COORDINATOR: &str = "unreachable.example";
/// What the seed ISO installs.
pub(crate) const FIRST_IMAGE: &str = "oci:registry.example/os:v0";

struct Machine {
    name: String,
    files: SimulatedHost,
    network: Network,
    tokens: TokenSearch,
    faults: Arc<FaultPoint>,
    medium: AtomicBool,
    /// This boot has a network that reaches nothing.
    stranded: AtomicBool,
    /// The agent that runs reaches nothing.
    deaf: AtomicBool,
    boots: AtomicU32,
    installs: AtomicUsize,
    seed: Mutex<String>,
    tpm: Mutex<Option<FittedTpm>>,
    policy: Policy,
    errors: Mutex<Vec<String>>,
}

/// A TPM as its host has it.
#[derive(Clone)]
pub struct FittedTpm {
    /// Where it takes commands.
    pub socket: PathBuf,
    /// What each boot of the host does to it.
    pub reset: Arc<dyn Fn() + Send + Sync>,
}

/// A host: agent, simulated system and power switch.
pub struct Host {
    machine: Arc<Machine>,
    life: Option<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn new(
        name: &str,
        directory: &Path,
        (network, tokens): (&Network, &TokenSearch),
        policy: Policy,
    ) -> Self {
        let machine = Arc::new(Machine {
            name: name.to_owned(),
            files: SimulatedHost::at(directory.join(name)),
            network: network.clone(),
            tokens: tokens.clone(),
            faults: Arc::default(),
            medium: AtomicBool::new(true),
            stranded: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            boots: AtomicU32::new(0),
            installs: AtomicUsize::new(0),
            seed: Mutex::default(),
            tpm: Mutex::default(),
            policy,
            errors: Mutex::default(),
        });
        Self { machine, life: None }
    }

    /// Inserts a seed ISO with this configuration.
    pub fn insert(&self, seed: &str) {
        seed.clone_into(&mut self.machine.seed.lock().unwrap_or_else(PoisonError::into_inner));
        self.machine.medium.store(true, Ordering::SeqCst);
    }

    /// Fits that TPM, from the next boot on; takes it out again with `None`.
    pub fn fit_tpm(&self, tpm: Option<FittedTpm>) {
        *self.machine.tpm.lock().unwrap_or_else(PoisonError::into_inner) = tpm;
    }

    pub fn power_on(&mut self) {
        let machine = self.machine.clone();
        self.life = Some(tokio::spawn(async move { machine.run_boots().await }));
    }

    /// Cuts the power without a shutdown.
    pub fn power_off(&mut self) {
        self.machine.network.silence(&self.machine.name);
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }

    /// Power is lost for a moment.
    pub fn power_cut(&self) {
        self.machine.faults.trigger(Fault::PowerCut);
    }

    /// kill -9; systemd starts it again.
    pub fn kill_agent(&self) {
        self.machine.faults.trigger(Fault::Killed);
    }

    /// Injects a fault at the `call`th call from now into the operating system,
    /// counted from 1.
    pub fn inject_fault(&self, call: usize, side: Side, fault: Fault) {
        self.machine.faults.arm(call, side, fault);
    }

    /// Whether the injected fault was not reached yet.
    pub fn has_pending_fault(&self) -> bool {
        self.machine.faults.is_armed()
    }

    /// Calls into the operating system so far.
    pub fn calls(&self) -> Vec<Call> {
        self.machine.faults.calls()
    }

    /// The system on its disk.
    pub fn system(&self) -> SimulatedSystem {
        SimulatedSystem::new(self.machine.files.disk())
    }

    /// The live system, once its medium was booted.
    pub fn live_system(&self) -> SimulatedSystem {
        SimulatedSystem::new(self.machine.files.live())
    }

    /// The installed system's files.
    pub fn disk(&self) -> Root {
        self.machine.files.disk()
    }

    /// Boots so far, those of the medium included.
    pub fn boots(&self) -> u32 {
        self.machine.boots.load(Ordering::SeqCst)
    }

    /// Number of installs to its disk.
    pub fn installs(&self) -> usize {
        self.machine.installs.load(Ordering::SeqCst)
    }

    /// Links the disk to the name that the installer waits for.
    pub fn link_install_device(&self) {
        let link = self.machine.files.live().join("/dev/elemental-install-target");
        std::os::unix::fs::symlink("vda", link).unwrap();
    }

    /// What the live system and early boot reported as errors.
    pub fn errors(&self) -> Vec<String> {
        self.machine.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }
}

impl Machine {
    fn record_error(&self, text: String) {
        tracing::warn!(host = self.name, "{text}");
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    async fn run_boots(&self) {
        loop {
            tokio::time::sleep(BOOT).await;
            self.boots.fetch_add(1, Ordering::SeqCst);
            let booted =
                if self.medium.load(Ordering::SeqCst) { self.boot_medium() } else { self.boot_disk() };
            booted.and_then(|()| self.find_tpm()).unwrap();
            self.run().await;
        }
    }

    fn boot_medium(&self) -> io::Result<()> {
        let boot_id = format!("live-{}", self.boots.load(Ordering::SeqCst));
        let seed = self.seed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let medium = Medium {
            image: FIRST_IMAGE,
            seed: seed.as_bytes(),
            boot_id: &boot_id,
            identity: Identity::of_serial(&self.name),
        };
        self.files.boot_medium(&medium).map(drop)
    }

    fn root(&self) -> Root {
        if self.medium.load(Ordering::SeqCst) { self.files.live() } else { self.files.disk() }
    }

    /// As the kernel's driver does.
    fn find_tpm(&self) -> io::Result<()> {
        let device = self.root().join("/dev/tpmrm0");
        match std::fs::remove_file(&device) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let Some(tpm) = self.tpm.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return Ok(());
        };
        (tpm.reset)();
        std::fs::create_dir_all(self.root().join("/dev"))?;
        std::os::unix::fs::symlink(tpm.socket, device)
    }

    /// Until early boot is over.
    fn boot_disk(&self) -> io::Result<()> {
        let boot = self.files.boot_disk(FIRST_IMAGE)?;
        let network = std::fs::read_to_string(self.files.disk().nocloud_seed().join("network-config"));
        let is_stranded = network.is_ok_and(|text| text.contains(STRANDED_ADDRESS));
        self.stranded.store(is_stranded, Ordering::SeqCst);
        for problem in boot.problems {
            self.record_error(problem);
        }
        if boot.has_joined {
            boot.system.with_node()?;
        }
        Ok(())
    }

    /// The agent of this boot, restarted as often as it ends, until the host
    /// goes down.
    async fn run(&self) {
        let is_live = self.medium.load(Ordering::SeqCst);
        let root = self.root();
        let system = FaultySystem { system: SimulatedSystem::new(root.clone()), faults: self.faults.clone() };
        loop {
            let ended = tokio::select! {
                () = self.agent(&root, &system, is_live) => Some(Fault::Killed),
                fault = self.faults.triggered() => Some(fault),
                () = asked_to_reboot(&system.system) => None,
            };
            match ended {
                Some(Fault::Killed) => self.network.cut(&self.name),
                Some(Fault::PowerCut) => return self.network.silence(&self.name),
                None => {
                    let installs = if is_live { system.system.installs() } else { 0 };
                    self.installs.fetch_add(installs, Ordering::SeqCst);
                    // The medium is ejected while the host restarts.
                    self.medium.store(false, Ordering::SeqCst);
                    return self.network.cut(&self.name);
                }
            }
            tokio::time::sleep(RESTART).await;
        }
    }

    async fn agent(&self, root: &Root, system: &FaultySystem, is_live: bool) {
        if is_live {
            return match Box::pin(register::register(root, system, &self.files, self)).await {
                // It requested a reboot, or printed the next action.
                Ok(()) => std::future::pending().await,
                Err(error) => self.record_error(error.to_string()),
            };
        }
        let executor = match Executor::open(root.clone(), system.clone(), self.policy) {
            Ok(executor) => executor,
            Err(error) => return self.record_error(error.to_string()),
        };
        let Program { version, behaviour } = Program::start(root);
        self.deaf.store(behaviour == Behaviour::Deaf, Ordering::SeqCst);
        if behaviour == Behaviour::Crashes {
            return;
        }
        if let Err(error) = Box::pin(link::run(root, system.clone(), executor, self, version)).await {
            self.record_error(error.to_string());
        }
    }
}

async fn asked_to_reboot(system: &SimulatedSystem) {
    while !system.reboot_was_asked_for() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
