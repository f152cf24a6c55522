//! Events on objects, as `kubectl describe` shows them.
//!
//! They are written as `v1` and not as `events.k8s.io/v1`: that refuses an Event with the
//! `lastTimestamp` by which `kubectl get events` is sorted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordinator_api::conditions::Reason;
use coordinator_api::explain::{EventReason, EventType};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use proto::refusal::Refusal;
use serde_json::json;

use crate::clock::Clock;
use crate::store::is_not_found;
use crate::telemetry::chain;

/// Name of the coordinator on Events.
const REPORTER: &str = "baremetal-coordinator";
/// A repetition within this time raises the count of the existing Event.
const REPETITION: SignedDuration = SignedDuration::from_mins(6);
/// Shortest time between two searches for series that ended.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_mins(1);
/// Longest message: the API server accepts 1 KiB.
const MAX_CHARACTERS: usize = 1000;

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

/// Writes Events. An Event that is repeated within a few minutes is counted instead of written again.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    client: Client,
    instance: String,
    clock: Clock,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    series: HashMap<SeriesKey, Arc<Series>>,
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

/// The lock is held while the Event is written, so that repetitions are counted one after the other.
type Series = tokio::sync::Mutex<Option<Written>>;

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
    /// `instance` is the name of this replica, if known.
    pub fn new(client: Client, instance: impl Into<Option<String>>, clock: Clock) -> Self {
        let instance = instance.into().unwrap_or_else(|| REPORTER.to_owned());
        Self(Arc::new(Inner { client, instance, clock, known: Mutex::default() }))
    }

    /// Writes an Event. A failure is only logged, because it must not stop the work that the Event
    /// reports.
    pub async fn publish(
        &self,
        object: &impl Resource<DynamicType = ()>,
        cause: impl EventCause,
        note: &str,
    ) {
        let (kind, reason) = cause.event();
        let regarding = object.object_ref(&());
        let happened = Happened {
            kind,
            namespace: regarding.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            regarding,
            reason,
            message: note.chars().take(MAX_CHARACTERS).collect(),
            now: self.0.clock.now(),
        };
        if let Err(error) = self.0.write_event(happened).await {
            tracing::debug!(error = %chain(&error), reason, "cannot write Event");
        }
    }
}

impl Inner {
    async fn write_event(&self, happened: Happened) -> Result<(), kube::Error> {
        let series = self.find_series(&happened);
        let mut written = series.lock().await;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &happened.namespace);
        if let Some(former) = written.as_ref().filter(|former| former.is_open(happened.now)) {
            let now = Written { count: former.count.saturating_add(1), last: happened.now, ..former.clone() };
            let patch = json!({
                "count": now.count,
                "lastTimestamp": Time(now.last),
                "message": happened.message,
            });
            match events.patch(&now.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {
                    *written = Some(now);
                    return Ok(());
                }
                // The API server removes Events after a while.
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let last = happened.now;
        let made = events.create(&PostParams::default(), &self.first_of(happened)).await?;
        *written = made.metadata.name.map(|name| Written { name, count: 1, last });
        Ok(())
    }

    fn find_series(&self, happened: &Happened) -> Arc<Series> {
        let regarding = &happened.regarding;
        let key = SeriesKey {
            kind: happened.kind,
            reason: happened.reason,
            namespace: happened.namespace.clone(),
            regarding: (regarding.kind.clone(), regarding.name.clone(), regarding.uid.clone()),
        };
        let mut known = self.lock_known();
        if happened.now.duration_since(known.swept) >= SWEEP_INTERVAL {
            known.remove_ended(happened.now);
        }
        known.series.entry(key).or_default().clone()
    }

    fn lock_known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_of(&self, happened: Happened) -> Event {
        let Happened { kind, regarding, namespace, reason, message, now } = happened;
        let prefix = regarding.name.as_deref().unwrap_or(REPORTER);
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}.")),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: regarding,
            type_: Some(<&str>::from(kind).to_owned()),
            reason: Some(reason.to_owned()),
            action: Some(reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(EventSource { component: Some(REPORTER.to_owned()), host: None }),
            reporting_component: Some(REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}

impl Known {
    /// Forgets series that ended. A series in use elsewhere is being written, and stays.
    fn remove_ended(&mut self, now: Timestamp) {
        self.swept = now;
        self.series.retain(|_, series| {
            Arc::strong_count(series) > 1
                || series
                    .try_lock()
                    .is_ok_and(|written| written.as_ref().is_some_and(|written| written.is_open(now)))
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use coordinator_api::registration::MachineRegistration;
    use fake_apiserver::{FakeApi, Verb};
    use serde_json::Value;

    use super::*;

    struct Setting {
        fake: FakeApi,
        events: Events,
        seconds: Arc<AtomicI64>,
    }

    fn start() -> Setting {
        let (fake, seconds) = (FakeApi::new(), Arc::<AtomicI64>::default());
        let told = seconds.clone();
        let clock = Clock::new(move || Timestamp::from_second(told.load(Ordering::Relaxed)).unwrap());
        let events = Events::new(fake.client("coordinator"), "replica-1".to_owned(), clock);
        Setting { fake, events, seconds }
    }

    impl Setting {
        async fn warn_at(&self, second: i64, object: &str, note: &str) {
            self.seconds.store(second, Ordering::Relaxed);
            let object: MachineRegistration = serde_json::from_value(json!({
                "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
                "metadata": { "name": object, "namespace": "fleet", "uid": "u" }, "spec": {},
            }))
            .unwrap();
            self.events.publish(&object, Refusal::NameTaken, note).await;
        }

        fn read(&self) -> Vec<Value> {
            self.fake.look_at_all("events")
        }
    }

    fn facts(event: &Value) -> (i64, &str, &str, &str) {
        let text = |field: &str| event[field].as_str().unwrap();
        (event["count"].as_i64().unwrap(), text("firstTimestamp"), text("lastTimestamp"), text("message"))
    }

    #[tokio::test(start_paused = true)]
    async fn repetition_raises_count_and_last_timestamp() {
        let setting = start();
        setting.warn_at(0, "lab", "first").await;
        setting.warn_at(60, "lab", "second").await;
        setting.warn_at(61, "other", "elsewhere").await;
        setting.warn_at(120, "lab", "third").await;
        let events = setting.read();
        let of_lab: Vec<_> =
            events.iter().filter(|event| event["involvedObject"]["name"] == "lab").map(facts).collect();
        assert_eq!(of_lab, [(3, "1970-01-01T00:00:00Z", "1970-01-01T00:02:00Z", "third")]);
        assert_eq!(events.len(), 2);
        let counts = setting.fake.journal().counts();
        assert_eq!(counts.requests, 4, "one request for each");
        assert_eq!(counts.on(Verb::Patch, "events"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_repetition_is_a_new_event() {
        let setting = start();
        for second in [0, 359, 719, 900] {
            setting.warn_at(second, "lab", "again").await;
        }
        let mut counts: Vec<_> = setting.read().iter().map(|event| facts(event).0).collect();
        counts.sort_unstable();
        assert_eq!(counts, [2, 2], "the second ends the first series at 6 min");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_was_removed_is_written_anew() {
        let setting = start();
        setting.warn_at(0, "lab", "first").await;
        let name = setting.read()[0]["metadata"]["name"].as_str().unwrap().to_owned();
        setting.fake.take_out("events", "fleet", &name);
        setting.warn_at(10, "lab", "second").await;
        setting.warn_at(20, "lab", "third").await;
        let events = setting.read();
        let found: Vec<_> = events.iter().map(facts).collect();
        assert_eq!(found, [(2, "1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z", "third")]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_repetitions_are_one_event() {
        let setting = start();
        futures::future::join_all((0..5).map(|_| setting.warn_at(0, "lab", "at once"))).await;
        let events = setting.read();
        assert_eq!(events.iter().map(|event| facts(event).0).collect::<Vec<_>>(), [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn series_that_ended_are_forgotten() {
        let setting = start();
        for number in 0..10 {
            setting.warn_at(0, &format!("lab-{number}"), "first").await;
        }
        setting.warn_at(360, "other", "later").await;
        assert_eq!(setting.events.0.lock_known().series.len(), 1);
    }
}
