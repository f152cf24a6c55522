//! QEMU as the machine below a guest.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use guest::process::Process;
use guest::{AgentPort, Boot, End, Guest, LabError, Machine};
use tokio::time::{Instant, sleep, timeout};

use crate::arguments::{TPM_SOCKET, arguments, plug_system_disk, tpm_arguments};
use crate::config::{BootOrder, HostConfig, Tpm};
use crate::prepare::prepare;
use crate::qmp::{self, Monitor};

/// How long swtpm may take to open its socket.
const TPM_START: Duration = Duration::from_mins(2);
/// How long QEMU may take for a command of its monitor.
const COMMAND: Duration = Duration::from_mins(1);
/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(300);

/// One host's QEMU and TPM.
#[derive(Debug)]
pub struct Qemu {
    config: Mutex<HostConfig>,
    name: String,
    directory: PathBuf,
    sockets: tempfile::TempDir,
    /// The TPM of this boot.
    tpm: Mutex<Option<Process>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking test must still be able to power its hosts off.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Qemu {
    /// A machine with this hardware, not yet powered on.
    pub fn new(config: HostConfig) -> Result<Arc<Self>, LabError> {
        let sockets = tempfile::Builder::new().prefix("lab-").tempdir();
        let sockets = sockets.map_err(|source| LabError::Prepare { path: std::env::temp_dir(), source })?;
        Ok(Arc::new(Self {
            name: config.name.clone(),
            directory: config.directory.clone(),
            config: Mutex::new(config),
            sockets,
            tpm: Mutex::new(None),
        }))
    }

    /// Powers on a host with this hardware.
    pub async fn start(config: HostConfig) -> Result<Guest, LabError> {
        Guest::start(Self::new(config)?).await
    }

    /// Sets what is tried first: seen at the next boot.
    pub fn set_boot_order(&self, order: BootOrder) {
        lock(&self.config).boot_order = order;
    }

    /// Plugs the system disk into a host that runs without it and has [`crate::Devices::Virtio`]. It stays plugged in.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub async fn plug_system_disk(&self) -> Result<(), LabError> {
        let commands = plug_system_disk(&lock(&self.config).system_disk());
        let plugged = timeout(COMMAND, qmp::execute(&self.socket("control"), &commands)).await;
        let plugged = plugged.unwrap_or_else(|_| Err(format!("no answer within {COMMAND:?}")));
        plugged.map_err(|said| LabError::Program { program: "qemu-system-x86_64", said })?;
        lock(&self.config).has_system_disk = true;
        Ok(())
    }

    /// Records what the next boot writes to the system disk in a new file.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn record_next_boot(&self, log: &Path) -> std::io::Result<()> {
        std::fs::File::create_new(log)?;
        lock(&self.config).write_log = Some(log.to_owned());
        Ok(())
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
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
        let (process, mut ended) = start("swtpm", &list, &log)?;
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
}

#[async_trait]
impl Machine for Qemu {
    fn name(&self) -> &str {
        &self.name
    }

    fn directory(&self) -> &Path {
        &self.directory
    }

    async fn prepare(&self) -> Result<(), LabError> {
        let config = lock(&self.config).clone();
        prepare(&config).await
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
        self.start_tpm().await?;
        let (process, ended) = start("qemu-system-x86_64", &list, &log)?;
        let opened = Monitor::open(&self.socket("qmp"), Duration::from_mins(2)).await;
        let mut monitor = opened.map_err(|error| {
            let said = format!("{error}; {}", read_output(&log));
            LabError::PowerOn { host: self.name.clone(), said }
        })?;
        let end = async move {
            let reason = monitor.last_shutdown().await;
            // The disk is free only when QEMU has ended; the sender lives as long as the process.
            let _ = ended.await;
            judge_end(reason.as_deref(), &read_output(&log))
        };
        Ok(Boot { process, agent: AgentPort::Socket(self.socket("agent")), end: Box::pin(end) })
    }
}

type Ended = tokio::sync::oneshot::Receiver<Option<i32>>;

fn start(program: &'static str, arguments: &[String], log: &Path) -> Result<(Process, Ended), LabError> {
    let failed = |source| LabError::Prepare { path: log.to_owned(), source };
    let output = std::fs::File::create(log).map_err(failed)?;
    Process::start(program, arguments, Stdio::null(), output)
        .map_err(|source| LabError::Start { program, source })
}

fn read_output(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default().trim().to_owned()
}

/// How a boot ended, by the last reason that QEMU gave.
fn judge_end(reason: Option<&str>, said: &str) -> End {
    match reason {
        Some("guest-reset") => End::Reset,
        Some("guest-shutdown") => End::PowerOff,
        other => End::Crash(format!("{}: {said}", other.unwrap_or("no reason given"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_follows_from_the_reason() {
        for (reason, want) in [
            (Some("guest-reset"), End::Reset),
            (Some("guest-shutdown"), End::PowerOff),
            (Some("host-signal"), End::Crash("host-signal: x".into())),
            (None, End::Crash("no reason given: x".into())),
        ] {
            assert_eq!(judge_end(reason, "x"), want, "{reason:?}");
        }
    }
}
