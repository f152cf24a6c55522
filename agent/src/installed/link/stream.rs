//! An open stream: receives plans and sends reports.

use std::io;

use proto::proof::Exporter;
use proto::refusal::Refusal;
use proto::v1alpha1::coordinator_message;
use proto::v1alpha1::host_client::HostClient;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{
    CoordinatorMessage, CoordinatorSettings, FailureReason, HostMessage, ObservedReport, SettingsRefusal,
    StepReport,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, sleep_until};
use tonic::Streaming;
use tonic::transport::Channel;

use super::{Link, RENEWAL_PAUSE, ReconnectReason, stream_closed, worker_stopped};
use crate::client::calls::{host_client, unary_request};
use crate::client::error::CallError;
use crate::client::transport::Transport;
use crate::host::network::NetworkObserver;
use crate::host::network::changes::NetworkChanges;
use crate::host::system::System;
use crate::installed::duties::DutyLine;
use crate::installed::pace::LastObserved;
use crate::installed::updates::BinaryDownload;
use crate::installed::worker::Order;
use crate::plan::executor::NewestPlan;
use crate::state::space;

pub(super) struct Attached {
    pub(super) client: HostClient<Channel>,
    /// Keying material of the connection.
    pub(super) exporter: Exporter,
    pub(super) inbound: Streaming<CoordinatorMessage>,
    pub(super) outbound: mpsc::Sender<HostMessage>,
    pub(super) changes: Option<NetworkChanges>,
    pub(super) renewal: Instant,
    pub(super) state_check: Interval,
    /// Hello says that the journal cannot be read.
    pub(super) states_lost_journal: bool,
    pub(super) observed: LastObserved,
    pub(super) duties: DutyLine,
    pub(super) download: Option<BinaryDownload>,
}

impl<S: System, N: Transport + NetworkObserver> Link<'_, S, N> {
    /// Handles the next event, one at a time.
    pub(super) async fn serve_stream(
        &mut self,
        attached: &mut Attached,
    ) -> Result<Option<ReconnectReason>, CallError> {
        if !self.awaits_worker {
            let pending = self.progress.borrow_and_update().pending.clone();
            if let Some(report) = pending {
                return self.report_pending(attached, report).await;
            }
        }
        if self.may_switch() {
            if self.updates.switch(&attached.outbound) {
                tracing::info!("another agent was downloaded, exiting to try it");
                return Ok(Some(ReconnectReason::Agent));
            }
            self.updates.poll_offer(&mut attached.download, &attached.client);
        }
        let due = self.pace.due();
        let proof_due = self.updates.proof_due();
        tokio::select! {
            message = attached.inbound.message() => {
                return Ok(self.take_message(message?.ok_or_else(stream_closed)?, attached));
            }
            seen = attached.duties.next() => attached.duties.record_seen(seen, self.root, &attached.outbound),
            changed = self.progress.changed() => {
                changed.map_err(|_| worker_stopped())?;
                self.awaits_worker = false;
                let is_lost = matches!(self.progress.borrow().newest, NewestPlan::Unknown(_));
                return Ok((attached.states_lost_journal && !is_lost).then_some(ReconnectReason::Statement));
            }
            seen = next_change(attached.changes.as_ref()) => self.record_change(seen, &mut attached.changes),
            read = BinaryDownload::end(&mut attached.download) => {
                let download = attached.download.take();
                self.updates.record_download(download, read, &attached.outbound);
            }
            () = wait_until(proof_due) => self.updates.keep_proven(),
            changed = self.running.changed() => {
                changed.map_err(|_| worker_stopped())?;
                self.progress_pace.set_running(self.running.borrow_and_update().clone());
            }
            () = wait_until(self.progress_pace.due()) => self.send_progress(&attached.outbound),
            () = wait_until(due) => self.report_observed(attached).await?,
            _ = attached.state_check.tick() => self.check_state(&attached.observed),
            () = sleep_until(attached.renewal) => return Ok(self.renew_early(attached).await),
        }
        Ok(None)
    }

    fn record_change(&mut self, seen: io::Result<()>, changes: &mut Option<NetworkChanges>) {
        match seen {
            Ok(()) => self.pace.record_changed(Instant::now()),
            Err(error) => {
                tracing::warn!(%error, "network watch failed, changes are not reported any more");
                *changes = None;
            }
        }
    }

    /// Reports that the agent's state has become writable, or is not any more, and what a plan of an
    /// operator left or removed.
    fn check_state(&mut self, observed: &LastObserved) {
        space::keep_ballast(&self.root.state());
        self.identity.store_received();
        let is_same = observed.state_failure() == self.find_state_failure()
            && observed.left_behind() == self.list_left_behind();
        if !is_same {
            self.pace.record_changed(Instant::now());
        }
    }

    /// A failure does not end the stream, because the old certificate is still valid.
    async fn renew_early(&mut self, attached: &mut Attached) -> Option<ReconnectReason> {
        match self.renew_certificate(attached).await {
            Ok(again) => Some(again),
            Err(error) => {
                tracing::warn!(%error, "cannot renew certificate, retrying");
                attached.renewal = Instant::now() + RENEWAL_PAUSE;
                None
            }
        }
    }

    /// A plan that arrives meanwhile is sent again after this agent has exited.
    fn may_switch(&self) -> bool {
        self.progress.borrow().is_idle && self.orders.is_empty()
    }

    fn take_message(
        &mut self,
        message: CoordinatorMessage,
        attached: &mut Attached,
    ) -> Option<ReconnectReason> {
        self.updates.keep_proven();
        match message.message {
            Some(coordinator_message::Message::Plan(plan)) => {
                self.orders.put(Order::Plan { plan, answer: attached.outbound.clone() });
                None
            }
            Some(coordinator_message::Message::LoadBalancer(duty)) => {
                attached.duties.take_duty(self.root, &duty, &attached.outbound);
                None
            }
            Some(coordinator_message::Message::Settings(announced)) => {
                self.take_settings(&announced, &attached.outbound)
            }
            Some(coordinator_message::Message::Reboot(request)) => {
                self.orders.put(Order::Reboot(request.boot_id));
                None
            }
            Some(coordinator_message::Message::ForgetJournal(request)) => {
                self.orders.put(Order::ForgetJournal(request.checksum));
                None
            }
            Some(coordinator_message::Message::AgentUpdate(update)) => {
                let authorities = &self.settings.config().authority;
                self.updates.take_update(&update, authorities, &attached.outbound);
                None
            }
            // A message of a later version is ignored.
            None => None,
        }
    }

    fn take_settings(
        &mut self,
        announced: &CoordinatorSettings,
        outbound: &mpsc::Sender<HostMessage>,
    ) -> Option<ReconnectReason> {
        match self.settings.accept(announced) {
            Ok(differs) => differs.then_some(ReconnectReason::Settings),
            Err(error) => {
                tracing::warn!(%error, "settings of the coordinator refused");
                let failure = error.report_as(FailureReason::Refused);
                let refusal = SettingsRefusal { failure: Some(failure) };
                // If the queue is full, the settings are announced again on the next stream.
                let _ = outbound.try_send(HostMessage { message: Some(Message::SettingsRefusal(refusal)) });
                None
            }
        }
    }

    /// A progress that does not fit into the queue is dropped, because the next step is reported
    /// anyway.
    fn send_progress(&mut self, outbound: &mpsc::Sender<HostMessage>) {
        if let Some(progress) = self.progress_pace.take_due(Instant::now()) {
            let _ = outbound.try_send(HostMessage { message: Some(Message::Progress(progress)) });
        }
    }

    /// Reports a step. The end of a clean is reported by a new key, because the former tenant may have
    /// copied the present one, and the host gets the next tenant's plan after the report.
    async fn report_pending(
        &mut self,
        attached: &mut Attached,
        report: StepReport,
    ) -> Result<Option<ReconnectReason>, CallError> {
        let needs_key = self.applied_clean().is_some_and(|clean| self.key_made_for != Some(clean));
        if !needs_key || !self.replace_key(attached).await? {
            return self.report_step(&mut attached.client, report).await.map(|()| None);
        }
        let session = self.caller().open_session(&self.rejection).await?;
        self.report_step(&mut host_client(session.channel), report).await?;
        Ok(Some(ReconnectReason::Certificate))
    }

    async fn report_step(
        &mut self,
        client: &mut HostClient<Channel>,
        report: StepReport,
    ) -> Result<(), CallError> {
        let reported = client.report_step(unary_request(report.clone())).await.map_err(CallError::from);
        match reported {
            Ok(_) => {}
            // The coordinator has a newer plan.
            Err(error) if error.refusal() == Some(Refusal::StalePlan) => {
                tracing::warn!(
                    plan = report.plan_id,
                    step = report.step,
                    "report refused, the coordinator has a newer plan"
                );
            }
            Err(error) => return Err(error),
        }
        self.orders.put(Order::Reported(report));
        self.awaits_worker = true;
        Ok(())
    }

    async fn report_observed(&mut self, attached: &mut Attached) -> Result<(), CallError> {
        self.pace.record_reported(Instant::now());
        let newest = self.progress.borrow().newest.clone();
        let (system, network) = self.observe_host(&newest).await?;
        let report = ObservedReport { network, system: Some(system) };
        if !attached.observed.is_news(&report) {
            return Ok(());
        }
        let sent = attached.client.report_observed(unary_request(report.clone())).await;
        match sent.map_err(CallError::from) {
            Err(error) if error.refusal().is_none() => return Err(error),
            // A refused network report must not end the stream, because the host needs it for
            // plans.
            Err(error) => {
                tracing::warn!(%error, "network report refused");
            }
            Ok(_) => {}
        }
        attached.observed.record_sent(report);
        Ok(())
    }
}

async fn next_change(changes: Option<&NetworkChanges>) -> io::Result<()> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
