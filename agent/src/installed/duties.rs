//! The load balancer's duty on the line to the coordinator: what comes is kept
//! in its file, and the state that `alive` leaves is sent.

use std::io;

use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{HostMessage, LoadBalancerDuty, LoadBalancerState};
use tokio::sync::mpsc;

use crate::ground::error::explain;
use crate::ground::file_changes::FileChanges;
use crate::ground::paths::Root;
use crate::state::duty;

/// One stream's part of it.
pub(super) struct DutyLine {
    changes: Option<FileChanges>,
    /// The state that was sent last.
    reported: Option<LoadBalancerState>,
}

impl DutyLine {
    pub(super) fn open(root: &Root) -> Self {
        let changes = FileChanges::watch_directory(&root.load_balancer()).inspect_err(
            |error| tracing::warn!(%error, "changes of the load balancer's state are not reported"),
        );
        Self { changes: changes.ok(), reported: None }
    }

    /// Ends when the state may have changed.
    pub(super) async fn next(&self) -> io::Result<()> {
        match &self.changes {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        }
    }

    /// After a change, or the end of the watch.
    pub(super) fn note_seen(
        &mut self,
        seen: io::Result<()>,
        root: &Root,
        outbound: &mpsc::Sender<HostMessage>,
    ) {
        if let Err(error) = seen {
            tracing::warn!(%error, "changes of the load balancer's state are not reported any more");
            self.changes = None;
        }
        self.report_state(root, outbound);
    }

    /// What does the duty finds it in its file, and answers by its state.
    pub(super) fn take_duty(
        &mut self,
        root: &Root,
        duty: &LoadBalancerDuty,
        outbound: &mpsc::Sender<HostMessage>,
    ) {
        match duty::keep_duty(root, duty) {
            Ok(()) => tracing::info!(generation = duty.generation, "load balancer's duty kept"),
            Err(error) => {
                tracing::warn!(error = explain(&error), "load balancer's duty refused");
                self.send_state(duty::refuse_duty(duty, &error), outbound);
            }
        }
    }

    pub(super) fn report_state(&mut self, root: &Root, outbound: &mpsc::Sender<HostMessage>) {
        if let Some(state) = duty::read_state(root).filter(|state| state.generation > 0) {
            self.send_state(state, outbound);
        }
    }

    /// A full queue drops it: the next change is sent again.
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
