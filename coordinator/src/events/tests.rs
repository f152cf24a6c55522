use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use coordinator_api::registration::MachineRegistration;
use fake_apiserver::{FakeApi, Matching, Refusal as Refused, Verb};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::client::DeadlineLayer;

/// Longer than any test waits for Events.
const LIMIT: Duration = Duration::from_hours(1);

struct Setting {
    fake: FakeApi,
    events: Events,
    metrics: Metrics,
    seconds: Arc<AtomicI64>,
    _tasks: JoinSet<()>,
}

fn start() -> Setting {
    let (fake, seconds, metrics) = (FakeApi::new(), Arc::<AtomicI64>::default(), Metrics::default());
    let told = seconds.clone();
    let clock = Clock::new(move || Timestamp::from_second(told.load(Ordering::Relaxed)).unwrap());
    let mut tasks = JoinSet::new();
    let client = with_deadlines(fake.client("coordinator"));
    let events = Events::start(client, "replica-1".to_owned(), clock, metrics.clone(), &mut tasks);
    Setting { fake, events, metrics, seconds, _tasks: tasks }
}

/// The client of the coordinator: it has deadlines, and keeps to `Retry-After`.
fn with_deadlines(client: Client) -> Client {
    let send = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = client.clone();
        async move { client.send(request).await.map_err(tower::BoxError::from) }
    });
    Client::new(tower::Layer::layer(&DeadlineLayer::default(), send), "default")
}

fn registration(name: &str) -> MachineRegistration {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineRegistration",
        "metadata": { "name": name, "namespace": "fleet", "uid": "u" }, "spec": {},
    }))
    .unwrap()
}

impl Setting {
    fn queue_at(&self, second: i64, object: &str, note: &str) {
        self.seconds.store(second, Ordering::Relaxed);
        self.events.publish(&registration(object), Refusal::NameTaken, note);
    }

    async fn warn_at(&self, second: i64, object: &str, note: &str) {
        self.queue_at(second, object, note);
        assert!(self.events.flush(LIMIT).await, "written");
    }

    fn read(&self) -> Vec<Value> {
        self.fake.look_at_all("events")
    }

    fn dropped(&self, reason: &str) -> usize {
        let text = self.metrics.encode_text().unwrap();
        let series = format!("baremetal_coordinator_events_dropped_total{{reason=\"{reason}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{series}: {text}")).parse().unwrap()
    }
}

fn facts(event: &Value) -> (i64, &str, &str, &str) {
    let text = |field: &str| event[field].as_str().unwrap();
    (event["count"].as_i64().unwrap(), text("firstTimestamp"), text("lastTimestamp"), text("message"))
}

fn every_event() -> Matching {
    Matching::default().resource("events")
}

#[tokio::test(start_paused = true)]
async fn no_caller_waits_for_a_slow_server() {
    let setting = start();
    setting.fake.faults().delay(every_event(), 1000, Duration::from_secs(9));
    let start = Instant::now();
    for number in 0..50 {
        setting.queue_at(0, &format!("lab-{number}"), "slow");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(setting.events.flush(LIMIT).await);
    assert_eq!(setting.read().len(), 50, "all are written, later");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts() {
    let setting = start();
    setting.fake.faults().delay(every_event(), usize::MAX, LIMIT);
    for number in 0..QUEUE + 7 {
        setting.queue_at(0, &format!("lab-{number}"), "hangs");
    }
    assert_eq!(setting.dropped("queue_full"), 7);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_within_its_bound() {
    let setting = start();
    setting.queue_at(0, "lab", "quick");
    assert!(setting.events.flush(Duration::from_secs(5)).await);
    assert_eq!(setting.read().len(), 1);
    setting.fake.faults().delay(every_event(), usize::MAX, LIMIT);
    setting.queue_at(1, "other", "hangs");
    let start = Instant::now();
    assert!(!setting.events.flush(Duration::from_secs(5)).await);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_delays_no_other() {
    let setting = start();
    setting.fake.faults().fail(every_event(), 1, Refused::Forbidden);
    setting.queue_at(0, "refused", "first");
    setting.warn_at(0, "lab", "second").await;
    let events = setting.read();
    assert_eq!(events.iter().map(|event| facts(event).3).collect::<Vec<_>>(), ["second"]);
    assert_eq!(setting.dropped("refused"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_gets_the_event_later() {
    let setting = start();
    setting.fake.faults().fail(every_event(), 1, Refused::TooManyRequests { retry_after: 20 });
    let start = Instant::now();
    setting.warn_at(0, "lab", "first").await;
    assert_eq!(setting.read().len(), 1);
    assert!(start.elapsed() >= Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_counted() {
    let setting = start();
    setting.fake.faults().fail(every_event(), 3, Refused::Internal);
    setting.queue_at(0, "failed", "first");
    setting.warn_at(0, "lab", "second").await;
    assert_eq!(setting.read().len(), 1, "the second one");
    assert_eq!(setting.dropped("unanswered"), 1);
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
    (0..5).for_each(|_| setting.queue_at(0, "lab", "at once"));
    assert!(setting.events.flush(LIMIT).await);
    let events = setting.read();
    assert_eq!(events.iter().map(|event| facts(event).0).collect::<Vec<_>>(), [5]);
}

#[tokio::test]
async fn series_that_ended_are_forgotten() {
    let fake = FakeApi::new();
    let mut writer = Writer::new(fake.client("coordinator"), "replica-1".to_owned(), Metrics::default());
    for (second, name) in
        (0..10).map(|number| (0, format!("lab-{number}"))).chain([(360, "other".to_owned())])
    {
        let happened = Happened {
            kind: EventType::Warning,
            regarding: registration(&name).object_ref(&()),
            namespace: "fleet".to_owned(),
            reason: "NameTaken",
            message: "first".to_owned(),
            now: Timestamp::from_second(second).unwrap(),
        };
        writer.write_or_drop(&happened).await;
    }
    assert_eq!(writer.series(), 1);
}
