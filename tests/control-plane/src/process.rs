//! Child processes that cannot outlive us.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// Lines of a child's log that an error carries.
const TAIL: usize = 15;

/// Time between two probes of a server that starts.
const PROBE: Duration = Duration::from_millis(50);

/// What went wrong with a child process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not start.
    #[error("start {name}")]
    Start {
        /// The process as its log calls it.
        name: String,
        source: io::Error,
    },
    /// It ended although it should run.
    #[error("{name} ended with {status}; its log is {}; it ends with:\n{tail}", log.display())]
    Ended {
        /// The process as its log calls it.
        name: String,
        status: ExitStatus,
        /// Where its output is.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// It runs, but was not ready in time.
    #[error("{name} was not ready after {} s ({seen}); its log is {}; it ends with:\n{tail}", waited.as_secs(), log.display())]
    NotReady {
        /// The process as its log calls it.
        name: String,
        /// How long it was given.
        waited: Duration,
        /// The last answer.
        seen: String,
        /// Where its output is.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// A signal could not be sent.
    #[error("send {signal} to {name}")]
    Signal {
        /// The process as its log calls it.
        name: String,
        signal: Signal,
        source: nix::Error,
    },
}

/// How a process is started.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name in errors.
    pub name: String,
    pub binary: PathBuf,
    pub arguments: Vec<String>,
    /// What is added to our environment.
    pub environment: Vec<(String, String)>,
    /// Where both of its outputs are appended.
    pub log: PathBuf,
}

/// A running child: killed and reaped on drop, killed by the kernel when our process dies.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    child: Child,
}

impl Process {
    /// Starts `spec` in a process group of its own, so that a Ctrl-C at the terminal reaches only
    /// us and we end the children in order.
    ///
    /// # Errors
    /// [`Error::Start`] when the log or the process cannot be made.
    pub fn start(spec: Spec) -> Result<Self, Error> {
        let failed = |source| Error::Start { name: spec.name.clone(), source };
        let child = command(&spec).and_then(spawn).map_err(failed)?;
        tracing::debug!(name = spec.name, pid = child.id(), "started");
        Ok(Self { spec, child })
    }

    /// What it was started with.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(Error::Ended {
                name: self.spec.name.clone(),
                status,
                tail: tail(&self.spec.log),
                log: self.spec.log.clone(),
            }),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Sends `signal`: `SIGSTOP` and `SIGCONT` make a server that hangs and comes back. After
    /// `SIGSTOP` no thread of it runs any more.
    ///
    /// # Errors
    /// [`Error::Signal`] when it is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let sent = send(self.child.id(), signal);
        let sent =
            if signal == Signal::SIGSTOP { sent.and_then(|()| stopped(self.child.id())) } else { sent };
        sent.map_err(|source| Error::Signal { name: self.spec.name.clone(), signal, source })
    }

    /// Asks it to end, and kills it when it has not after `grace`.
    pub fn stop(mut self, grace: Duration) {
        let deadline = Instant::now() + grace;
        if self.signal(Signal::SIGTERM).is_ok() {
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Ends it at once, as a crash would.
    pub fn kill(self) {
        drop(self);
    }

    /// The error for a process that runs but does not get ready.
    pub fn not_ready(&self, waited: Duration, seen: String) -> Error {
        Error::NotReady {
            name: self.spec.name.clone(),
            waited,
            seen,
            tail: tail(&self.spec.log),
            log: self.spec.log.clone(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too; without the wait it would stay as a zombie and its
        // port could still be bound when the next one starts.
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            tracing::warn!(name = self.spec.name, "not reaped");
        }
    }
}

/// A process that can be ended and started again on the same data.
#[derive(Debug)]
pub struct Server {
    spec: Spec,
    running: Mutex<Option<Process>>,
}

impl Server {
    /// Starts `spec`.
    pub fn start(spec: Spec) -> Result<Self, Error> {
        let process = Process::start(spec.clone())?;
        Ok(Self { spec, running: Mutex::new(Some(process)) })
    }

    /// Starts it again; ends it first when it runs.
    pub fn restart(&self) -> Result<(), Error> {
        self.restart_with(&[])
    }

    /// The same with `further` arguments, until the next restart.
    pub fn restart_with(&self, further: &[&str]) -> Result<(), Error> {
        let mut spec = self.spec.clone();
        spec.arguments.extend(further.iter().map(|argument| (*argument).to_owned()));
        let mut running = self.running();
        *running = None;
        *running = Some(Process::start(spec)?);
        Ok(())
    }

    /// Where its output is appended.
    pub fn log(&self) -> &Path {
        &self.spec.log
    }

    pub fn is_running(&self) -> bool {
        self.running().as_mut().is_some_and(|process| process.check().is_ok())
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&self) {
        *self.running() = None;
    }

    /// Sends `signal`.
    ///
    /// # Errors
    /// [`Error::Signal`] when it does not run.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        match self.running().as_ref() {
            Some(process) => process.signal(signal),
            None => Err(Error::Signal { name: self.spec.name.clone(), signal, source: nix::Error::ESRCH }),
        }
    }

    /// Calls `probe` until it succeeds; its error is what it saw.
    ///
    /// # Errors
    /// [`Error::Ended`] as soon as the process ends, [`Error::NotReady`] after `limit`.
    pub async fn ready<F>(&self, limit: Duration, probe: impl Fn() -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), String>>,
    {
        let deadline = Instant::now() + limit;
        loop {
            let Err(seen) = probe().await else {
                return Ok(());
            };
            self.check(deadline, limit, seen)?;
            tokio::time::sleep(PROBE).await;
        }
    }

    fn check(&self, deadline: Instant, limit: Duration, seen: String) -> Result<(), Error> {
        let mut running = self.running();
        let Some(process) = running.as_mut() else {
            return Err(Error::Start {
                name: self.spec.name.clone(),
                source: io::Error::other("it was ended while it started"),
            });
        };
        process.check()?;
        if Instant::now() > deadline {
            return Err(process.not_ready(limit, seen));
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, Option<Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(id: u32, signal: Signal) -> nix::Result<()> {
    kill(to_pid(id)?, signal)
}

/// Waits until child `id` has stopped: the kernel stops each thread where it next sees the signal,
/// and says so after the last. The child stays as it is for those who wait for its end.
fn stopped(id: u32) -> nix::Result<()> {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(to_pid(id)?), flags).map(drop)
}

fn to_pid(id: u32) -> nix::Result<Pid> {
    i32::try_from(id).map(Pid::from_raw).map_err(|_| nix::Error::ESRCH)
}

/// `setpriv` sets the parent-death signal between fork and exec, which plain Rust cannot do without
/// `unsafe`.
fn command(spec: &Spec) -> io::Result<Command> {
    let log = File::options().create(true).append(true).open(&spec.log)?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&spec.binary)
        .args(&spec.arguments)
        .envs(spec.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    Ok(command)
}

struct Job {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

/// Spawns from a thread that lives as long as the process: the parent-death signal comes when the
/// *thread* that forked ends, so a child of a test's own thread would die with that test, though
/// other tests still use it.
fn spawn(command: Command) -> io::Result<Child> {
    let (reply, answer) = sync_channel(1);
    let lost = |_| io::Error::other("the thread that starts processes is gone");
    spawner()?.send(Job { command, reply }).map_err(|error| io::Error::other(error.to_string()))?;
    answer.recv().map_err(lost)?
}

fn spawner() -> io::Result<&'static std::sync::mpsc::Sender<Job>> {
    static SPAWNER: OnceLock<std::sync::mpsc::Sender<Job>> = OnceLock::new();
    if let Some(sender) = SPAWNER.get() {
        return Ok(sender);
    }
    let (sender, jobs) = channel();
    std::thread::Builder::new().name("spawner".to_owned()).spawn(move || serve(&jobs))?;
    // When two callers race, the loser's sender is dropped and its thread ends childless.
    Ok(SPAWNER.get_or_init(|| sender))
}

fn serve(jobs: &Receiver<Job>) {
    for mut job in jobs {
        let child = job.command.spawn();
        if let Err(unheard) = job.reply.send(child)
            && let Ok(mut child) = unheard.0
        {
            let _ = child.kill();
        }
    }
}

/// The last lines of a log, for an error.
pub fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(directory: &Path, script: &str) -> Process {
        Process::start(Spec {
            name: "a shell".to_owned(),
            binary: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: Vec::new(),
            log: directory.join("log"),
        })
        .unwrap()
    }

    #[test]
    fn ended_child_shows_status_and_last_lines() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = shell(directory.path(), "echo last words; exit 3");
        let _ = process.child.wait();
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("last words"), "{error}");
    }

    #[test]
    fn stopped_child_may_finish_its_work() {
        let directory = tempfile::tempdir().unwrap();
        let script = "trap 'echo finished; exit' TERM; echo up; while :; do sleep 0.01; done";
        let process = shell(directory.path(), script);
        let log = directory.path().join("log");
        while !tail(&log).contains("up") {
            std::thread::yield_now();
        }
        process.stop(Duration::from_secs(30));
        assert_eq!(tail(&log), "up\nfinished");
    }

    #[test]
    fn child_outlives_its_thread_and_ends_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let mut process = std::thread::spawn(move || shell(&path, "exec sleep 100")).join().unwrap();
        assert!(process.check().is_ok());
        let id = process.id();
        process.kill();
        assert!(send(id, Signal::SIGCONT).is_err());
    }
}
