//! Keeps keepalived running as the duty requires, in a unit of its own, which outlives the agent
//! that is attached to the coordinator and starts at boot without it.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::balancer::Duty;
use proto::v1alpha1::{FailureReason, LoadBalancerState};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::config::{Part, check_command, render_config};
use super::placement::{Placement, find_placement};
use super::spread;
use crate::ground::backoff::Backoff;
use crate::ground::durable;
use crate::ground::failure::{Context as _, Failure, describe_cause};
use crate::ground::file_changes::FileChanges;
use crate::ground::paths::Root;
use crate::host::network::changes::NetworkChanges;
use crate::host::network::kernel::dump_kernel;
use crate::state::duty;

/// Time that keepalived may take to end; it releases the endpoint first.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// Interval of checks for changes that the kernel does not announce, such as a loaded module.
const RECHECK: Duration = Duration::from_mins(1);

/// Does the duty of `root` until a signal ends the process.
pub async fn run(root: &Root, program: &Path) -> Result<(), Failure> {
    let mut end = signal(SignalKind::terminate()).map_err(|error| watch_failure(&error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| watch_failure(&error))?;
    let duties =
        FileChanges::watch_directory(&root.state().load_balancer()).map_err(|error| watch_failure(&error))?;
    let network = NetworkChanges::open_watch().map_err(|error| watch_failure(&error))?;
    std::fs::create_dir_all(root.load_balancer()).map_err(|error| watch_failure(&error))?;
    let mut supervisor = Supervisor {
        root,
        program,
        known: duty::carried_duty(root),
        running: None,
        rules: None,
        state: None,
    };
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
    /// The rules of the last [`spread::prepare_kernel`].
    rules: Option<spread::Applied>,
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
    ) -> Result<Infallible, Failure> {
        let mut backoff = Backoff::default();
        loop {
            let (state, failed) = self.follow_duty().await;
            self.publish(state);
            tokio::select! {
                changed = duties.next() => changed.map_err(|error| watch_failure(&error))?,
                changed = network.next(), if !failed => changed.map_err(|error| watch_failure(&error))?,
                () = backoff.wait(), if failed => {}
                () = sleep(RECHECK), if !failed => backoff.succeeded(),
                ended = wait_ended(&mut self.running) => {
                    self.running = None;
                    let failure = ended.map_or_else(|error| start_failure(&error), ended_failure);
                    self.publish(failed_state(duty::kept_generation(self.root), failure));
                    backoff.wait().await;
                }
            }
        }
    }

    /// Adapts keepalived to the duty. The second value is true if another attempt must follow soon.
    async fn follow_duty(&mut self) -> (LoadBalancerState, bool) {
        let generation = duty::kept_generation(self.root);
        let unread = match duty::carry_duty(self.root) {
            Ok(duty) => {
                self.known = duty;
                None
            }
            // The former duty stays in force, because the coordinator sends the file again.
            Err(error) => Some(error),
        };
        let Some(duty) = self.known.clone() else {
            self.stop().await;
            let idle = LoadBalancerState { generation, ..LoadBalancerState::default() };
            return unread.map_or((idle, false), |error| (failed_state(generation, error), true));
        };
        match self.do_duty(&duty).await {
            Ok(state) => match unread {
                None => (state, false),
                Some(error) => {
                    tracing::warn!(%error, "cannot read the load balancer duty, keeping the former one");
                    (LoadBalancerState { generation, failure: Some(error.into()), ..state }, true)
                }
            },
            Err(error) => {
                // A duty that does not fit this host is refused and nothing is held; the network or
                // the duty must change before another attempt.
                let is_misplaced = error.reason == FailureReason::Refused;
                if is_misplaced {
                    self.stop().await;
                }
                (failed_state(generation, error), !is_misplaced)
            }
        }
    }

    async fn do_duty(&mut self, duty: &Duty) -> Result<LoadBalancerState, Failure> {
        let placement = find_placement(duty, &dump_kernel()?)?;
        let spread = match duty.peers().next() {
            Some(_) => spread::prepare_kernel(self.root, duty, &mut self.rules).await.map(|()| true),
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
            failure: spread.err().map(Into::into),
        })
    }

    fn bring_up(&mut self, duty: &Duty, placement: &Placement, spreads: bool) -> Result<(), Failure> {
        let check = check_command(self.program, &self.root.join("/"));
        let config = render_config(&Part { duty, placement, check: &check, spreads });
        if self.running.as_ref().is_some_and(|running| running.config == config) {
            return Ok(());
        }
        let path = self.path("keepalived.conf");
        durable::write(&path, config.as_bytes()).context("cannot write keepalived's configuration")?;
        if let Some(running) = &mut self.running {
            tracing::info!(generation = duty.generation, "keepalived reloads its configuration");
            send_signal(&running.child, Signal::SIGHUP);
            running.config = config;
            return Ok(());
        }
        tracing::info!(generation = duty.generation, interface = placement.interface, "keepalived started");
        let child = self.start_keepalived(&path).map_err(|error| start_failure(&error))?;
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
            tracing::warn!("keepalived does not end, killing it");
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

fn failed_state(generation: u64, error: Failure) -> LoadBalancerState {
    tracing::warn!(%error, "host takes no part in the load balancer");
    LoadBalancerState { generation, failure: Some(error.into()), ..LoadBalancerState::default() }
}

fn watch_failure(error: &io::Error) -> Failure {
    let message = describe_cause("cannot notice changes of the duty or the network", error);
    Failure::input_output(message, "check the host's kernel log")
}

fn start_failure(error: &io::Error) -> Failure {
    let next_action = match error.kind() {
        io::ErrorKind::NotFound => "use an OS image that carries keepalived",
        _ => "check the host's kernel log",
    };
    Failure::new(FailureReason::Command, describe_cause("cannot start keepalived", error), next_action)
}

fn ended_failure(status: ExitStatus) -> Failure {
    Failure::new(
        FailureReason::Command,
        format!("keepalived ended with {status}"),
        "read the log of baremetal-agent-alive.service on the host",
    )
}
