//! Runs the executor beside the stream: a step may take minutes, while the stream stays open,
//! breaks and is opened again.

use std::convert::Infallible;

use proto::plan::Plan;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{self as wire, HostMessage, PlanAcknowledgement, StepReport};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::mailbox::{Mailbox, Order};
use crate::ground::backoff::Backoff;
use crate::ground::failure::{Failure, describe_error};
use crate::host::system::System;
use crate::plan::executor::{Advance, Executor, NewestPlan, REBOOT_DEADLINE, RefusedPlan};

/// The worker's state as the stream sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub newest: NewestPlan,
    /// The report to send until [`Order::Reported`].
    pub pending: Option<StepReport>,
    /// No plan runs, and none is about to run.
    pub is_idle: bool,
}

/// Runs steps, and takes orders between them.
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
                tracing::error!(%error, "cannot continue the plan, retrying");
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

/// The journal could not be written. The order is carried out later, unless the coordinator sends
/// it again by itself.
struct NotJournaled(Option<Order>);

/// Takes orders while the system goes down, and runs nothing: an early second request would
/// interrupt units that are stopping in order.
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
            // If the stream has ended, no answer is needed, because the plan arrives again.
            let _ = timeout(crate::client::tls::CALL_DEADLINE, answer.send(message)).await;
            Ok(())
        }
        Order::Reported(report) => executor.reported(&report).map_err(|error| {
            tracing::error!(
                %error,
                "cannot journal an acknowledged report, sending it again"
            );
            NotJournaled(None)
        }),
        Order::Reboot(boot_id) => {
            executor.order_reboot(boot_id);
            Ok(())
        }
    }
}

/// `None` if the plan waits for the journal, because a refusal would end the plan.
fn accept_plan<S: System>(executor: &mut Executor<S>, plan: &wire::Plan) -> Option<PlanAcknowledgement> {
    let (plan_id, generation) = (plan.id.clone(), plan.generation);
    let refused = match Plan::try_from(plan.clone()) {
        Err(error) => {
            Some(Failure::refused(describe_error(&error), "bring agent and coordinator to the same version"))
        }
        Ok(plan) => match executor.accept(plan) {
            Ok(()) => None,
            Err(RefusedPlan::NotJournaled(error)) => {
                tracing::error!(plan_id, generation, %error, "cannot begin plan, retrying");
                return None;
            }
            Err(RefusedPlan::Refused(refusal)) => Some(refusal),
        },
    };
    if let Some(error) = &refused {
        tracing::warn!(plan_id, generation, %error, "plan refused");
    }
    let failure = refused.map(Into::into);
    Some(PlanAcknowledgement { plan_id, generation, failure })
}
