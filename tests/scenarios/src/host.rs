//! One host: real agent, simulated operating system, files in memory.

mod around;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::installed::link;
use agent::live::register;
use agent::paths::Root;
use agent::plan::executor::{Executor, Policy};
use simulated_host::firmware::Identity;
use simulated_host::{Medium, SimulatedHost, SimulatedSystem};
use tokio::task::JoinHandle;

use crate::cables::Cables;
use crate::rigged::{Ending, Rigged, Side, Trap};

/// Pause between two looks whether a reboot was asked for.
const LOOK: Duration = Duration::from_millis(500);
/// What a firmware and a kernel take to come up.
const BOOT: Duration = Duration::from_secs(20);
/// Pause of systemd before it starts an agent again.
const RESTART: Duration = Duration::from_secs(2);
/// What the seed ISO installs.
pub(crate) const FIRST_IMAGE: &str = "oci:registry.example/os:v0";

struct Metal {
    name: String,
    files: SimulatedHost,
    cables: Cables,
    trap: Arc<Trap>,
    medium: AtomicBool,
    boots: AtomicU32,
    installs: AtomicUsize,
    seed: Mutex<String>,
    complaints: Mutex<Vec<String>>,
}

/// A host in its rack.
pub struct Host {
    metal: Arc<Metal>,
    life: Option<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn new(name: &str, directory: &Path, cables: &Cables) -> Self {
        let metal = Arc::new(Metal {
            name: name.to_owned(),
            files: SimulatedHost::at(directory.join(name)),
            cables: cables.clone(),
            trap: Arc::default(),
            medium: AtomicBool::new(true),
            boots: AtomicU32::new(0),
            installs: AtomicUsize::new(0),
            seed: Mutex::default(),
            complaints: Mutex::default(),
        });
        Self { metal, life: None }
    }

    /// What the seed ISO in its drive says.
    pub fn insert(&self, seed: &str) {
        seed.clone_into(&mut self.metal.seed.lock().unwrap_or_else(PoisonError::into_inner));
        self.metal.medium.store(true, Ordering::SeqCst);
    }

    /// Switches it on.
    pub fn power_on(&mut self) {
        let metal = self.metal.clone();
        self.life = Some(tokio::spawn(async move { metal.live_for_ever().await }));
    }

    /// Pulls the plug.
    pub fn power_off(&mut self) {
        self.metal.cables.silence(&self.metal.name);
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }

    /// Power is lost for a moment.
    pub fn power_cut(&self) {
        self.metal.trap.spring(Ending::PowerCut);
    }

    /// kill -9; systemd starts it again.
    pub fn kill_agent(&self) {
        self.metal.trap.spring(Ending::Killed);
    }

    /// At the `call`th call from now into the operating system, counted from 1.
    pub fn trap(&self, call: usize, side: Side, ending: Ending) {
        self.metal.trap.arm(call, side, ending);
    }

    /// Whether a trap still waits for its call.
    #[must_use]
    pub fn is_trapped(&self) -> bool {
        self.metal.trap.is_armed()
    }

    /// Calls into the operating system so far.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.metal.trap.calls()
    }

    /// The system on its disk.
    #[must_use]
    pub fn system(&self) -> SimulatedSystem {
        SimulatedSystem::new(self.metal.files.disk())
    }

    /// The installed system's files.
    #[must_use]
    pub fn disk(&self) -> Root {
        self.metal.files.disk()
    }

    /// How often its disk was written over by an installer.
    #[must_use]
    pub fn installs(&self) -> usize {
        self.metal.installs.load(Ordering::SeqCst)
    }

    /// Links the disk to the name that the installer waits for.
    pub fn link_install_device(&self) {
        let link = self.metal.files.live().join("/dev/elemental-install-target");
        std::os::unix::fs::symlink("vda", link).unwrap();
    }

    /// What the live system and early boot complained about.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.metal.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.abort();
        }
    }
}

impl Metal {
    fn complain(&self, text: String) {
        tracing::warn!(host = self.name, "{text}");
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    async fn live_for_ever(&self) {
        loop {
            tokio::time::sleep(BOOT).await;
            self.boots.fetch_add(1, Ordering::SeqCst);
            let booted =
                if self.medium.load(Ordering::SeqCst) { self.boot_medium() } else { self.boot_disk() };
            booted.unwrap();
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

    /// Until early boot is over.
    fn boot_disk(&self) -> io::Result<()> {
        let boot = self.files.boot_disk(FIRST_IMAGE)?;
        for problem in boot.problems {
            self.complain(problem);
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
        let root = if is_live { self.files.live() } else { self.files.disk() };
        let system = Rigged { system: SimulatedSystem::new(root.clone()), trap: self.trap.clone() };
        loop {
            let ended = tokio::select! {
                () = self.agent(&root, &system, is_live) => Some(Ending::Killed),
                ending = self.trap.sprung() => Some(ending),
                () = asked_to_reboot(&system.system) => None,
            };
            match ended {
                Some(Ending::Killed) => self.cables.cut(&self.name),
                Some(Ending::PowerCut) => return self.cables.silence(&self.name),
                None => {
                    let installs = if is_live { system.system.installs() } else { 0 };
                    self.installs.fetch_add(installs, Ordering::SeqCst);
                    // Whoever takes the medium out does it while the host restarts.
                    self.medium.store(false, Ordering::SeqCst);
                    return self.cables.cut(&self.name);
                }
            }
            tokio::time::sleep(RESTART).await;
        }
    }

    async fn agent(&self, root: &Root, system: &Rigged, is_live: bool) {
        if is_live {
            return match Box::pin(register::register(root, system, &self.files, self)).await {
                // It asked for a reboot, or told a person what to do.
                Ok(()) => std::future::pending().await,
                Err(error) => self.complain(agent::error::explain(&error)),
            };
        }
        let executor = match Executor::open(root.clone(), system.clone(), Policy::default()) {
            Ok(executor) => executor,
            Err(error) => return self.complain(agent::error::explain(&error)),
        };
        let Err(error) = Box::pin(link::run(root, system.clone(), executor, self)).await;
        self.complain(agent::error::explain(&error));
    }
}

async fn asked_to_reboot(system: &SimulatedSystem) {
    while !system.reboot_was_asked_for() {
        tokio::time::sleep(LOOK).await;
    }
}
