//! A host over all its boots.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::agent_port::{AgentPort, Output};
use crate::console;
use crate::error::{ConsoleEnd, LabError};
use crate::machine::{End, Machine};
use crate::process::Process;

/// How long an `exec` may take when the caller names no limit.
const EXEC: Duration = Duration::from_mins(3);
/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(300);

/// Why a host is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It powered itself off.
    PowerOff,
    /// We pulled the plug.
    PowerCut,
    /// It reset itself, see [`Guest::stay_off_after_reset`].
    Reset,
    /// Its process ended by itself, or did not start again: the output of the process.
    Crash(String),
}

/// The power of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PowerState {
    /// On, in its n-th boot, counted from 1.
    On(u32),
    Off(Stop),
}

/// A host that runs on a machine. Dropping it pulls the plug.
#[derive(Debug)]
pub struct Guest {
    shared: Arc<Shared>,
    supervisor: Option<JoinHandle<()>>,
    sync: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    machine: Arc<dyn Machine>,
    process: Mutex<Option<Process>>,
    /// The agent of this boot. A conversation with the agent of a former boot may still hold the former one.
    agent: Mutex<Option<Arc<tokio::sync::Mutex<AgentPort>>>>,
    state: watch::Sender<PowerState>,
    boots: AtomicU64,
    boot_start: AtomicU64,
    cut: AtomicBool,
    stays_off: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking test must still be able to power its hosts off.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guest {
    /// Makes the files that the machine lacks, and powers the host on.
    pub async fn start(machine: Arc<dyn Machine>) -> Result<Self, LabError> {
        machine.prepare().await?;
        let shared = Arc::new(Shared {
            machine,
            process: Mutex::new(None),
            agent: Mutex::new(None),
            state: watch::Sender::new(PowerState::Off(Stop::PowerOff)),
            boots: AtomicU64::new(0),
            boot_start: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            stays_off: AtomicBool::new(false),
        });
        let mut guest = Self { shared, supervisor: None, sync: AtomicU64::new(1) };
        guest.power_on().await?;
        Ok(guest)
    }

    /// Powers a host on that is off; one that is on stays as it is.
    pub async fn power_on(&mut self) -> Result<(), LabError> {
        if self.is_on() {
            return Ok(());
        }
        let end = self.shared.boot().await?;
        self.supervisor = Some(tokio::spawn(supervise(Arc::clone(&self.shared), end)));
        Ok(())
    }

    /// Pulls the plug: all that the guest did not flush is lost. The host is off afterwards.
    pub async fn power_cut(&mut self) {
        self.shared.cut.store(true, Ordering::SeqCst);
        if let Some(mut supervisor) = self.supervisor.take() {
            loop {
                if let Some(process) = lock(&self.shared.process).as_ref() {
                    process.kill();
                }
                // A host that was resetting itself has another process by now. A panic of the supervisor leaves none.
                if timeout(LOOK, &mut supervisor).await.is_ok() {
                    break;
                }
            }
        }
        self.shared.cut.store(false, Ordering::SeqCst);
    }

    pub fn state(&self) -> PowerState {
        self.shared.state.borrow().clone()
    }

    pub fn is_on(&self) -> bool {
        matches!(self.state(), PowerState::On(_))
    }

    /// Lets the next reset leave the host off, with its disks as they are then, or boot it.
    pub fn stay_off_after_reset(&self, stays_off: bool) {
        self.shared.stays_off.store(stays_off, Ordering::SeqCst);
    }

    /// Its name in errors and logs.
    pub fn name(&self) -> &str {
        self.shared.machine.name()
    }

    /// The console log, over all boots.
    pub fn console(&self) -> PathBuf {
        self.shared.console()
    }

    /// The output of this boot so far, without colours.
    pub fn console_of_this_boot(&self) -> String {
        console::read_from(&self.console(), self.shared.boot_start.load(Ordering::SeqCst))
    }

    /// Runs a command in the host, within three minutes. A non-zero exit code is an `Output`, not an error.
    pub async fn exec(&self, command: &[&str]) -> Result<Output, LabError> {
        self.exec_within(command, EXEC).await
    }

    /// Runs a command in the host, within `limit`.
    pub async fn exec_within(&self, command: &[&str], limit: Duration) -> Result<Output, LabError> {
        let number = self.sync.fetch_add(1, Ordering::SeqCst);
        let run = async { self.agent()?.lock().await.exec(number, command).await };
        let said = match timeout(limit, run).await {
            Ok(Ok(output)) => return Ok(output),
            Ok(Err(said)) => said,
            Err(_) => format!("no end within {limit:?}"),
        };
        Err(LabError::GuestAgent {
            host: self.name().to_owned(),
            attempt: command.join(" "),
            said,
            console: Box::new(ConsoleEnd::read(self.console())),
        })
    }

    /// Waits until the guest agent answers in boot `number` or a later one.
    pub async fn wait_for_boot(&self, number: u32, limit: Duration) -> Result<(), LabError> {
        let what = format!("guest agent in boot {number}");
        self.wait_until(&what, limit, || async {
            match self.state() {
                PowerState::On(boot) if boot >= number => {
                    let number = self.sync.fetch_add(1, Ordering::SeqCst);
                    let ask = async { self.agent()?.lock().await.ping(number).await };
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
    pub async fn wait_for_off(&self, limit: Duration) -> Result<Stop, LabError> {
        let mut state = self.shared.state.subscribe();
        let off = timeout(limit, state.wait_for(|state| matches!(state, PowerState::Off(_)))).await;
        match off.ok().and_then(Result::ok).map(|state| state.clone()) {
            Some(PowerState::Off(stop)) => Ok(stop),
            _ => Err(self.late("power-off", limit, format!("{:?}", self.state()))),
        }
    }

    /// Asks again and again until the answer is `Ok`; an `Err` is the state that was seen, for the error message.
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
            if !self.is_on() || Instant::now() >= end {
                return Err(self.late(what, limit, seen));
            }
            sleep(LOOK).await;
        }
    }

    fn agent(&self) -> Result<Arc<tokio::sync::Mutex<AgentPort>>, String> {
        lock(&self.shared.agent).clone().ok_or_else(|| "the host is off".to_owned())
    }

    fn late(&self, what: &str, limit: Duration, seen: String) -> LabError {
        LabError::Deadline {
            host: self.name().to_owned(),
            what: what.to_owned(),
            limit,
            seen,
            console: Box::new(ConsoleEnd::read(self.console())),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.abort();
        }
        self.shared.cut.store(true, Ordering::SeqCst);
        // Taking it drops it, and dropping kills.
        lock(&self.shared.process).take();
    }
}

impl Shared {
    fn console(&self) -> PathBuf {
        self.machine.directory().join("console.log")
    }

    /// Begins the next boot; the future ends with it.
    async fn boot(&self) -> Result<BoxFuture<'static, End>, LabError> {
        self.boot_start.store(console::length(&self.console()), Ordering::SeqCst);
        let boot = self.machine.boot().await?;
        *lock(&self.process) = Some(boot.process);
        *lock(&self.agent) = Some(Arc::new(tokio::sync::Mutex::new(boot.agent)));
        let boots = self.boots.fetch_add(1, Ordering::SeqCst) + 1;
        let boots = u32::try_from(boots).unwrap_or(u32::MAX);
        tracing::info!(host = %self.machine.name(), boot = boots, "on");
        self.state.send_replace(PowerState::On(boots));
        Ok(boot.end)
    }
}

/// Reason why a host is off after the end of a boot; none where another boot follows.
fn find_stop(end: End, was_cut: bool) -> Option<Stop> {
    match end {
        _ if was_cut => Some(Stop::PowerCut),
        End::Reset => None,
        End::PowerOff => Some(Stop::PowerOff),
        End::Crash(said) => Some(Stop::Crash(said)),
    }
}

/// Follows the host from boot to boot until it is off.
async fn supervise(shared: Arc<Shared>, mut end: BoxFuture<'static, End>) {
    loop {
        let ended = end.await;
        let stop = match find_stop(ended, shared.cut.load(Ordering::SeqCst)) {
            Some(stop) => stop,
            None if shared.stays_off.load(Ordering::SeqCst) => Stop::Reset,
            None => match shared.boot().await {
                Ok(next) => {
                    end = next;
                    continue;
                }
                Err(error) => Stop::Crash(error.to_string()),
            },
        };
        tracing::info!(host = %shared.machine.name(), ?stop, "off");
        shared.state.send_replace(PowerState::Off(stop));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reset_is_followed_by_another_boot() {
        let crash = || "x".to_owned();
        for (name, end, was_cut, want) in [
            ("reset", End::Reset, false, None),
            ("power off", End::PowerOff, false, Some(Stop::PowerOff)),
            ("plug pulled", End::Crash(crash()), true, Some(Stop::PowerCut)),
            ("plug pulled during a reset", End::Reset, true, Some(Stop::PowerCut)),
            ("killed", End::Crash(crash()), false, Some(Stop::Crash(crash()))),
        ] {
            assert_eq!(find_stop(end, was_cut), want, "{name}");
        }
    }
}
