//! Events on objects, as `kubectl describe` shows them.
//!
//! A caller never waits for the API server: Events go into a bounded queue, which one task writes. An
//! API server that takes no Events, or takes them slowly, delays nothing else.
//!
//! They are written as `v1` and not as `events.k8s.io/v1`: that refuses an Event with the
//! `lastTimestamp` by which `kubectl get events` is sorted.

mod writer;

use std::time::Duration;

use coordinator_api::conditions::Reason;
use coordinator_api::explain::{EventReason, EventType};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use proto::refusal::Refusal;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::metrics::{DroppedEvent, Metrics};
use writer::Writer;

/// Name of the coordinator on Events.
const REPORTER: &str = "baremetal-coordinator";
/// Longest message: the API server accepts 1 KiB.
const MAX_CHARACTERS: usize = 1000;
/// Events that wait to be written. client-go keeps as many.
const QUEUE: usize = 1000;

/// A reason that an Event can have. The type of the Event follows from the reason, so that both are
/// written once.
pub trait EventCause {
    fn event(self) -> (EventType, &'static str);
}

impl EventCause for EventReason {
    fn event(self) -> (EventType, &'static str) {
        (self.entry().kind, self.as_str())
    }
}

/// The reason of a condition that an operator has to act on.
impl EventCause for Reason {
    fn event(self) -> (EventType, &'static str) {
        (EventType::Warning, self.as_str())
    }
}

impl EventCause for Refusal {
    fn event(self) -> (EventType, &'static str) {
        (EventType::Warning, self.code())
    }
}

/// Queues Events. Clones share the queue.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Item>,
    clock: Clock,
    metrics: Metrics,
}

/// An entry of the queue.
enum Item {
    Event(Box<Happened>),
    /// Answered when everything before it was written or dropped.
    Flush(oneshot::Sender<()>),
}

/// An Event to be written.
struct Happened {
    kind: EventType,
    regarding: ObjectReference,
    namespace: String,
    reason: &'static str,
    message: String,
    now: Timestamp,
}

impl Events {
    /// Starts the task that writes the queued Events. `instance` is the name of this replica, if known.
    pub fn start(
        client: Client,
        instance: impl Into<Option<String>>,
        clock: Clock,
        metrics: Metrics,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let instance = instance.into().unwrap_or_else(|| REPORTER.to_owned());
        let (queue, queued) = mpsc::channel(QUEUE);
        tasks.spawn(Writer::new(client, instance, metrics.clone()).write_queued(queued));
        Self { queue, clock, metrics }
    }

    /// Queues an Event. It is dropped if the queue is full, because it must not stop the work that it
    /// reports.
    pub fn publish(&self, object: &impl Resource<DynamicType = ()>, cause: impl EventCause, note: &str) {
        let (kind, reason) = cause.event();
        let regarding = object.object_ref(&());
        let happened = Happened {
            kind,
            namespace: regarding.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            regarding,
            reason,
            message: note.chars().take(MAX_CHARACTERS).collect(),
            now: self.clock.now(),
        };
        if self.queue.try_send(Item::Event(Box::new(happened))).is_err() {
            tracing::debug!(reason, "too many Events wait to be written, this one is dropped");
            self.metrics.count_dropped_event(DroppedEvent::QueueFull);
        }
    }

    /// Waits until the Events queued so far are written, but no longer than `limit`. Returns false if
    /// some are not.
    pub async fn flush(&self, limit: Duration) -> bool {
        let (written, wait) = oneshot::channel();
        let flushed = async { self.queue.send(Item::Flush(written)).await.is_ok() && wait.await.is_ok() };
        timeout(limit, flushed).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests;
