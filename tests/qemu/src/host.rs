//! A host over all its boots.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::arguments::{TPM_SOCKET, arguments, plug_system_disk, tpm_arguments};
use crate::config::{BootOrder, HostConfig, Tpm};
use crate::console;
use crate::error::LabError;
use crate::guest_agent::{self, Output};
use crate::prepare::prepare;
use crate::process::Process;
use crate::qmp::{self, Monitor};

/// How long an `exec` may take when the caller names no limit.
const EXEC: Duration = Duration::from_mins(3);
/// How long swtpm may take to open its socket.
const TPM_START: Duration = Duration::from_mins(2);
/// How long QEMU may take for a command of its monitor.
const COMMAND: Duration = Duration::from_mins(1);
/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(300);

/// Why a host is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It powered itself off.
    PowerOff,
    /// We pulled the plug.
    PowerCut,
    /// It reset itself, see [`Host::stay_off_after_reset`].
    Reset,
    /// QEMU ended by itself, or did not start again: what it said.
    Crash(String),
}

/// What a host is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostState {
    /// On, in its n-th boot, counted from 1.
    On(u32),
    Off(Stop),
}

/// A QEMU host. Dropping it pulls the plug.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    supervisor: Option<JoinHandle<()>>,
    agent: tokio::sync::Mutex<()>,
    sync: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    config: Mutex<HostConfig>,
    name: String,
    directory: PathBuf,
    sockets: tempfile::TempDir,
    process: Mutex<Option<Process>>,
    /// The TPM of this boot.
    tpm: Mutex<Option<Process>>,
    state: watch::Sender<HostState>,
    boots: AtomicU64,
    boot_start: AtomicU64,
    cut: AtomicBool,
    stays_off: AtomicBool,
}

/// One life of QEMU.
struct Boot {
    monitor: Monitor,
    ended: oneshot::Receiver<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking test must still be able to power its hosts off.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Makes what is missing (directory, system disk, UEFI variables) and powers the host on.
    ///
    /// # Errors
    /// When a program of the lab is missing, a file cannot be made, or QEMU refuses its command line.
    pub async fn start(config: HostConfig) -> Result<Self, LabError> {
        prepare(&config).await?;
        let sockets = tempfile::Builder::new().prefix("lab-").tempdir();
        let sockets = sockets.map_err(|source| LabError::Prepare { path: std::env::temp_dir(), source })?;
        let shared = Arc::new(Shared {
            name: config.name.clone(),
            directory: config.directory.clone(),
            config: Mutex::new(config),
            sockets,
            process: Mutex::new(None),
            tpm: Mutex::new(None),
            state: watch::Sender::new(HostState::Off(Stop::PowerOff)),
            boots: AtomicU64::new(0),
            boot_start: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            stays_off: AtomicBool::new(false),
        });
        let mut host =
            Self { shared, supervisor: None, agent: tokio::sync::Mutex::new(()), sync: AtomicU64::new(1) };
        host.power_on().await?;
        Ok(host)
    }

    /// Powers a host on that is off; one that is on stays as it is.
    ///
    /// # Errors
    /// When QEMU does not start.
    pub async fn power_on(&mut self) -> Result<(), LabError> {
        if matches!(self.state(), HostState::On(_)) {
            return Ok(());
        }
        let boot = self.shared.boot().await?;
        self.supervisor = Some(tokio::spawn(supervise(Arc::clone(&self.shared), boot)));
        Ok(())
    }

    /// Pulls the plug: what the guest did not flush is lost. The host is off afterwards.
    pub async fn power_cut(&mut self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        if let Some(process) = lock(&self.shared.process).as_ref() {
            process.kill();
        }
        if let Some(supervisor) = self.supervisor.take() {
            // It ends once QEMU has ended; a panic in it leaves nothing running either.
            let _ = supervisor.await;
        }
        self.shared.cut.store(false, Ordering::SeqCst);
    }

    /// What the host is doing now.
    pub fn state(&self) -> HostState {
        self.shared.state.borrow().clone()
    }

    /// Sets what is tried first: seen at the next boot.
    pub fn set_boot_order(&self, order: BootOrder) {
        lock(&self.shared.config).boot_order = order;
    }

    /// Whether the next reset leaves the host off, with its disks as they are then.
    pub fn stay_off_after_reset(&self, stays_off: bool) {
        self.shared.stays_off.store(stays_off, Ordering::SeqCst);
    }

    /// Plugs the system disk into a host that runs without it and has [`crate::Devices::Virtio`]. It stays plugged in.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub async fn plug_system_disk(&self) -> Result<(), LabError> {
        let commands = plug_system_disk(&lock(&self.shared.config).system_disk());
        let plugged = timeout(COMMAND, qmp::execute(&self.shared.socket("control"), &commands)).await;
        let plugged = plugged.unwrap_or_else(|_| Err(format!("no answer within {COMMAND:?}")));
        plugged.map_err(|said| LabError::Program { program: "qemu-system-x86_64", said })?;
        lock(&self.shared.config).has_system_disk = true;
        Ok(())
    }

    /// Records what the next boot writes to the system disk in a new file.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn record_next_boot(&self, log: &Path) -> std::io::Result<()> {
        std::fs::File::create_new(log)?;
        lock(&self.shared.config).write_log = Some(log.to_owned());
        Ok(())
    }

    /// Its name in errors and logs.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The console log, over all boots.
    pub fn console(&self) -> PathBuf {
        self.shared.console()
    }

    /// What this boot has said so far, without colours.
    pub fn console_of_this_boot(&self) -> String {
        console::read_from(&self.console(), self.shared.boot_start.load(Ordering::SeqCst))
    }

    /// Runs a command in the host, within three minutes. A non-zero exit code is an `Output`, not an error.
    ///
    /// # Errors
    /// When the guest agent does not answer or the time is up.
    pub async fn exec(&self, command: &[&str]) -> Result<Output, LabError> {
        self.exec_within(command, EXEC).await
    }

    /// Runs a command in the host, within `limit`.
    ///
    /// # Errors
    /// When the guest agent does not answer or the time is up.
    pub async fn exec_within(&self, command: &[&str], limit: Duration) -> Result<Output, LabError> {
        let _turn = self.agent.lock().await;
        let number = self.sync.fetch_add(1, Ordering::SeqCst);
        let socket = self.shared.socket("agent");
        let run = guest_agent::exec(&socket, number, command);
        let said = match timeout(limit, run).await {
            Ok(Ok(output)) => return Ok(output),
            Ok(Err(said)) => said,
            Err(_) => format!("no end within {limit:?}"),
        };
        Err(LabError::GuestAgent {
            host: self.shared.name.clone(),
            attempt: command.join(" "),
            said,
            last: console::tail(&self.console()),
            console: self.console(),
        })
    }

    /// Waits until the guest agent answers in boot `number` or a later one.
    ///
    /// # Errors
    /// When the deadline passes, or the host is off.
    pub async fn wait_for_boot(&self, number: u32, limit: Duration) -> Result<(), LabError> {
        let what = format!("guest agent in boot {number}");
        self.wait_until(&what, limit, || async {
            match self.state() {
                HostState::On(boot) if boot >= number => {
                    let _turn = self.agent.lock().await;
                    let socket = self.shared.socket("agent");
                    let ask = guest_agent::ping(&socket, self.sync.fetch_add(1, Ordering::SeqCst));
                    match timeout(Duration::from_secs(3), ask).await {
                        Ok(Ok(())) => Ok(()),
                        Ok(Err(said)) => Err(said),
                        Err(_) => Err(format!("boot {boot}, guest agent silent")),
                    }
                }
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Waits until this boot's console shows a text.
    ///
    /// # Errors
    /// When the deadline passes, or the host is off.
    pub async fn wait_for_console(&self, text: &str, limit: Duration) -> Result<(), LabError> {
        self.wait_until(&format!("console line with '{text}'"), limit, || async {
            if self.console_of_this_boot().contains(text) {
                Ok(())
            } else {
                Err(format!("{:?}", self.state()))
            }
        })
        .await
    }

    /// Waits until the host is off, and says why it is.
    ///
    /// # Errors
    /// When the deadline passes.
    pub async fn wait_for_off(&self, limit: Duration) -> Result<Stop, LabError> {
        let mut state = self.shared.state.subscribe();
        let off = timeout(limit, state.wait_for(|state| matches!(state, HostState::Off(_)))).await;
        match off.ok().and_then(Result::ok).map(|state| state.clone()) {
            Some(HostState::Off(stop)) => Ok(stop),
            _ => Err(self.late("power-off", limit, format!("{:?}", self.state()))),
        }
    }

    /// Asks again and again until the answer is `Ok`; an `Err` says what was seen instead, for the error message.
    ///
    /// # Errors
    /// When the deadline passes, or the host is off by its own doing: then nothing will change any more.
    pub async fn wait_until<T, F>(&self, what: &str, limit: Duration, mut ask: F) -> Result<T, LabError>
    where
        F: AsyncFnMut() -> Result<T, String>,
    {
        let end = Instant::now() + limit;
        loop {
            let seen = match ask().await {
                Ok(found) => return Ok(found),
                Err(seen) => seen,
            };
            let gone = matches!(self.state(), HostState::Off(_));
            if gone || Instant::now() >= end {
                return Err(self.late(what, limit, seen));
            }
            sleep(LOOK).await;
        }
    }

    fn late(&self, what: &str, limit: Duration, seen: String) -> LabError {
        LabError::Deadline {
            host: self.shared.name.clone(),
            what: what.to_owned(),
            limit,
            seen,
            last: console::tail(&self.console()),
            console: self.console(),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.abort();
        }
        self.shared.cut.store(true, Ordering::SeqCst);
        // Taking it drops it, and dropping kills.
        lock(&self.shared.process).take();
        lock(&self.shared.tpm).take();
    }
}

impl Shared {
    fn console(&self) -> PathBuf {
        self.directory.join("console.log")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
    }

    /// Starts QEMU and waits for its monitor.
    async fn boot(&self) -> Result<Boot, LabError> {
        let list = arguments(&lock(&self.config), self.sockets.path());
        lock(&self.config).write_log = None;
        let log = self.directory.join("qemu.log");
        for socket in ["qmp", "control", "agent"] {
            // The former QEMU's: connecting to it would fail in a way that looks final.
            let _ = std::fs::remove_file(self.socket(socket));
        }
        self.boot_start.store(console::length(&self.console()), Ordering::SeqCst);
        self.start_tpm().await?;
        let (process, ended) = Process::start("qemu-system-x86_64", &list, &log)
            .map_err(|source| LabError::Start { program: "qemu-system-x86_64", source })?;
        *lock(&self.process) = Some(process);
        let opened = Monitor::open(&self.socket("qmp"), Duration::from_mins(2)).await;
        let monitor = opened.map_err(|error| {
            lock(&self.process).take();
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            LabError::PowerOn { host: self.name.clone(), said: format!("{error}; {}", said.trim()) }
        })?;
        let boots = self.boots.fetch_add(1, Ordering::SeqCst) + 1;
        let boots = u32::try_from(boots).unwrap_or(u32::MAX);
        tracing::info!(host = %self.name, boot = boots, "on");
        self.state.send_replace(HostState::On(boots));
        Ok(Boot { monitor, ended })
    }

    /// A TPM for one QEMU: it is reset by a new process, as hardware is by a reset.
    async fn start_tpm(&self) -> Result<(), LabError> {
        // The former one holds the lock of the state until it has ended.
        lock(&self.tpm).take();
        if lock(&self.config).tpm == Tpm::Absent {
            return Ok(());
        }
        let (state, socket) = (self.directory.join("tpm"), self.socket(TPM_SOCKET));
        let failed = |source| LabError::Prepare { path: state.clone(), source };
        std::fs::create_dir_all(&state).map_err(failed)?;
        let _ = std::fs::remove_file(&socket);
        let list = tpm_arguments(&std::path::absolute(&state).map_err(failed)?, self.sockets.path());
        let log = self.directory.join("tpm.log");
        let started = Process::start("swtpm", &list, &log);
        let (process, mut ended) = started.map_err(|source| LabError::Start { program: "swtpm", source })?;
        let end = Instant::now() + TPM_START;
        while !socket.exists() {
            if Instant::now() >= end || ended.try_recv().is_ok() {
                let said = std::fs::read_to_string(&log).unwrap_or_default().trim().to_owned();
                return Err(LabError::Program { program: "swtpm", said });
            }
            sleep(LOOK).await;
        }
        *lock(&self.tpm) = Some(process);
        Ok(())
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.directory.join("qemu.log")).unwrap_or_default().trim().to_owned()
    }
}

/// What follows the end of a QEMU: none is another boot.
fn after(reason: Option<&str>, cut: bool, said: &str) -> Option<Stop> {
    match reason {
        _ if cut => Some(Stop::PowerCut),
        Some("guest-reset") => None,
        Some("guest-shutdown") => Some(Stop::PowerOff),
        other => Some(Stop::Crash(format!("{}: {said}", other.unwrap_or("no reason given")))),
    }
}

/// Follows the host from boot to boot until it is off.
async fn supervise(shared: Arc<Shared>, mut boot: Boot) {
    loop {
        let reason = boot.monitor.last_shutdown().await;
        // The disk is free only when QEMU has ended; the sender lives as long as the process.
        let _ = boot.ended.await;
        let cut = shared.cut.load(Ordering::SeqCst);
        let stop = match after(reason.as_deref(), cut, &shared.said()) {
            Some(stop) => stop,
            None if shared.stays_off.load(Ordering::SeqCst) => Stop::Reset,
            None => match shared.boot().await {
                Ok(next) => {
                    boot = next;
                    continue;
                }
                Err(error) => Stop::Crash(error.to_string()),
            },
        };
        tracing::info!(host = %shared.name, ?stop, "off");
        shared.state.send_replace(HostState::Off(stop));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reset_is_followed_by_another_boot() {
        let cases = [
            ("reset", Some("guest-reset"), false, None),
            ("power off", Some("guest-shutdown"), false, Some(Stop::PowerOff)),
            ("plug pulled", None, true, Some(Stop::PowerCut)),
            ("plug pulled during a reset", Some("guest-reset"), true, Some(Stop::PowerCut)),
            ("killed", None, false, Some(Stop::Crash("no reason given: x".into()))),
        ];
        for (name, reason, cut, want) in cases {
            assert_eq!(after(reason, cut, "x"), want, "{name}");
        }
    }
}
