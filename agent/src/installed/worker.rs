//! Runs the executor beside the stream: a step may take minutes, while the stream stays open,
//! breaks and is opened again.
//!
//! Sending to the [`Mailbox`] of the worker never waits, because the stream must be read and the
//! certificate renewed during a step.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::mem::discriminant;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::plan::Plan;
use proto::v1alpha1::host_message::Message;
use proto::v1alpha1::{self as wire, HostMessage, PlanAcknowledgement, StepReport};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::ground::backoff::Backoff;
use crate::ground::failure::{Failure, describe_error};
use crate::host::system::System;
use crate::plan::executor::{Advance, Executor, NewestPlan, REBOOT_DEADLINE, RefusedPlan};

/// Number of plans that may wait; the oldest one is dropped first.
const PLANS: usize = 16;

/// A message from the stream to the worker.
#[derive(Debug)]
pub enum Order {
    /// A plan has arrived; the answer is sent on the stream that brought it.
    Plan {
        plan: wire::Plan,
        /// The sending side of that stream.
        answer: mpsc::Sender<HostMessage>,
    },
    /// The coordinator has this report.
    Reported(StepReport),
    /// The boot with this id is to end.
    Reboot(String),
    /// The journal that cannot be read, with this checksum, is to be removed.
    ForgetJournal(String),
}

impl Order {
    fn is_plan(&self) -> bool {
        self.generation().is_some()
    }

    /// The generation of a plan; `None` for other orders.
    fn generation(&self) -> Option<u64> {
        match self {
            Self::Plan { plan, .. } => Some(plan.generation),
            Self::Reported(_) | Self::Reboot(_) | Self::ForgetJournal(_) => None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Mailbox {
    orders: Mutex<VecDeque<Order>>,
    news: Notify,
}

impl Mailbox {
    /// Adds an order. A plan replaces a plan of the same generation, whose stream has ended; a
    /// request of an operator replaces an earlier one of its kind.
    pub fn put(&self, order: Order) {
        let mut orders = self.lock();
        if matches!(order, Order::Reboot(_) | Order::ForgetJournal(_)) {
            orders.retain(|other| discriminant(other) != discriminant(&order));
        }
        if let Order::Plan { plan: new, .. } = &order {
            orders.retain(|order| order.generation() != Some(new.generation));
            if orders.iter().filter(|order| order.is_plan()).count() >= PLANS
                && let Some(oldest) = orders.iter().position(Order::is_plan)
            {
                orders.remove(oldest);
            }
        }
        orders.push_back(order);
        drop(orders);
        self.news.notify_one();
    }

    /// Puts an order that could not be carried out before all others, unless another stream has
    /// brought its plan again.
    pub fn put_back(&self, order: Order) {
        let mut orders = self.lock();
        let is_replaced = order
            .generation()
            .is_some_and(|generation| orders.iter().any(|other| other.generation() == Some(generation)));
        if !is_replaced {
            orders.push_front(order);
        }
    }

    /// Takes the next order, and waits for one.
    pub async fn take(&self) -> Order {
        loop {
            if let Some(order) = self.lock().pop_front() {
                return order;
            }
            self.news.notified().await;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Order>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        Order::ForgetJournal(checksum) => executor.forget_journal(&checksum).map_err(|error| {
            tracing::error!(%error, "cannot remove the journal, retrying");
            NotJournaled(Some(Order::ForgetJournal(checksum)))
        }),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(generation: u64) -> Order {
        Order::Plan { plan: wire::Plan { generation, ..wire::Plan::default() }, answer: mpsc::channel(1).0 }
    }

    async fn take_all(mailbox: &Mailbox) -> Vec<Option<u64>> {
        let mut taken = Vec::new();
        while !mailbox.lock().is_empty() {
            taken.push(match mailbox.take().await {
                Order::Plan { plan, .. } => Some(plan.generation),
                Order::Reported(_) | Order::Reboot(_) | Order::ForgetJournal(_) => None,
            });
        }
        taken
    }

    #[tokio::test]
    async fn the_newest_plans_are_kept_in_order() {
        let mailbox = Mailbox::default();
        mailbox.put(Order::Reported(StepReport::default()));
        for generation in 1..=20 {
            mailbox.put(plan(generation));
        }
        let want: Vec<_> = [None].into_iter().chain((5..=20).map(Some)).collect();
        assert_eq!(take_all(&mailbox).await, want);
        for generation in [2, 1, 2] {
            mailbox.put(plan(generation));
        }
        assert_eq!(take_all(&mailbox).await, [Some(1), Some(2)], "another stream brought it again");
        for _ in 0..20 {
            mailbox.put(Order::Reboot("boot-1".to_owned()));
        }
        assert_eq!(take_all(&mailbox).await, [None], "every stream brings it again");
    }

    #[tokio::test]
    async fn orders_put_back_come_first_once() {
        let mailbox = Mailbox::default();
        mailbox.put(Order::Reboot("boot-1".to_owned()));
        mailbox.put_back(plan(1));
        assert_eq!(take_all(&mailbox).await, [Some(1), None]);
        mailbox.put(plan(2));
        mailbox.put(plan(1));
        mailbox.put_back(plan(1));
        assert_eq!(take_all(&mailbox).await, [Some(2), Some(1)], "a later stream has brought it");
    }
}
