//! Announces another agent to a host on its stream, if an operator asks for it, the host is idle, and
//! few other hosts are updated at the time.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::explain::EventReason;
use coordinator_api::inventory::{AgentUpdateState, AgentUpdateStatus};
use coordinator_core::host::agent_update::{Decision, Situation, decide};
use coordinator_core::host::facts;
use coordinator_core::host::statement::StatedUpdate;
use proto::v1alpha1 as wire;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use wire::coordinator_message;

use super::statement::Statement;
use crate::agent_file::AgentFile;
use crate::ca::Peer;
use crate::rpc::plan_notifications::HostState;
use crate::rpc::{Context, RpcError};

/// Number of hosts of a replica that are updated at a time.
const TURNS: usize = 8;
/// Time after which the next host is updated.
const TURN: Duration = Duration::from_mins(5);

/// The agent that this replica serves, with the turns of the hosts.
#[derive(Clone)]
pub(in crate::rpc) struct ServedAgent {
    file: Option<Arc<AgentFile>>,
    turns: Arc<Semaphore>,
}

impl Default for ServedAgent {
    fn default() -> Self {
        Self { file: None, turns: Arc::new(Semaphore::new(TURNS)) }
    }
}

impl ServedAgent {
    pub(in crate::rpc) fn of_file(file: Option<Arc<AgentFile>>) -> Self {
        Self { file, ..Self::default() }
    }
}

enum Turn {
    Free,
    Awaited,
    Held { _permit: OwnedSemaphorePermit, until: Instant },
}

/// The agent update of a host, on its stream.
pub(super) struct AgentUpdates {
    stated: Option<StatedUpdate>,
    runs: String,
    shown: Option<AgentUpdateStatus>,
    /// Version that was announced on this stream.
    sent: Option<String>,
    turn: Turn,
}

impl AgentUpdates {
    pub(super) fn new(statement: &Statement) -> Self {
        let (stated, runs) = (statement.stated.agent_update.clone(), statement.stated.agent_version.clone());
        Self { stated, runs, shown: None, sent: None, turn: Turn::Free }
    }

    /// The message that is due after a change of the host's state.
    pub(super) async fn next_message(
        &mut self,
        context: &Context,
        peer: &Peer,
        state: &HostState,
    ) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        self.end_turn(Instant::now());
        let served = context.agent.file.as_ref().map(|file| file.announcement());
        let situation = Situation {
            wanted: state.wanted_agent.as_deref(),
            served: served.map(|served| served.version.as_str()),
            runs: &self.runs,
            stated: self.stated.as_ref(),
            is_busy: state.plan.is_some(),
        };
        match decide(&situation) {
            Decision::Nothing if situation.wanted.is_none() && self.sent.is_some() => {
                Ok(Some(self.confirm()))
            }
            Decision::Nothing => {
                self.turn = Turn::Free;
                Ok(None)
            }
            Decision::Confirm => Ok(Some(self.confirm())),
            Decision::Show(status) => {
                self.turn = Turn::Free;
                self.show(context, peer, status).await.map(|()| None)
            }
            Decision::Announce(status) if self.sent.as_deref() == Some(&status.version) => {
                self.show(context, peer, status).await.map(|()| None)
            }
            Decision::Announce(status) => {
                let Some(announcement) = served.cloned() else { return Ok(None) };
                if !self.take_turn(&context.agent.turns) {
                    let message = "other hosts are updated first".to_owned();
                    let waiting = AgentUpdateStatus { state: AgentUpdateState::Waiting, message, ..status };
                    return self.show(context, peer, waiting).await.map(|()| None);
                }
                self.sent = Some(status.version.clone());
                self.show(context, peer, status).await?;
                tracing::info!(version = announcement.version, "announcing another agent");
                Ok(Some(message_of(announcement)))
            }
        }
    }

    fn confirm(&mut self) -> wire::CoordinatorMessage {
        (self.sent, self.turn) = (None, Turn::Free);
        if let Some(stated) = &mut self.stated {
            *stated = StatedUpdate::default();
        }
        message_of(wire::AgentUpdate::default())
    }

    fn take_turn(&mut self, turns: &Arc<Semaphore>) -> bool {
        if matches!(self.turn, Turn::Held { .. }) {
            return true;
        }
        self.turn = match turns.clone().try_acquire_owned() {
            Ok(permit) => Turn::Held { _permit: permit, until: Instant::now() + TURN },
            Err(_) => Turn::Awaited,
        };
        matches!(self.turn, Turn::Held { .. })
    }

    fn end_turn(&mut self, now: Instant) {
        if matches!(self.turn, Turn::Held { until, .. } if now >= until) {
            self.turn = Turn::Free;
        }
    }

    pub(super) fn due_at(&self) -> Option<Instant> {
        match &self.turn {
            Turn::Held { until, .. } => Some(*until),
            Turn::Free | Turn::Awaited => None,
        }
    }

    /// Returns when the host gets its turn; never returns if it does not wait for one.
    pub(super) async fn wait_turn(&mut self, served: &ServedAgent) {
        if matches!(self.turn, Turn::Awaited)
            && let Ok(permit) = served.turns.clone().acquire_owned().await
        {
            self.turn = Turn::Held { _permit: permit, until: Instant::now() + TURN };
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Records that the host did not take the agent.
    pub(super) fn note_state(&mut self, state: wire::AgentUpdateState) {
        let stated = StatedUpdate::parse(state);
        tracing::warn!(failed = ?stated.failed, "host refused the agent");
        (self.stated, self.sent, self.turn) = (Some(stated), None, Turn::Free);
    }

    async fn show(
        &mut self,
        context: &Context,
        peer: &Peer,
        status: AgentUpdateStatus,
    ) -> Result<(), RpcError> {
        if self.shown.as_ref() == Some(&status) {
            return Ok(());
        }
        let inventory = match context.find_inventory(peer).await {
            Err(error) if error.is_inventory_gone() => return Ok(()),
            read => read?,
        };
        let mut stored = inventory.status.clone().unwrap_or_default();
        let former = stored.host.as_ref().and_then(|host| host.agent_update.clone());
        facts::record_agent_update(&mut stored, &status);
        let is_new = stored.host.and_then(|host| host.agent_update) != former;
        let written = context.update_status(inventory, |stored| facts::record_agent_update(stored, &status));
        let inventory = written.await?;
        if is_new && status.state == AgentUpdateState::Failed {
            let note = format!("agent {}: {}", status.version, status.message);
            context.events.publish(&*inventory, EventReason::AgentUpdateFailed, &note);
        }
        self.shown = Some(status);
        Ok(())
    }
}

fn message_of(update: wire::AgentUpdate) -> wire::CoordinatorMessage {
    wire::CoordinatorMessage { message: Some(coordinator_message::Message::AgentUpdate(update)) }
}

/// A part of the agent, for a host to which it was announced.
pub(super) async fn read_part(
    context: &Context,
    peer: &Peer,
    request: wire::ReadAgentRequest,
) -> Result<wire::ReadAgentResponse, RpcError> {
    context.find_inventory(peer).await?;
    let file = context.agent.file.as_ref();
    let file = file.filter(|file| file.announcement().checksum == request.checksum);
    let file = file.ok_or(RpcError::AgentReplaced)?;
    Ok(wire::ReadAgentResponse { data: file.read_part(request.offset).to_vec() })
}
