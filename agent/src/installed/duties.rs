//! The load balancer's duty on the stream to the coordinator: a received duty is stored in its
//! file, and the state that the verb `alive` writes is sent.

use std::io;

use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{HostMessage, LoadBalancerDuty, LoadBalancerState};
use tokio::sync::mpsc;

use crate::ground::file_changes::FileChanges;
use crate::ground::paths::Root;
use crate::state::duty;

/// The duty's part of one stream.
pub(super) struct DutyLine {
    changes: Option<FileChanges>,
    /// The state that was sent last.
    reported: Option<LoadBalancerState>,
}

impl DutyLine {
    pub(super) fn open(root: &Root) -> Self {
        let changes = FileChanges::watch_directory(&root.load_balancer()).inspect_err(
            |error| tracing::warn!(%error, "cannot watch the load balancer's state, changes are not reported"),
        );
        Self { changes: changes.ok(), reported: None }
    }

    /// Waits until the state may have changed.
    pub(super) async fn next(&self) -> io::Result<()> {
        match &self.changes {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        }
    }

    /// Called after a change, or after the end of the watch.
    pub(super) fn record_seen(
        &mut self,
        seen: io::Result<()>,
        root: &Root,
        outbound: &mpsc::Sender<HostMessage>,
    ) {
        if let Err(error) = seen {
            tracing::warn!(%error, "load balancer state watch failed, changes are not reported any more");
            self.changes = None;
        }
        self.report_state(root, outbound);
    }

    /// The supervisor reads the duty from its file, and answers by its state.
    pub(super) fn take_duty(
        &mut self,
        root: &Root,
        duty: &LoadBalancerDuty,
        outbound: &mpsc::Sender<HostMessage>,
    ) {
        match duty::keep_duty(root, duty) {
            Ok(()) => tracing::info!(generation = duty.generation, "load balancer duty stored"),
            Err(error) => {
                tracing::warn!(%error, "load balancer duty refused");
                self.send_state(duty::refuse_duty(duty, error), outbound);
            }
        }
    }

    pub(super) fn report_state(&mut self, root: &Root, outbound: &mpsc::Sender<HostMessage>) {
        if let Some(state) = duty::read_state(root).filter(|state| state.generation > 0) {
            self.send_state(state, outbound);
        }
    }

    /// A state that does not fit into the queue is dropped, because the next change is sent again.
    fn send_state(&mut self, state: LoadBalancerState, outbound: &mpsc::Sender<HostMessage>) {
        if self.reported.as_ref() == Some(&state) {
            return;
        }
        let message = HostMessage { message: Some(Message::LoadBalancer(state.clone())) };
        if outbound.try_send(message).is_ok() {
            self.reported = Some(state);
        }
    }
}
