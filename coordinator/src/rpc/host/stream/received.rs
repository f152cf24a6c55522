//! Messages from the host on the stream.

use coordinator_core::host::facts;
use proto::refusal::Refusal;
use proto::v1alpha1 as wire;
use tokio::time::Instant;
use wire::host_message;

use super::Attachment;
use crate::rpc::RpcError;
use crate::rpc::host::progress::RunningStep;
use crate::rpc::host::{reports, settings};
use crate::rpc::identity::Call;
use crate::telemetry::chain;

impl Attachment {
    fn take_token(&self, call: Call) -> Result<(), RpcError> {
        self.context.take_token(&self.peer().key, call)
    }

    pub(super) async fn handle_message(&mut self, message: wire::HostMessage) -> Result<(), RpcError> {
        self.take_token(Call::Message)?;
        match message.message {
            Some(host_message::Message::Acknowledgement(acknowledgement)) => {
                self.take_token(Call::Acknowledge)?;
                reports::record_acknowledgement(&self.context, &self.statement.peer, acknowledgement).await
            }
            Some(host_message::Message::Progress(_)) if self.take_token(Call::ReportProgress).is_err() => {
                Ok(())
            }
            Some(host_message::Message::Progress(progress)) => {
                let key = &self.peer().key;
                let plan = self.context.running_plans.find_plan(key, &progress.plan_id, progress.generation);
                if plan.is_some() {
                    self.progress.note_progress(progress, Instant::now());
                }
                Ok(())
            }
            Some(host_message::Message::LoadBalancer(state)) => {
                self.take_token(Call::Acknowledge)?;
                reports::record_load_balancer(&self.context, &self.statement.peer, &state).await
            }
            Some(host_message::Message::SettingsRefusal(refusal)) => {
                self.take_token(Call::Acknowledge)?;
                settings::record_refusal(&self.context, &self.statement, refusal).await
            }
            Some(host_message::Message::AgentUpdate(state)) => {
                self.take_token(Call::Acknowledge)?;
                self.agent_updates.note_state(state);
                Ok(())
            }
            Some(host_message::Message::Hello(_)) => {
                let detail = "a stream has one Hello";
                Err(RpcError::from_refusal(Refusal::BadRequest, detail))
            }
            // A message of a newer agent.
            None => Ok(()),
        }
    }

    /// Records a step that runs for long. A failure is left to the next report.
    pub(super) async fn record_progress(&mut self) {
        let Some(step) = self.progress.take_due(Instant::now()) else { return };
        let (peer, plans) = (&self.statement.peer, &self.context.running_plans);
        let plan = plans.find_plan(&peer.key, &step.plan_id, step.generation);
        let Some(plan) = plan.filter(|_| !plans.is_reported(&peer.key, step.step)) else {
            return self.progress.clear_step();
        };
        let RunningStep { step, attempt, last_failure, .. } = step;
        let written = async {
            let inventory = self.context.find_inventory(peer).await?;
            let index = usize::try_from(step).unwrap_or(usize::MAX);
            let written = self.context.update_status(inventory, |status| {
                facts::record_step(status, &plan.plan, index, attempt, &last_failure);
            });
            written.await
        };
        if let Err(error) = written.await {
            tracing::debug!(error = chain(&error), "cannot record the running step");
        }
    }
}
