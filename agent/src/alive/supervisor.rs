//! Keeps keepalived running as the duty asks for, in a unit of its own: it
//! outlives the agent that speaks with the coordinator, and starts at boot
//! without it.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::balancer::Duty;
use proto::v1alpha1::{Failure, FailureReason, LoadBalancerState};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::config::{Part, check_command, render_config};
use super::placement::{Placement, PlacementError, find_placement};
use super::spread::{self, SpreadError};
use crate::ground::backoff::Backoff;
use crate::ground::durable::{self, DurableError};
use crate::ground::error::{NextAction, describe_error, explain};
use crate::ground::file_changes::FileChanges;
use crate::ground::paths::Root;
use crate::host::network::NetworkError;
use crate::host::network::changes::NetworkChanges;
use crate::host::network::kernel::dump_kernel;
use crate::state::duty::{self, DutyFileError};

/// How long a keepalived may take that is asked to end: it gives the address up
/// first.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// What the kernel does not announce, such as a module that was loaded.
const RECHECK: Duration = Duration::from_mins(1);

/// Why the host does not take part.
#[derive(Debug, thiserror::Error)]
pub enum AliveError {
    /// The duty is unknown.
    #[error(transparent)]
    Duty(#[from] DutyFileError),
    /// The duty does not fit this host.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The network is unknown.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The configuration cannot be written.
    #[error("cannot write keepalived's configuration")]
    Config(#[from] DurableError),
    /// keepalived does not start.
    #[error("cannot start keepalived")]
    Start(#[source] io::Error),
    /// keepalived ended.
    #[error("keepalived ended with {0}")]
    Ended(ExitStatus),
    /// Changes cannot be noticed.
    #[error("cannot notice changes of the duty or the network")]
    Watch(#[source] io::Error),
}

impl NextAction for AliveError {
    fn next_action(&self) -> Option<&str> {
        match self {
            Self::Duty(error) => error.next_action(),
            Self::Placement(error) => error.next_action(),
            Self::Config(error) => error.next_action(),
            Self::Start(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("use an OS image that carries keepalived")
            }
            Self::Ended(_) => Some("read the log of baremetal-agent-alive.service on the host"),
            Self::Network(_) | Self::Start(_) | Self::Watch(_) => Some("check the host's kernel log"),
        }
    }
}

/// Does the duty of `root` until it is told to end.
///
/// # Errors
/// [`AliveError::Watch`] when it cannot begin.
pub async fn run(root: &Root, program: &Path) -> Result<(), AliveError> {
    let mut end = signal(SignalKind::terminate()).map_err(AliveError::Watch)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AliveError::Watch)?;
    let duties = FileChanges::watch_directory(&root.state().load_balancer()).map_err(AliveError::Watch)?;
    let network = NetworkChanges::open_watch().map_err(AliveError::Watch)?;
    std::fs::create_dir_all(root.load_balancer()).map_err(AliveError::Watch)?;
    let mut supervisor =
        Supervisor { root, program, known: duty::carried_duty(root), running: None, state: None };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let ended = tokio::select! {
        never = supervisor.keep_duty(&duties, &network) => never.map(|never| match never {}),
        _ = end.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    supervisor.stop().await;
    ended
}

struct Supervisor<'a> {
    root: &'a Root,
    /// This program, which keepalived runs as its check.
    program: &'a Path,
    /// The duty that was read last.
    known: Option<Duty>,
    running: Option<Running>,
    state: Option<LoadBalancerState>,
}

struct Running {
    child: Child,
    config: String,
}

impl Supervisor<'_> {
    async fn keep_duty(
        &mut self,
        duties: &FileChanges,
        network: &NetworkChanges,
    ) -> Result<Infallible, AliveError> {
        let mut backoff = Backoff::default();
        loop {
            let (state, failed) = self.follow_duty().await;
            self.publish(state);
            tokio::select! {
                changed = duties.next() => changed.map_err(AliveError::Watch)?,
                changed = network.next(), if !failed => changed.map_err(AliveError::Watch)?,
                () = backoff.wait(), if failed => {}
                () = sleep(RECHECK), if !failed => backoff.succeeded(),
                ended = wait_ended(&mut self.running) => {
                    self.running = None;
                    let error = ended.map_or_else(AliveError::Start, AliveError::Ended);
                    let generation = duty::kept_generation(self.root);
                    self.publish(failed_state(generation, &error));
                    backoff.wait().await;
                }
            }
        }
    }

    /// Brings keepalived to what the duty asks for. The second value: it is
    /// tried again soon.
    async fn follow_duty(&mut self) -> (LoadBalancerState, bool) {
        let generation = duty::kept_generation(self.root);
        let unread = match duty::carry_duty(self.root) {
            Ok(duty) => {
                self.known = duty;
                None
            }
            // The duty that was read last goes on: the file comes again from the coordinator.
            Err(error) => Some(AliveError::from(error)),
        };
        let Some(duty) = self.known.clone() else {
            self.stop().await;
            let idle = LoadBalancerState { generation, ..LoadBalancerState::default() };
            return unread.map_or((idle, false), |error| (failed_state(generation, &error), true));
        };
        match self.do_duty(&duty).await {
            Ok(state) => match unread {
                None => (state, false),
                Some(error) => {
                    tracing::warn!(error = explain(&error), "the load balancer goes on with the former duty");
                    (LoadBalancerState { generation, failure: Some(describe_failure(&error)), ..state }, true)
                }
            },
            Err(error) => {
                // At a place that is gone nothing is held.
                if matches!(error, AliveError::Placement(_)) {
                    self.stop().await;
                }
                let waits = matches!(error, AliveError::Placement(_));
                (failed_state(generation, &error), !waits)
            }
        }
    }

    async fn do_duty(&mut self, duty: &Duty) -> Result<LoadBalancerState, AliveError> {
        let placement = find_placement(duty, &dump_kernel()?)?;
        let spread = match duty.peers().next() {
            Some(_) => spread::prepare_kernel(self.root, duty).await.map(|()| true),
            // A single member has nothing to spread over.
            None => Ok(false),
        };
        let spreads = matches!(spread, Ok(true));
        self.bring_up(duty, &placement, spreads)?;
        Ok(LoadBalancerState {
            generation: duty.generation,
            interface: placement.interface,
            is_holder: placement.is_holder,
            spreads,
            failure: spread.err().map(|error| limited(&error)),
        })
    }

    fn bring_up(&mut self, duty: &Duty, placement: &Placement, spreads: bool) -> Result<(), AliveError> {
        let check = check_command(self.program, &self.root.join("/"));
        let config = render_config(&Part { duty, placement, check: &check, spreads });
        if self.running.as_ref().is_some_and(|running| running.config == config) {
            return Ok(());
        }
        let path = self.path("keepalived.conf");
        durable::write(&path, config.as_bytes())?;
        if let Some(running) = &mut self.running {
            tracing::info!(generation = duty.generation, "keepalived reads its configuration again");
            send_signal(&running.child, Signal::SIGHUP);
            running.config = config;
            return Ok(());
        }
        tracing::info!(generation = duty.generation, interface = placement.interface, "keepalived starts");
        let child = self.start_keepalived(&path).map_err(AliveError::Start)?;
        self.running = Some(Running { child, config });
        Ok(())
    }

    fn start_keepalived(&self, config: &Path) -> io::Result<Child> {
        Command::new("keepalived")
            .args(["--dont-fork", "--log-console", "--no-syslog", "--use-file"])
            .arg(config)
            .arg("--pid")
            .arg(self.path("keepalived.pid"))
            .arg("--vrrp_pid")
            .arg(self.path("vrrp.pid"))
            .arg("--checkers_pid")
            .arg(self.path("checkers.pid"))
            .kill_on_drop(true)
            .spawn()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.load_balancer().join(name)
    }

    async fn stop(&mut self) {
        let Some(Running { mut child, .. }) = self.running.take() else { return };
        send_signal(&child, Signal::SIGTERM);
        if timeout(STOP_DEADLINE, child.wait()).await.is_err() {
            tracing::warn!("keepalived does not end: killed");
            let _ = child.kill().await;
        }
    }

    fn publish(&mut self, state: LoadBalancerState) {
        if self.state.as_ref() == Some(&state) {
            return;
        }
        duty::write_state(self.root, &state);
        self.state = Some(state);
    }
}

fn send_signal(child: &Child, what: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id
        && let Err(error) = kill(Pid::from_raw(id), what)
    {
        tracing::warn!(%error, "cannot send {what} to keepalived");
    }
}

async fn wait_ended(running: &mut Option<Running>) -> io::Result<ExitStatus> {
    match running {
        Some(running) => running.child.wait().await,
        None => std::future::pending().await,
    }
}

fn failed_state(generation: u64, error: &AliveError) -> LoadBalancerState {
    tracing::warn!(error = explain(error), "this host does not take part in the load balancer");
    LoadBalancerState { generation, failure: Some(describe_failure(error)), ..LoadBalancerState::default() }
}

fn describe_failure(error: &AliveError) -> Failure {
    let reason = match error {
        AliveError::Placement(_) => FailureReason::Refused,
        AliveError::Start(_) | AliveError::Ended(_) => FailureReason::Command,
        AliveError::Duty(_) | AliveError::Network(_) | AliveError::Config(_) | AliveError::Watch(_) => {
            FailureReason::InputOutput
        }
    };
    Failure {
        reason: reason.into(),
        message: describe_error(error),
        next_action: error.next_action().unwrap_or_default().to_owned(),
    }
}

/// It takes part, and the holder serves alone.
fn limited(error: &SpreadError) -> Failure {
    Failure {
        reason: FailureReason::Command.into(),
        message: format!("the holder of the address serves alone: {}", describe_error(error)),
        next_action: "none needed; to spread connections, use an OS image with ip_vs and nft that forwards"
            .to_owned(),
    }
}
