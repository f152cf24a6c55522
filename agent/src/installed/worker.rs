//! The executor on its own: a step may take minutes, and the line to the
//! coordinator stays open meanwhile, and may be lost and reopened.

use std::convert::Infallible;

use proto::plan::Plan;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{self as wire, Failure, FailureReason, HostMessage, PlanAcknowledgement, StepReport};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::mailbox::{Mailbox, Order};
use crate::ground::backoff::Backoff;
use crate::ground::error::{describe_error, explain, format_line};
use crate::host::system::System;
use crate::plan::executor::{Advance, Executor, NewestPlan, REBOOT_DEADLINE, RefusedPlan};

/// What the line can see of the worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub newest: NewestPlan,
    /// To be reported until [`Order::Reported`].
    pub pending: Option<StepReport>,
    /// No plan runs, and none is about to.
    pub is_idle: bool,
}

/// Runs steps and takes orders between them.
pub async fn run_worker<S: System>(
    mut executor: Executor<S>,
    orders: &Mailbox,
    progress: watch::Sender<Progress>,
) -> Infallible {
    let mut backoff = Backoff::default();
    loop {
        publish_progress(&progress, executor.newest_plan(), Doing::Plan);
        let order = match executor.advance().await {
            Ok(Advance::Idle) => {
                publish_progress(&progress, executor.newest_plan(), Doing::Nothing);
                let order = orders.take().await;
                publish_progress(&progress, executor.newest_plan(), Doing::Plan);
                order
            }
            Ok(Advance::Report(report)) => {
                publish_progress(&progress, executor.newest_plan(), Doing::Reporting(report));
                orders.take().await
            }
            Ok(Advance::Rebooting) => {
                wait_for_reboot(&mut executor, orders).await;
                continue;
            }
            Err(error) => {
                tracing::error!(error = describe_error(&error), "cannot continue the plan, retrying");
                backoff.wait().await;
                continue;
            }
        };
        match carry_out(&mut executor, order).await {
            Ok(()) => backoff.succeeded(),
            Err(NotJournaled(order)) => {
                if let Some(order) = order {
                    orders.put_back(order);
                }
                backoff.wait().await;
            }
        }
    }
}

/// The journal could not be written; the order is to be carried out later,
/// unless the coordinator gives it again by itself.
struct NotJournaled(Option<Order>);

/// Orders are taken while the system goes down, but nothing is run: asking for
/// the reboot again too early would cut off those who are stopping in order.
async fn wait_for_reboot<S: System>(executor: &mut Executor<S>, orders: &Mailbox) {
    let end = sleep(REBOOT_DEADLINE);
    tokio::pin!(end);
    let mut left = Vec::new();
    loop {
        tokio::select! {
            () = &mut end => break,
            order = orders.take() => {
                if let Err(NotJournaled(Some(order))) = carry_out(executor, order).await {
                    left.push(order);
                }
            }
        }
    }
    left.into_iter().rev().for_each(|order| orders.put_back(order));
}

/// What the worker is at.
enum Doing {
    Nothing,
    Plan,
    Reporting(StepReport),
}

fn publish_progress(progress: &watch::Sender<Progress>, newest: NewestPlan, doing: Doing) {
    let is_idle = matches!(doing, Doing::Nothing);
    let pending = match doing {
        Doing::Reporting(report) => Some(report),
        Doing::Nothing | Doing::Plan => None,
    };
    let now = Progress { newest, pending, is_idle };
    progress.send_if_modified(|last| {
        let changed = *last != now;
        *last = now;
        changed
    });
}

async fn carry_out<S: System>(executor: &mut Executor<S>, order: Order) -> Result<(), NotJournaled> {
    match order {
        Order::Plan { plan, answer } => {
            let Some(acknowledgement) = accept_plan(executor, &plan) else {
                return Err(NotJournaled(Some(Order::Plan { plan, answer })));
            };
            let message = HostMessage { message: Some(Message::Acknowledgement(acknowledgement)) };
            // A stream that has ended needs no answer: the plan comes again.
            let _ = timeout(crate::client::tls::CALL_DEADLINE, answer.send(message)).await;
            Ok(())
        }
        Order::Reported(report) => executor.reported(&report).map_err(|error| {
            tracing::error!(
                error = explain(&error),
                "a report is acknowledged but not journaled; it will be sent again"
            );
            NotJournaled(None)
        }),
        Order::Reboot(boot_id) => {
            executor.order_reboot(boot_id);
            Ok(())
        }
    }
}

/// `None` where the plan waits for the journal: a refusal would end it.
fn accept_plan<S: System>(executor: &mut Executor<S>, plan: &wire::Plan) -> Option<PlanAcknowledgement> {
    let (plan_id, generation) = (plan.id.clone(), plan.generation);
    let failure = match Plan::try_from(plan.clone()) {
        Err(error) => Some(Failure {
            reason: FailureReason::Refused.into(),
            message: describe_error(&error),
            next_action: "bring agent and coordinator to the same version".to_owned(),
        }),
        Ok(plan) => match executor.accept(plan) {
            Ok(()) => None,
            Err(RefusedPlan::NotJournaled(error)) => {
                tracing::error!(plan_id, generation, error = explain(&error), "plan not begun, retrying");
                return None;
            }
            Err(error) => Some(error.failure()),
        },
    };
    if let Some(Failure { message, next_action, .. }) = &failure {
        let error = format_line(message, Some(next_action));
        tracing::warn!(plan_id, generation, error, "plan refused");
    }
    Some(PlanAcknowledgement { plan_id, generation, failure })
}
