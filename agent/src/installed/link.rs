//! The installed system: always attached to the coordinator, with pauses.
//!
//! One connection after the other: each begins with a valid certificate,
//! sends Hello, takes plans, and reports outcomes and the network until it breaks.
//! Steps run concurrently ([`worker`]).

mod certificate;
mod stream;

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{Hello, HostMessage, StepProgress, SystemState};
use semver::Version;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use stream::Attached;

use super::duties::DutyLine;
use super::error::{LinkError, RunError};
use super::mailbox::Mailbox;
use super::network_trial::NetworkTrial;
use super::pace::{LastObserved, Pace, ProgressPace};
use super::settings::Settings;
use super::updates::Updates;
use super::worker::Progress;
use super::{carried, worker};
use crate::client::calls::{CallError, Caller};
use crate::client::rejection::Rejection;
use crate::client::transport::Transport;
use crate::ground::backoff::Backoff;
use crate::ground::error::explain;
use crate::ground::paths::Root;
use crate::host::facts;
use crate::host::network::NetworkObserver;
use crate::host::system::System;
use crate::identity::{Identity, Role};
use crate::plan::executor::Executor;
use crate::state::live_boot;
use crate::state::message::Console;

/// Messages that may wait for a slow coordinator.
const QUEUE: usize = 16;
/// How long the coordinator may take to open the stream.
const ATTACH_DEADLINE: Duration = Duration::from_secs(30);

/// Shortest time between two renewals, also on a host whose clock is wrong.
const RENEWAL_PAUSE: Duration = Duration::from_mins(1);

/// Why the agent ends although nothing is wrong: whatever starts it lets
/// [`crate::update::launch`] choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A newer agent is to be tried.
    Updated,
    /// This one was on trial and did not attach.
    GivenUp,
}

/// Keeps the installed system of `root` attached, by the agent of this version.
///
/// # Errors
/// [`RunError`] when it cannot begin.
pub async fn run<S: System + Clone, N: Transport + NetworkObserver>(
    root: &Root,
    system: S,
    executor: Executor<S>,
    network: &N,
    version: Version,
) -> Result<Ended, RunError> {
    let settings = Settings::open(root)?;
    let directory = root.state().identity();
    let identity = Identity::load(&directory)?
        .ok_or_else(|| RunError::NoIdentity { directory: directory.display().to_string() })?;
    live_boot::forget_live_boot(&root.state())?;
    let orders = Mailbox::default();
    let (publish, progress) =
        watch::channel(Progress { newest: executor.newest_plan(), pending: None, is_idle: false });
    let mut link = Link {
        root,
        system,
        settings,
        network,
        identity: &identity,
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

/// Tells systemd, where it asks, that the agent's one thread still turns.
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
    identity: &'a Identity,
    orders: &'a Mailbox,
    progress: watch::Receiver<Progress>,
    /// The pending report went out: it must not go out twice before the worker
    /// has seen that.
    awaits_worker: bool,
    running: watch::Receiver<Option<StepProgress>>,
    pace: Pace,
    progress_pace: ProgressPace,
    console: Console,
    /// What the coordinator made of the certificate of the last connection.
    rejection: Rejection,
    /// It rejected the last one: its clock or its authority is another one.
    doubts_kept: bool,
    trial: NetworkTrial<'a>,
    updates: Updates<'a>,
}

/// Why a connection was ended on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// There is another certificate to call with.
    Certificate,
    /// There are other settings to connect by.
    Settings,
    /// There is another agent to start.
    Agent,
}

impl<S: System, N: Transport + NetworkObserver> Link<'_, S, N> {
    fn caller(&self) -> Caller<'_, N> {
        Caller { config: self.settings.config(), network: self.network, identity: self.identity }
    }

    async fn keep_attached(&mut self) -> Ended {
        let mut backoff = Backoff::default();
        loop {
            let start = Instant::now();
            match self.attach_once().await {
                Ok(Again::Agent) => return Ended::Updated,
                Ok(Again::Certificate | Again::Settings) => {}
                Err(error) => {
                    self.doubts_kept |= self.is_certificate_rejected(&error);
                    backoff.note_broken(start.elapsed());
                    self.console.print_message(&format!(
                        "not attached to {}: {}",
                        self.settings.config().address(),
                        explain(&error)
                    ));
                    if self.trial.is_over(&error, &mut self.console) {
                        self.trial.reboot(&self.system).await;
                    }
                    if self.updates.is_over(&error, &mut self.console) {
                        return Ended::GivenUp;
                    }
                    self.settings.note_failed();
                    backoff.wait().await;
                }
            }
        }
    }

    /// With a clock that is behind, an expired certificate looks valid here. A
    /// coordinator that is away or restarts says nothing about a certificate.
    fn is_certificate_rejected(&self, error: &LinkError) -> bool {
        let unauthenticated =
            matches!(error, LinkError::Call(CallError::Failed { code: Code::Unauthenticated, .. }));
        unauthenticated || self.rejection.is_rejected()
    }

    async fn attach_once(&mut self) -> Result<Again, LinkError> {
        self.rejection = Rejection::default();
        let certificate = self.choose_certificate().await?;
        if certificate.role == Role::Live {
            return self.exchange_certificate().await;
        }
        let mut client = self.caller().connect_host(&self.rejection).await?;
        let (outbound, messages) = mpsc::channel(QUEUE);
        let hello = HostMessage { message: Some(Message::Hello(self.build_hello().await?)) };
        // The channel is empty and has room.
        outbound.try_send(hello).map_err(|_| LinkError::Worker)?;
        let attach = client.attach(ReceiverStream::new(messages));
        let inbound = tokio::time::timeout(ATTACH_DEADLINE, attach)
            .await
            .map_err(|_elapsed| LinkError::Closed)??
            .into_inner();
        self.root.note_attached();
        self.trial.keep_network();
        if let Err(error) = self.settings.note_attached() {
            tracing::warn!(error = explain(&error), "settings of the coordinator are not kept");
        }
        self.updates.note_attached();
        self.pace.attached(Instant::now());
        self.progress_pace.set_running(self.running.borrow_and_update().clone());
        self.console.print_message(&format!("attached to {}", self.settings.config().address()));
        let changes = self
            .network
            .watch()
            .inspect_err(|error| tracing::warn!(%error, "changes of the network are not reported"))
            .unwrap_or_default();
        let wait = self.identity.renewal_wait(&certificate, SystemTime::now());
        let renewal = Instant::now() + wait.max(RENEWAL_PAUSE);
        let mut attached = Attached {
            client,
            inbound,
            outbound,
            changes,
            renewal,
            observed: LastObserved::default(),
            duties: DutyLine::open(self.root),
            reading: None,
        };
        attached.duties.report_state(self.root, &attached.outbound);
        loop {
            if let Some(again) = self.serve_stream(&mut attached).await? {
                return Ok(again);
            }
        }
    }

    async fn build_hello(&self) -> Result<Hello, LinkError> {
        let newest = self.progress.borrow().newest.clone();
        let network = self.network.observe().ok();
        Ok(Hello {
            facts: Some(facts::collect_facts(self.root, network.as_ref())),
            system: Some(self.read_state().await?),
            agent_version: self.updates.version(),
            carried: Some(carried::observe_carried(self.root, &newest)),
            settings: self.settings.config().checksum(),
            agent_update: Some(self.updates.state()),
            network,
        })
    }

    async fn read_state(&self) -> Result<SystemState, LinkError> {
        Ok(self.system.running().await?)
    }
}
