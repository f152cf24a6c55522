//! The task that writes queued Events, one after the other.

use std::collections::HashMap;
use std::time::Duration;

use coordinator_api::explain::EventType;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::sleep;

use super::{Happened, Item, REPORTER};
use crate::metrics::{DroppedEvent, Metrics};
use crate::store::{Class, classify, is_not_found};
use crate::telemetry::chain;

/// A repetition within this time raises the count of the existing Event.
const REPETITION: SignedDuration = SignedDuration::from_mins(6);
/// Shortest time between two searches for series that ended.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_mins(1);
/// Attempts to write an Event. More would keep the newer Events from being written.
const ATTEMPTS: u32 = 3;
/// Pause before the next attempt. A `Retry-After` of the API server is kept by the client.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes Events. An Event that is repeated within a few minutes is counted instead of written again.
pub(super) struct Writer {
    client: Client,
    instance: String,
    metrics: Metrics,
    /// The last Event of each series.
    series: HashMap<SeriesKey, Written>,
    swept: Timestamp,
}

/// Events with an equal key are repetitions; their messages may differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeriesKey {
    kind: EventType,
    reason: &'static str,
    namespace: String,
    regarding: (Option<String>, Option<String>, Option<String>),
}

impl SeriesKey {
    fn of(happened: &Happened) -> Self {
        let regarding = &happened.regarding;
        Self {
            kind: happened.kind,
            reason: happened.reason,
            namespace: happened.namespace.clone(),
            regarding: (regarding.kind.clone(), regarding.name.clone(), regarding.uid.clone()),
        }
    }
}

/// An Event that the API server has.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Written {
    fn is_open(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) < REPETITION
    }
}

impl Writer {
    pub(super) fn new(client: Client, instance: String, metrics: Metrics) -> Self {
        Self { client, instance, metrics, series: HashMap::new(), swept: Timestamp::default() }
    }

    /// Writes until the queue is closed.
    pub(super) async fn write_queued(mut self, mut queue: Receiver<Item>) {
        while let Some(item) = queue.recv().await {
            match item {
                Item::Event(happened) => self.write_or_drop(&happened).await,
                // The caller may have stopped waiting.
                Item::Flush(written) => drop(written.send(())),
            }
        }
    }

    /// Tries to write an Event a few times. An Event that cannot be written is counted.
    pub(super) async fn write_or_drop(&mut self, happened: &Happened) {
        for attempt in 1.. {
            let Err(error) = self.write_event(happened).await else { return };
            let is_transient = classify(&error) == Class::Transient;
            if is_transient && attempt < ATTEMPTS {
                sleep(PAUSE).await;
                continue;
            }
            tracing::debug!(error = %chain(&error), reason = happened.reason, "cannot write Event");
            let cause = if is_transient { DroppedEvent::Unanswered } else { DroppedEvent::Refused };
            return self.metrics.count_dropped_event(cause);
        }
    }

    async fn write_event(&mut self, happened: &Happened) -> Result<(), kube::Error> {
        self.remove_ended(happened.now);
        let key = SeriesKey::of(happened);
        let events: Api<Event> = Api::namespaced(self.client.clone(), &happened.namespace);
        if let Some(former) = self.series.get_mut(&key).filter(|former| former.is_open(happened.now)) {
            let count = former.count.saturating_add(1);
            let patch = json!({
                "count": count,
                "lastTimestamp": Time(happened.now),
                "message": happened.message,
            });
            match events.patch(&former.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {
                    (former.count, former.last) = (count, happened.now);
                    return Ok(());
                }
                // The API server removes Events after a while.
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let made = events.create(&PostParams::default(), &self.first_of(happened)).await?;
        if let Some(name) = made.metadata.name {
            self.series.insert(key, Written { name, count: 1, last: happened.now });
        }
        Ok(())
    }

    fn first_of(&self, happened: &Happened) -> Event {
        let Happened { kind, regarding, namespace, reason, message, now } = happened;
        let (prefix, now) = (regarding.name.as_deref().unwrap_or(REPORTER), Time(*now));
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}.")),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: regarding.clone(),
            type_: Some(<&str>::from(*kind).to_owned()),
            reason: Some((*reason).to_owned()),
            action: Some((*reason).to_owned()),
            message: Some(message.clone()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource { component: Some(REPORTER.to_owned()), host: None }),
            reporting_component: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }

    /// Forgets series that ended.
    fn remove_ended(&mut self, now: Timestamp) {
        if now.duration_since(self.swept) >= SWEEP_INTERVAL {
            self.swept = now;
            self.series.retain(|_, written| written.is_open(now));
        }
    }

    #[cfg(test)]
    pub(super) fn series(&self) -> usize {
        self.series.len()
    }
}
