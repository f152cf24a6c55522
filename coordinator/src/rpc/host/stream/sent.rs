//! Messages to the host on the stream.

use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::{CoordinatorSettingsState, MachineInventory};
use coordinator_core::host::{AnnouncedPlan, facts};
use coordinator_core::load_balancer::message_of;
use coordinator_core::problem::Problem;
use coordinator_core::retry::failure_backoff;
use coordinator_core::trace::TraceId;
use proto::v1alpha1 as wire;
use tokio::time::Instant;
use wire::coordinator_message;

use super::{Attachment, Retry};
use crate::rpc::RpcError;
use crate::rpc::host::settings;
use crate::rpc::plan_notifications::HostState;
use crate::rpc::running_plans::{PlanReadError, read_plan};
use crate::telemetry::chain;

/// The longest pause before an unusable plan Secret is read again. It is read again, because no watch
/// shows that the Secret was restored.
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// Number of reads of a Secret that is ahead of its announcement before the difference is a problem.
const ANNOUNCEMENT_READS: u32 = 3;

impl Attachment {
    /// The duty for the load balancer, unless it was sent on this stream. A host may get a duty again,
    /// because it keeps the newer of two.
    pub(super) fn next_duty_message(&mut self, state: &HostState) -> Option<wire::CoordinatorMessage> {
        let duty = state.duty.as_ref().filter(|duty| self.sent_duty.as_ref() != Some(*duty))?;
        self.sent_duty = Some(duty.clone());
        let message = coordinator_message::Message::LoadBalancer(message_of(duty)?);
        tracing::info!(generation = duty.generation, "sending the duty for the load balancer");
        Some(wire::CoordinatorMessage { message: Some(message) })
    }

    /// The request of a reboot that ends this boot, unless it was sent. It comes after the plan in
    /// flight.
    pub(super) fn next_reboot_message(&mut self, state: &HostState) -> Option<wire::CoordinatorMessage> {
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
    pub(super) async fn next_settings_message(
        &mut self,
    ) -> Result<Option<wire::CoordinatorMessage>, RpcError> {
        let inventory = self.context.cached_inventory(&self.peer().key);
        let wanted = inventory.and_then(|inventory| settings::find_wanted(&self.context, &inventory));
        let Some(wanted) = wanted.filter(|_| !self.settings.is_empty()) else { return Ok(None) };
        let checksum = settings::checksum(&wanted);
        if checksum == self.settings {
            return Ok(None);
        }
        self.settings = checksum;
        let announced = CoordinatorSettingsState::Announced;
        settings::record(&self.context, &self.statement, announced, "").await?;
        tracing::info!("sending the settings of the coordinator");
        let message = coordinator_message::Message::Settings(wanted);
        Ok(Some(wire::CoordinatorMessage { message: Some(message) }))
    }

    /// The plan in flight, unless it was sent.
    pub(super) async fn next_plan_message(
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
