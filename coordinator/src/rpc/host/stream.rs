//! The stream of a host. It sends the announced plan and each later one, and keeps the stored session
//! and statement of the host up to date.

mod received;

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::{
    CoordinatorSettingsState, LoadBalancerDuty, MachineInventory, SessionStatus,
};
use coordinator_core::host::{AnnouncedPlan, facts};
use coordinator_core::ids::Uid;
use coordinator_core::load_balancer::message_of;
use coordinator_core::problem::Problem;
use coordinator_core::retry::failure_backoff;
use coordinator_core::trace::TraceId;
use futures::stream::{BoxStream, StreamExt as _};
use proto::plan::Checksum;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;
use tracing::Instrument as _;
use wire::coordinator_message;

use super::agent_update::AgentUpdates;
use super::attach::{self, Messages, OpenSession};
use super::progress::StepProgress;
use super::settings;
use super::statement::Statement;
use crate::ca::Peer;
use crate::lease::replica::ReplicaLife;
use crate::rpc::plan_notifications::{HostState, Subscription};
use crate::rpc::running_plans::{PlanReadError, read_plan};
use crate::rpc::sessions::SessionGuard;
use crate::rpc::{Context, RpcError};
use crate::telemetry::chain;

/// The longest pause before an unusable plan Secret is read again. It is read again, because no watch
/// shows that the Secret was restored.
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// Number of reads of a Secret that is ahead of its announcement before the difference is a problem.
const ANNOUNCEMENT_READS: u32 = 3;

/// Runs the stream. Every error ends it with a status.
pub(super) fn open_stream(
    context: Context,
    peer: Peer,
    mut messages: Messages,
) -> BoxStream<'static, Result<wire::CoordinatorMessage, Status>> {
    let span = tracing::info_span!(
        "host_stream",
        namespace = peer.key.namespace.as_str(),
        name = peer.name_hint,
        serial = peer.serial
    );
    let stream = async_stream::stream! {
        // Boxed, like the parts of `next_message` that wait for the API server, because the future of
        // the stream holds memory for everything else as long as the host is attached.
        let opened = Box::pin(attach::open_session(&context, peer, &mut messages));
        let opened = opened.instrument(span.clone()).await;
        let mut attachment = match span.in_scope(|| context.to_status(opened)) {
            Ok(session) => span.in_scope(|| Attachment::new(context.clone(), session)),
            Err(status) => {
                yield Err(status);
                return;
            }
        };
        loop {
            match attachment.next_message(&mut messages).instrument(span.clone()).await {
                Ok(Some(message)) => yield Ok(message),
                Ok(None) => return,
                Err(error) => {
                    let ended: Result<(), _> = span.in_scope(|| context.to_status(Err(error)));
                    if let Err(status) = ended {
                        yield Err(status);
                    }
                    return;
                }
            }
        }
    };
    stream.boxed()
}

/// A host on its stream.
struct Attachment {
    context: Context,
    statement: Statement,
    guard: SessionGuard,
    state: Subscription,
    /// The inventory that has the session.
    uid: Option<Uid>,
    stale: Option<StaleSession>,
    /// The plan that was sent last.
    sent: Option<Checksum>,
    /// The duty for the load balancer that was sent last.
    sent_duty: Option<LoadBalancerDuty>,
    /// The host was asked to end its boot, and has a single boot on this stream.
    has_sent_reboot: bool,
    /// The host was asked to remove its journal, and states a single journal on this stream.
    has_forgotten_journal: bool,
    /// Marked when a registration has another token.
    registrations: watch::Receiver<()>,
    /// Checksum of the settings that were sent last, or that the host stated.
    settings: String,
    /// The status has the state of the settings.
    shows_settings: bool,
    agent_updates: AgentUpdates,
    retry: Option<Retry>,
    progress: StepProgress,
    deleted_at: Option<Instant>,
    expires_at: Instant,
}

/// The session that the caches may show until they have the session of the stream.
struct StaleSession(Option<SessionStatus>);

/// Time at which the record of a plan is read again.
struct Retry {
    checksum: Checksum,
    at: Instant,
    attempt: u32,
}

impl Attachment {
    fn new(context: Context, session: OpenSession) -> Self {
        let OpenSession { statement, guard, inventory, former } = session;
        tracing::info!(boot_id = statement.boot_id(), "host attached");
        let left = statement.peer.not_after.duration_since(context.now());
        let left = Duration::try_from(left).unwrap_or(Duration::ZERO);
        Self {
            state: context.caches.notifications.subscribe(&statement.peer.key, &inventory),
            uid: attach::uid_of(&inventory),
            stale: Some(StaleSession(former)),
            sent: None,
            sent_duty: None,
            has_sent_reboot: false,
            has_forgotten_journal: false,
            registrations: context.caches.tokens.subscribe(),
            settings: statement.stated.settings.clone(),
            shows_settings: settings::find_shown(&inventory).is_some(),
            agent_updates: AgentUpdates::new(&statement),
            retry: None,
            progress: StepProgress::new(context.timing),
            deleted_at: None,
            expires_at: Instant::now() + left,
            context,
            statement,
            guard,
        }
    }

    fn peer(&self) -> &Peer {
        &self.statement.peer
    }

    /// The next message for the host; `None` if the host closed the stream.
    async fn next_message(
        &mut self,
        messages: &mut Messages,
    ) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        loop {
            if let Some(message) = Box::pin(self.follow_state()).await? {
                return Ok(Some(message));
            }
            self.check_deadlines()?;
            Box::pin(self.record_progress()).await;
            let wake = self.next_wake();
            let handled = tokio::select! {
                () = self.state.wait_changed() => continue,
                Ok(()) = self.registrations.changed() => continue,
                reason = self.guard.wait_closed() => return Err(attach::close_error(reason, self.peer())),
                () = self.agent_updates.wait_turn(&self.context.agent) => continue,
                () = tokio::time::sleep_until(wake) => continue,
                message = messages.message() => match message {
                    Ok(Some(message)) => Box::pin(self.handle_message(message)),
                    Ok(None) | Err(_) => return Ok(None),
                },
            };
            handled.await?;
        }
    }

    fn next_wake(&self) -> Instant {
        // No plan is read while the inventory is deleted.
        let retry = self.retry.as_ref().filter(|_| self.deleted_at.is_none()).map(|retry| retry.at);
        let deleted = self.deleted_at.map(|at| at + self.context.timing.deletion_grace);
        let turn = self.agent_updates.due_at().filter(|_| self.deleted_at.is_none());
        [retry, deleted, turn, self.progress.due_at()]
            .into_iter()
            .flatten()
            .fold(self.expires_at, Instant::min)
    }

    fn check_deadlines(&self) -> Result<(), RpcError> {
        let now = Instant::now();
        if now >= self.expires_at {
            return Err(RpcError::CertificateExpired);
        }
        if self.deleted_at.is_some_and(|at| now >= at + self.context.timing.deletion_grace) {
            return Err(RpcError::from_refusal(Refusal::InventoryGone, self.peer().name_hint.clone()));
        }
        Ok(())
    }

    /// Follows the newest state of the inventory, and returns the message that is due.
    async fn follow_state(&mut self) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        let state = &self.state.latest_state();
        if let Some(refusal) = state.refusal_of(self.peer().shown_key()) {
            return Err(RpcError::from_refusal(refusal, self.peer().name_hint.clone()));
        }
        if state.is_deleted {
            if self.deleted_at.is_none() {
                self.deleted_at = Some(Instant::now());
                tracing::warn!("inventory deleted, the stream ends unless it is recreated");
            }
            return Ok(None);
        }
        self.deleted_at = None;
        self.keep_session(state).await?;
        if let Some(message) = self.next_duty_message(state) {
            return Ok(Some(message));
        }
        if let Some(message) = self.next_journal_message(state) {
            return Ok(Some(message));
        }
        if let Some(message) = self.next_settings_message().await? {
            return Ok(Some(message));
        }
        let peer = &self.statement.peer;
        if let Some(message) = self.agent_updates.next_message(&self.context, peer, state).await? {
            return Ok(Some(message));
        }
        let Some(plan) = &state.plan else {
            self.retry = None;
            return Ok(self.next_reboot_message(state));
        };
        self.next_plan_message(plan).await
    }

    fn is_own(&self, session: Option<&SessionStatus>) -> bool {
        attach::is_own(&self.context, &self.statement, session)
    }

    /// Ends the stream if the inventory lost the session, for example by a restore, so that the host
    /// attaches again and states the node that it carries now. Ends the stream also if another stream
    /// has taken over.
    async fn keep_session(&mut self, state: &HostState) -> Result<(), RpcError> {
        if state.uid == self.uid {
            if self.is_own(state.session.as_ref()) {
                self.stale = None;
                return Ok(());
            }
            if self.stale.as_ref().is_some_and(|stale| stale.0 == state.session) {
                return Ok(());
            }
        }
        // The API server decides, because the caches may be behind.
        let live = match self.context.read_inventory(self.peer()).await {
            Ok(live) => live,
            // The event of the deletion is on its way.
            Err(error) if error.is_inventory_gone() => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.is_own(attach::session_of(&live)) {
            let other = attach::session_of(&live).filter(|session| session.ended.is_none());
            let taken = other
                .is_some_and(|session| (self.context.replica.life_of)(&session.replica) != ReplicaLife::Dead);
            return Err(if taken { RpcError::Replaced } else { RpcError::SessionLost });
        }
        self.uid = attach::uid_of(&live);
        self.stale = Some(StaleSession(state.session.clone()));
        Ok(())
    }

    /// The duty for the load balancer, unless it was sent on this stream. A host may get a duty again,
    /// because it keeps the newer of two.
    fn next_duty_message(&mut self, state: &HostState) -> Option<wire::CoordinatorMessage> {
        let duty = state.duty.as_ref().filter(|duty| self.sent_duty.as_ref() != Some(*duty))?;
        self.sent_duty = Some(duty.clone());
        let message = coordinator_message::Message::LoadBalancer(message_of(duty)?);
        tracing::info!(generation = duty.generation, "sending the duty for the load balancer");
        Some(wire::CoordinatorMessage { message: Some(message) })
    }

    /// The request to remove the stated journal, unless it was sent.
    fn next_journal_message(&mut self, state: &HostState) -> Option<wire::CoordinatorMessage> {
        let stated = self.statement.stated.carried.lost_journal.as_ref()?;
        let checksum = state.forgotten_journal.clone().filter(|checksum| *checksum == stated.checksum)?;
        if std::mem::replace(&mut self.has_forgotten_journal, true) {
            return None;
        }
        tracing::info!(checksum, "asking the host to remove its journal");
        let message = coordinator_message::Message::ForgetJournal(wire::ForgetJournal { checksum });
        Some(wire::CoordinatorMessage { message: Some(message) })
    }

    /// The request of a reboot that ends this boot, unless it was sent. It comes after the plan in
    /// flight.
    fn next_reboot_message(&mut self, state: &HostState) -> Option<wire::CoordinatorMessage> {
        let boot_id = state.rebooting_from.clone()?;
        if self.has_sent_reboot || boot_id != self.statement.boot_id() {
            return None;
        }
        self.has_sent_reboot = true;
        tracing::info!(boot_id, "asking the host to reboot");
        let message = coordinator_message::Message::Reboot(wire::RebootRequest { boot_id });
        Some(wire::CoordinatorMessage { message: Some(message) })
    }

    /// The settings of the coordinator, if the host has other ones. An agent that states no settings
    /// would not understand the message.
    async fn next_settings_message(&mut self) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        let inventory = self.context.cached_inventory(&self.peer().key);
        let wanted = inventory.and_then(|inventory| settings::find_wanted(&self.context, &inventory));
        let Some(wanted) = wanted.filter(|_| !self.settings.is_empty()) else { return Ok(None) };
        let checksum = settings::checksum(&wanted);
        if checksum == self.settings {
            // The registration was not ready when the host attached, as during a restore.
            if !self.shows_settings {
                let current = CoordinatorSettingsState::Current;
                settings::record(&self.context, &self.statement, current, "").await?;
                self.shows_settings = true;
            }
            return Ok(None);
        }
        self.settings = checksum;
        let announced = CoordinatorSettingsState::Announced;
        settings::record(&self.context, &self.statement, announced, "").await?;
        self.shows_settings = true;
        tracing::info!("sending the settings of the coordinator");
        let message = coordinator_message::Message::Settings(wanted);
        Ok(Some(wire::CoordinatorMessage { message: Some(message) }))
    }

    /// The plan in flight, unless it was sent.
    async fn next_plan_message(
        &mut self,
        announced: &AnnouncedPlan,
    ) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        self.retry.take_if(|retry| retry.checksum != announced.checksum);
        if self.sent.as_ref() == Some(&announced.checksum) {
            if announced.problem.is_some() {
                self.record_problem(None).await?;
            }
            return Ok(None);
        }
        if self.retry.as_ref().is_some_and(|retry| Instant::now() < retry.at) {
            return Ok(None);
        }
        let attempt = self.retry.take().map_or(1, |retry| retry.attempt.saturating_add(1));
        let secrets = self.context.secret_api(&self.peer().key.namespace);
        let inventory = self.context.cached_inventory(&self.peer().key);
        match read_plan(&secrets, announced, inventory.as_deref()).await {
            Ok(verified) => {
                let message = coordinator_message::Message::Plan((&verified.plan).into());
                self.sent = Some(announced.checksum.clone());
                let claim = inventory.as_deref().and_then(MachineInventory::claim);
                let trace_id = claim.as_ref().and_then(TraceId::of_claim).map(tracing::field::display);
                tracing::info!(plan = %announced.id, generation = %announced.generation, trace_id, "sending plan");
                self.context.step_times.note_sent(&self.peer().key, &announced.checksum, Instant::now());
                self.context.running_plans.insert_plan(&self.statement.peer.key, Arc::new(verified));
                if announced.problem.is_some() {
                    self.record_problem(None).await?;
                }
                return Ok(Some(wire::CoordinatorMessage { message: Some(message) }));
            }
            Err(PlanReadError::Store(error)) => {
                tracing::warn!(error = chain(&error), attempt, "cannot read the plan record, retrying");
            }
            // The announcement follows, because the Secret is written before it.
            Err(PlanReadError::Newer(_)) if attempt <= ANNOUNCEMENT_READS => {}
            Err(PlanReadError::Newer(problem) | PlanReadError::Unusable(problem)) => {
                tracing::warn!(plan = %announced.id, cause = problem.text(), attempt, "cannot send the plan");
                self.record_problem(Some(problem)).await?;
            }
        }
        let at = Instant::now() + failure_backoff(attempt).min(LONGEST_RETRY);
        self.retry = Some(Retry { checksum: announced.checksum.clone(), at, attempt });
        Ok(None)
    }

    async fn record_problem(&self, problem: Option<Problem>) -> Result<(), RpcError> {
        let inventory = match self.context.find_inventory(self.peer()).await {
            Err(error) if error.is_inventory_gone() => return Ok(()),
            read => read?,
        };
        let written = self
            .context
            .update_status(inventory, |status| facts::record_plan_problem(status, problem.as_ref()));
        written.await.map(drop)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.guard.close_session() {
            return;
        }
        self.context.running_plans.remove_plan(&self.statement.peer.key);
        let peer = &self.statement.peer;
        attach::schedule_session_end(&self.context, &peer.key, &peer.name_hint);
    }
}
