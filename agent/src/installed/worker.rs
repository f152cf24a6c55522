//! The executor on its own: a step may take minutes, and the line to the
//! coordinator stays open meanwhile, and may be lost and reopened.

use proto::plan::Plan;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{self as wire, Failure, FailureReason, HostMessage, PlanAcknowledgement, StepReport};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::client::backoff::Backoff;
use crate::error::{describe_error, explain, format_line};
use crate::host::system::System;
use crate::plan::executor::{Advance, Executor, NewestPlan, REBOOT_DEADLINE};

/// What the link sends to the worker.
#[derive(Debug)]
pub enum Order {
    /// A plan came; the answer goes back on the stream that brought it.
    Plan {
        /// As it came.
        plan: wire::Plan,
        /// The stream's other direction.
        answer: mpsc::Sender<HostMessage>,
    },
    /// The coordinator has this report.
    Reported(StepReport),
}

/// What the line can see of the worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// For Hello.
    pub newest: NewestPlan,
    /// To be reported until [`Order::Reported`].
    pub pending: Option<StepReport>,
}

/// Runs steps and takes orders between them, until the link ends.
pub async fn run_worker<S: System>(
    mut executor: Executor<S>,
    mut orders: mpsc::Receiver<Order>,
    progress: watch::Sender<Progress>,
) {
    let mut backoff = Backoff::default();
    loop {
        publish_progress(&progress, executor.newest_plan(), None);
        let order = match executor.advance().await {
            Ok(Advance::Idle) => orders.recv().await,
            Ok(Advance::Report(report)) => {
                publish_progress(&progress, executor.newest_plan(), Some(report));
                orders.recv().await
            }
            Ok(Advance::Rebooting) => {
                if wait_for_reboot(&mut executor, &mut orders).await {
                    continue;
                }
                None
            }
            Err(error) => {
                tracing::error!(error = describe_error(&error), "cannot continue the plan, retrying");
                backoff.wait().await;
                continue;
            }
        };
        backoff.succeeded();
        let Some(order) = order else { return };
        carry_out(&mut executor, order).await;
    }
}

/// Orders are taken while the system goes down, but nothing is run: asking for
/// the reboot again too early would cut off those who are stopping in order.
async fn wait_for_reboot<S: System>(executor: &mut Executor<S>, orders: &mut mpsc::Receiver<Order>) -> bool {
    let end = sleep(REBOOT_DEADLINE);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return true,
            order = orders.recv() => match order {
                Some(order) => carry_out(executor, order).await,
                None => return false,
            },
        }
    }
}

fn publish_progress(progress: &watch::Sender<Progress>, newest: NewestPlan, pending: Option<StepReport>) {
    let now = Progress { newest, pending };
    progress.send_if_modified(|last| {
        let changed = *last != now;
        *last = now;
        changed
    });
}

async fn carry_out<S: System>(executor: &mut Executor<S>, order: Order) {
    match order {
        Order::Plan { plan, answer } => {
            let acknowledgement = accept_plan(executor, plan);
            let message = HostMessage { message: Some(Message::Acknowledgement(acknowledgement)) };
            // A stream that has ended needs no answer: the plan comes again.
            let _ = timeout(crate::client::tls::CALL_DEADLINE, answer.send(message)).await;
        }
        Order::Reported(report) => {
            if let Err(error) = executor.reported(&report) {
                tracing::error!(
                    error = explain(&error),
                    "a report is acknowledged but not journaled; it will be sent again"
                );
            }
        }
    }
}

fn accept_plan<S: System>(executor: &mut Executor<S>, plan: wire::Plan) -> PlanAcknowledgement {
    let (plan_id, generation) = (plan.id.clone(), plan.generation);
    let failure = match Plan::try_from(plan) {
        Err(error) => Some(Failure {
            reason: FailureReason::Refused.into(),
            message: describe_error(&error),
            next_action: "bring agent and coordinator to the same version".to_owned(),
        }),
        Ok(plan) => executor.accept(plan).err().map(|error| error.failure()),
    };
    if let Some(Failure { message, next_action, .. }) = &failure {
        let error = format_line(message, Some(next_action));
        tracing::warn!(plan_id, generation, error, "plan refused");
    }
    PlanAcknowledgement { plan_id, generation, failure }
}
