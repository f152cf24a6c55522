//! Rejected hosts. They are counted and logged at a bounded rate. A rejection that the author of the
//! registration can correct is an Event of the registration; other rejections are Events of the
//! inventory. A host without an inventory causes no other write to the API.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coordinator_api::conditions::join_text;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::registration::MachineRegistration;
use coordinator_core::inventory::admission::record_refusal;
use jiff::Timestamp;
use kube::{Client, ResourceExt as _};
use proto::refusal::Refusal;
use tokio::time::Instant;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::store::registration_admission;
use crate::telemetry::chain;

/// Shortest time between two log lines with the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// An equal Event is not written again within this time, because a rejected host retries every half
/// minute.
const EVENT_INTERVAL: Duration = Duration::from_mins(10);
/// Shortest time between two Events of a registration or an inventory.
const WRITE_INTERVAL: Duration = Duration::from_mins(1);

/// Metric label of TLS handshakes that fail because CA and certificate do not match. Such a host never
/// reaches a call.
const UNKNOWN_AUTHORITY: &str = "UnknownAuthority";
/// Metric label of calls above the rate of their host.
const HOST_CALLS: &str = "HostCalls";

#[derive(Debug, Default)]
struct LogState {
    last: Option<Instant>,
    suppressed: u64,
}

/// The written Events of a registration or an inventory.
#[derive(Debug)]
struct Written {
    last: Instant,
    /// Time of each Event, by its refusal and detail.
    events: HashMap<(Refusal, String), Instant>,
    suppressed: u64,
}

/// Counts and reports rejected hosts.
pub struct Rejections {
    metrics: Metrics,
    client: Client,
    events: Events,
    log: Mutex<HashMap<&'static str, LogState>>,
    written: Mutex<HashMap<String, Written>>,
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.duration_since(at) < EVENT_INTERVAL
}

impl Rejections {
    pub fn new(client: Client, metrics: Metrics, events: Events) -> Self {
        Self { metrics, events, client, log: Mutex::default(), written: Mutex::default() }
    }

    /// Counts a refusal, and logs it at a bounded rate.
    pub fn record_rejection(&self, refusal: Refusal, detail: &str, next_action: &str) {
        self.count_rejection(refusal.code(), detail, next_action);
    }

    /// Counts a host that does not trust this authority, or has a certificate of another authority.
    pub fn record_untrusted(&self, detail: &str, next_action: &str) {
        self.count_rejection(UNKNOWN_AUTHORITY, detail, next_action);
    }

    /// Counts a rejected or closed connection, and logs it at a bounded rate.
    pub fn record_connection(
        &self,
        reason: &'static str,
        remote: SocketAddr,
        cause: &str,
        next_action: &str,
    ) {
        self.metrics.count_connection(reason);
        if let Some(suppressed) = self.take_log_turn(reason, Instant::now()) {
            tracing::info!(reason, %remote, cause, next_action, suppressed, "connection rejected or closed");
        }
    }

    /// Counts a call above the rate of its host, and logs it at a bounded rate. The span of the log line
    /// names the host.
    pub fn record_limited_call(&self) {
        self.metrics.count_connection(HOST_CALLS);
        if let Some(suppressed) = self.take_log_turn(HOST_CALLS, Instant::now()) {
            let next_action = "none when it is once; else see the log of the agent";
            tracing::info!(reason = HOST_CALLS, next_action, suppressed, "call rejected");
        }
    }

    /// Shows the author of a registration why a host with its token was rejected, by an Event and a
    /// condition, once a minute at most. `latest` reads the registration from the cache.
    pub(super) async fn show_refusal(
        &self,
        latest: impl Fn() -> Arc<MachineRegistration>,
        refusal: Refusal,
        (detail, next_action): (&str, &str),
        now: Timestamp,
    ) {
        let registration = latest();
        let uid = registration.uid().unwrap_or_default();
        let Some(suppressed) = self.take_write_turn(uid, refusal, detail, Instant::now()) else { return };
        let mut note = join_text(detail, next_action);
        let decide = |found: &MachineRegistration| record_refusal(found, refusal, &note, now);
        let recorded = registration_admission::record_refusal(&self.client, latest, decide).await;
        if let Err(error) = recorded {
            tracing::info!(
                error = chain(&error),
                "cannot record a refusal in the status of its registration"
            );
        }
        if suppressed > 0 {
            let _ = write!(note, " ({suppressed} refusals before it were not shown)");
        }
        self.events.publish(&*registration, refusal, &note);
    }

    /// Shows the operator of a host why it was refused, by an Event of the inventory.
    pub(super) fn show_host_refusal(
        &self,
        inventory: &MachineInventory,
        refusal: Refusal,
        (detail, next_action): (&str, &str),
    ) {
        let uid = inventory.uid().unwrap_or_default();
        if self.take_write_turn(uid, refusal, detail, Instant::now()).is_some() {
            self.events.publish(inventory, refusal, &join_text(detail, next_action));
        }
    }

    /// The number of suppressed Events; `None` if the next Event is not due yet.
    fn take_write_turn(&self, uid: String, refusal: Refusal, detail: &str, now: Instant) -> Option<u64> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|_, written| is_recent(written.last, now));
        let key = (refusal, detail.to_owned());
        let Some(known) = written.get_mut(&uid) else {
            let events = HashMap::from([(key, now)]);
            written.insert(uid, Written { last: now, events, suppressed: 0 });
            return Some(0);
        };
        known.events.retain(|_, at| is_recent(*at, now));
        if known.events.contains_key(&key) {
            return None;
        }
        if now.duration_since(known.last) < WRITE_INTERVAL {
            known.suppressed += 1;
            return None;
        }
        known.last = now;
        known.events.insert(key, now);
        Some(std::mem::take(&mut known.suppressed))
    }

    fn count_rejection(&self, reason: &'static str, detail: &str, next_action: &str) {
        self.metrics.count_refused(reason);
        if let Some(suppressed) = self.take_log_turn(reason, Instant::now()) {
            tracing::warn!(reason, detail, next_action, suppressed, "host rejected");
        }
    }

    /// The number of suppressed lines; `None` if the next line is not due yet.
    fn take_log_turn(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let log = log.entry(reason).or_default();
        if log.last.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            log.suppressed += 1;
            return None;
        }
        log.last = Some(now);
        Some(std::mem::take(&mut log.suppressed))
    }
}

#[cfg(test)]
pub(crate) mod log {
    use std::io::{self, Write};
    use std::sync::{Arc, LazyLock, Mutex};

    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;

    /// A second subscriber. If a process has a single one, tracing asks the subscriber of the thread that
    /// comes to a place in the code first, and a thread without one would silence the place for all.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

    /// The log of `work` on this thread.
    pub(crate) fn capture_log(work: impl FnOnce()) -> String {
        LazyLock::force(&SECOND);
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn threads_without_a_log_silence_no_other() {
        let say = || tracing::info!("said");
        let log = log::capture_log(|| {
            std::thread::scope(|scope| drop(scope.spawn(say)));
            say();
        });
        assert_eq!(log.matches("said").count(), 1, "{log}");
    }

    fn rejections(metrics: &Metrics) -> Rejections {
        let client = fake_apiserver::FakeApi::new().client("coordinator");
        let events =
            Events::start(client.clone(), None, Clock::system(), metrics.clone(), &mut JoinSet::new());
        Rejections::new(client, metrics.clone(), events)
    }

    #[tokio::test]
    async fn log_line_has_cause_and_next_action() {
        for &refusal in Refusal::ALL {
            let metrics = Metrics::default();
            let rejections = rejections(&metrics);
            let line =
                log::capture_log(|| rejections.record_rejection(refusal, "m-a", refusal.next_action()));
            for part in [refusal.code(), refusal.next_action(), "m-a"] {
                assert!(line.contains(part), "{part}: {line}");
            }
            let counted = format!("refusals_total{{reason=\"{}\"}} 1", refusal.code());
            assert!(metrics.encode_text().unwrap().contains(&counted), "{refusal:?}");
        }
    }

    #[tokio::test]
    async fn flood_of_rejections_is_one_line_a_second() {
        let (rejections, start) = (rejections(&Metrics::default()), Instant::now());
        let lines: Vec<_> = (0..25)
            .filter_map(|tick| {
                rejections.take_log_turn("BadProof", start + Duration::from_millis(tick * 100))
            })
            .collect();
        assert_eq!(lines, [0, 9, 9]);
        assert_eq!(rejections.take_log_turn("NameTaken", start), Some(0), "another reason");
    }

    #[tokio::test]
    async fn registration_refusals_are_written_once_per_minute() {
        let (rejections, start) = (rejections(&Metrics::default()), Instant::now());
        let take = |uid: &str, refusal, detail: &str, second| {
            let now = start + Duration::from_secs(second);
            rejections.take_write_turn(uid.to_owned(), refusal, detail, now)
        };
        for (name, uid, refusal, detail, second, want) in [
            ("the first", "a", Refusal::NameTaken, "1", 0, Some(0)),
            ("the same", "a", Refusal::NameTaken, "1", 30, None),
            ("another too soon", "a", Refusal::NameTaken, "2", 59, None),
            ("another registration", "b", Refusal::NameTaken, "1", 59, Some(0)),
            ("another", "a", Refusal::BadTemplate, "2", 60, Some(1)),
            ("the same within ten minutes", "a", Refusal::NameTaken, "1", 599, None),
            ("after ten minutes", "a", Refusal::NameTaken, "1", 600, Some(0)),
        ] {
            assert_eq!(take(uid, refusal, detail, second), want, "{name}");
        }
        assert_eq!(take("c", Refusal::NameTaken, "1", 1200), Some(0));
        assert_eq!(rejections.written.lock().unwrap().len(), 1, "the rest is removed");
    }
}
