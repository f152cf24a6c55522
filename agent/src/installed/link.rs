//! The verb `run` of the installed system: stays attached to the coordinator, one connection after
//! the other.
//!
//! Each connection begins with a valid certificate, sends Hello, receives plans, and reports
//! outcomes and the network until it breaks. Steps run concurrently ([`worker`]).

mod certificate;
mod stream;

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, SystemTime};

use proto::refusal::Refusal;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{Hello, HostMessage, ObservedNetwork, StepProgress, SystemState};
use semver::Version;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep};
use tokio_stream::wrappers::ReceiverStream;

use stream::Attached;

use super::duties::DutyLine;
use super::network_trial::NetworkTrial;
use super::pace::{LastObserved, Pace, ProgressPace};
use super::settings::Settings;
use super::updates::Updates;
use super::worker::{Mailbox, Progress};
use super::{carried, own_kernel, worker};
use crate::client::calls::{Caller, host_client};
use crate::client::error::{Answer, CallError};
use crate::client::rejection::Rejection;
use crate::client::transport::Transport;
use crate::ground::backoff::{Backoff, draw_fraction};
use crate::ground::failure::{Context as _, Failure};
use crate::ground::paths::Root;
use crate::host::facts;
use crate::host::left_behind::{join_left, list_used_disks};
use crate::host::network::NetworkObserver;
use crate::host::system::System;
use crate::identity::{Identity, Role};
use crate::plan::executor::{Executor, NewestPlan};
use crate::state::message::Console;
use crate::state::{live_boot, space};

/// Number of messages that may wait for a slow coordinator.
const QUEUE: usize = 16;
/// Time that the coordinator may take to open the stream.
const ATTACH_DEADLINE: Duration = Duration::from_secs(30);

/// Time between two looks at the room for the agent's state.
const STATE_CHECK: Duration = Duration::from_mins(1);
/// Shortest time between two renewals, even if the host's clock is wrong.
const RENEWAL_PAUSE: Duration = Duration::from_mins(1);
/// Certificates that became due while the coordinator was away are renewed over this time.
const RENEWAL_SPREAD: Duration = Duration::from_mins(10);

/// The reason for which the agent exits without a failure. The unit starts it again, and
/// [`crate::update::launch`] chooses the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A newer agent is to be tried.
    Updated,
    /// This agent was on trial and did not attach.
    GivenUp,
}

/// Keeps the installed system of `root` attached, by the agent of this version.
pub async fn run<S: System + Clone, N: Transport + NetworkObserver>(
    root: &Root,
    system: S,
    executor: Executor<S>,
    network: &N,
    version: Version,
) -> Result<ExitReason, Failure> {
    let settings = Settings::open(root)?;
    let directory = root.state().identity();
    let identity = Identity::load(&directory)?.ok_or_else(|| no_identity(&directory))?;
    if let Err(error) = live_boot::forget_live_boot(&root.state()) {
        tracing::warn!(%error, "cannot forget the live boot");
    }
    space::keep_ballast(&root.state());
    let orders = Mailbox::default();
    let (publish, progress) =
        watch::channel(Progress { newest: executor.newest_plan(), pending: None, is_idle: false });
    let mut link = Link {
        root,
        system,
        settings,
        network,
        identity,
        key_made_for: None,
        used_disks: None,
        orders: &orders,
        progress,
        awaits_worker: false,
        running: executor.running_step(),
        pace: Pace::default(),
        progress_pace: ProgressPace::default(),
        console: Console::new(root),
        rejection: Rejection::default(),
        doubts_kept: false,
        trial: NetworkTrial::new(root),
        updates: Updates::new(root, version),
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tokio::select! {
        never = worker::run_worker(executor, &orders, publish) => match never {},
        ended = link.keep_attached() => Ok(ended),
        never = notify_watchdog() => match never {},
    }
}

/// The persistent partition is empty or not mounted.
fn no_identity(directory: &Path) -> Failure {
    Failure::input_output(
        format!("this host has no identity key in {}", directory.display()),
        "mount the persistent partition there, or, if the key is lost, install the host as a new one (\"Wipe a disk\" in docs/operations.md)",
    )
}

/// Tells systemd's watchdog that the agent's one thread still runs.
async fn notify_watchdog() -> Infallible {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    loop {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        sleep(limit / 3).await;
    }
}

struct Link<'a, S, N> {
    root: &'a Root,
    system: S,
    settings: Settings,
    network: &'a N,
    identity: Identity,
    /// Id and generation of the clean for which a new key was made.
    key_made_for: Option<(String, u64)>,
    /// Disks with content when this stream began; `None` if the host carried a node.
    used_disks: Option<Vec<String>>,
    orders: &'a Mailbox,
    progress: watch::Receiver<Progress>,
    /// The pending report was sent. It must not be sent twice before the worker has noticed this.
    awaits_worker: bool,
    running: watch::Receiver<Option<StepProgress>>,
    pace: Pace,
    progress_pace: ProgressPace,
    console: Console,
    /// The coordinator's reaction to the certificate of the last connection.
    rejection: Rejection,
    /// The coordinator rejected the last certificate, because its clock or its authority differs.
    doubts_kept: bool,
    trial: NetworkTrial<'a>,
    updates: Updates<'a>,
}

/// The reason for which a connection is opened again without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReconnectReason {
    /// The host has another certificate.
    Certificate,
    /// The host has other settings.
    Settings,
    /// Another agent is to be started.
    Agent,
    /// The host states anew what it carries.
    Statement,
}

impl<S: System, N: Transport + NetworkObserver> Link<'_, S, N> {
    fn caller(&self) -> Caller<'_, N> {
        Caller { config: self.settings.config(), network: self.network, identity: &self.identity }
    }

    async fn keep_attached(&mut self) -> ExitReason {
        let mut backoff = Backoff::default();
        loop {
            let start = Instant::now();
            match self.attach_once().await {
                Ok(ReconnectReason::Agent) => return ExitReason::Updated,
                Ok(ReconnectReason::Certificate | ReconnectReason::Settings | ReconnectReason::Statement) => {
                }
                Err(error) => {
                    self.doubts_kept |= self.is_certificate_rejected(&error);
                    if error.refusal() == Some(Refusal::KeyReplaced)
                        && let Err(error) = self.identity.abandon_key()
                    {
                        self.console.print_failure(&error);
                    }
                    backoff.record_broken(start.elapsed());
                    let address = self.settings.config().address();
                    let failure = error.failure.clone().context(format_args!("not attached to {address}"));
                    self.console.print_failure(&failure);
                    if self.trial.is_over(&error, &mut self.console) {
                        self.trial.reboot(&self.system).await;
                    }
                    if self.updates.is_over(&error, &mut self.console) {
                        return ExitReason::GivenUp;
                    }
                    self.settings.record_failed();
                    backoff.wait().await;
                }
            }
        }
    }

    /// If the clock of the host is behind, an expired certificate looks valid here. A coordinator
    /// that is unreachable or restarting says nothing about a certificate.
    fn is_certificate_rejected(&self, error: &CallError) -> bool {
        error.answer == Answer::Unauthenticated
            || self.rejection.is_rejected()
            || error.refusal() == Some(Refusal::KeyReplaced)
    }

    async fn attach_once(&mut self) -> Result<ReconnectReason, CallError> {
        self.rejection = Rejection::default();
        let certificate = self.choose_certificate().await?;
        if certificate.role == Role::Live {
            return self.exchange_certificate().await;
        }
        let session = self.caller().open_session(&self.rejection).await?;
        let mut client = host_client(session.channel);
        let (outbound, messages) = mpsc::channel(QUEUE);
        let hello = HostMessage { message: Some(Message::Hello(self.build_hello().await?)) };
        // The channel is empty and has room.
        outbound.try_send(hello).map_err(|_| worker_stopped())?;
        let attach = client.attach(ReceiverStream::new(messages));
        let inbound = tokio::time::timeout(ATTACH_DEADLINE, attach)
            .await
            .map_err(|_elapsed| stream_closed())??
            .into_inner();
        self.root.record_attached();
        self.trial.keep_network();
        if let Err(error) = self.settings.record_attached() {
            tracing::warn!(%error, "cannot store the settings of the coordinator");
        }
        self.updates.record_attached();
        self.pace.attached(Instant::now());
        self.progress_pace.set_running(self.running.borrow_and_update().clone());
        self.console.print_message(&format!("attached to {}", self.settings.config().address()));
        let changes = self
            .network
            .watch()
            .inspect_err(
                |error| tracing::warn!(%error, "cannot watch the network, its changes are not reported"),
            )
            .ok()
            .flatten();
        let wait = self.identity.renewal_wait(&certificate, SystemTime::now());
        // A short life, as in tests, leaves less time for the spread.
        let spread = RENEWAL_SPREAD.min(certificate.life() / 60).mul_f64(draw_fraction());
        let renewal = Instant::now() + wait.max(RENEWAL_PAUSE + spread);
        let mut attached = Attached {
            client,
            exporter: session.exporter,
            inbound,
            outbound,
            changes,
            renewal,
            state_check: interval(STATE_CHECK),
            states_lost_journal: matches!(self.progress.borrow().newest, NewestPlan::Unknown(_)),
            observed: LastObserved::default(),
            duties: DutyLine::open(self.root),
            download: None,
        };
        attached.duties.report_state(self.root, &attached.outbound);
        loop {
            if let Some(again) = self.serve_stream(&mut attached).await? {
                return Ok(again);
            }
        }
    }

    async fn build_hello(&mut self) -> Result<Hello, CallError> {
        let newest = self.progress.borrow().newest.clone();
        let carried = carried::observe_carried(self.root, &newest);
        self.used_disks = match carried.node {
            None => Some(list_used_disks(self.root).await),
            Some(_) => None,
        };
        let (system, network) = self.observe_host(&newest).await?;
        Ok(Hello {
            facts: Some(facts::collect_facts(self.root, network.as_ref())),
            system: Some(system),
            agent_version: self.updates.version(),
            carried: Some(carried),
            settings: self.settings.config().checksum(),
            agent_update: Some(self.updates.state()),
            network,
        })
    }

    async fn observe_host(
        &self,
        newest: &NewestPlan,
    ) -> Result<(SystemState, Option<ObservedNetwork>), CallError> {
        let observed = own_kernel::observe_host(self.root, &self.system, self.network, newest).await;
        let (state, network) = observed.context("cannot read what this host runs")?;
        let (state_failure, left_behind) = (self.find_state_failure(), self.list_left_behind());
        Ok((SystemState { state_failure, left_behind, ..state }, network))
    }

    /// Data of former tenants; nothing while the host carries a node.
    fn list_left_behind(&self) -> Vec<String> {
        self.used_disks.as_ref().map_or_else(Vec::new, |disks| join_left(self.root, disks))
    }

    /// Cause and next action; empty if the state can be written.
    fn find_state_failure(&self) -> String {
        let failure = self.identity.write_failure().or_else(|| space::find_failure(&self.root.state()));
        failure.map(|failure| failure.to_string()).unwrap_or_default()
    }
}

/// The coordinator restarts, or another connection of this host took over.
fn stream_closed() -> CallError {
    CallError::answered("the coordinator closed the stream", "")
}

fn worker_stopped() -> Failure {
    Failure::input_output("the executor has stopped", "")
}
