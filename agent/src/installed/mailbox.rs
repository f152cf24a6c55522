//! The mailbox between the stream and the worker. Sending never waits, because a step may take an
//! hour and meanwhile the stream must be read and the certificate renewed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::v1alpha1::{HostMessage, Plan, StepReport};
use tokio::sync::{Notify, mpsc};

/// Number of plans that may wait; the oldest one is dropped first.
const PLANS: usize = 16;

/// A message from the stream to the worker.
#[derive(Debug)]
pub enum Order {
    /// A plan has arrived; the answer is sent on the stream that brought it.
    Plan {
        plan: Plan,
        /// The sending side of that stream.
        answer: mpsc::Sender<HostMessage>,
    },
    /// The coordinator has this report.
    Reported(StepReport),
    /// The boot with this id is to end.
    Reboot(String),
}

impl Order {
    fn is_plan(&self) -> bool {
        self.generation().is_some()
    }

    /// The generation of a plan; `None` for other orders.
    fn generation(&self) -> Option<u64> {
        match self {
            Self::Plan { plan, .. } => Some(plan.generation),
            Self::Reported(_) | Self::Reboot(_) => None,
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
    /// reboot replaces an earlier one.
    pub fn put(&self, order: Order) {
        let mut orders = self.lock();
        if matches!(order, Order::Reboot(_)) {
            orders.retain(|order| !matches!(order, Order::Reboot(_)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(generation: u64) -> Order {
        Order::Plan { plan: Plan { generation, ..Plan::default() }, answer: mpsc::channel(1).0 }
    }

    async fn take_all(mailbox: &Mailbox) -> Vec<Option<u64>> {
        let mut taken = Vec::new();
        while !mailbox.lock().is_empty() {
            taken.push(match mailbox.take().await {
                Order::Plan { plan, .. } => Some(plan.generation),
                Order::Reported(_) | Order::Reboot(_) => None,
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
