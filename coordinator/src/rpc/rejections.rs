//! Rejected hosts: counted, logged at a bounded rate, and shown as Events of
//! the registration where its author can do something about it. A host without
//! an inventory has no object of its own, and causes no other API write.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coordinator_api::registration::{MachineRegistration, MachineRegistrationStatus};
use coordinator_core::inventory;
use kube::{Client, ResourceExt as _};
use proto::refusal::Refusal;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::store::status::write_status;
use crate::telemetry::chain;

/// At most one log line in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// An equal Event is not written again for so long: a rejected host retries
/// every half minute.
const EVENT_INTERVAL: Duration = Duration::from_mins(10);
/// Different Events of one registration and refusal that are remembered: a
/// template can render many names. More are not written.
const EVENTS: usize = 16;

/// Metric label of TLS handshakes that fail because CA and certificate do not
/// match; they never reach a call.
const UNKNOWN_AUTHORITY: &str = "UnknownAuthority";

/// UID of the registration, and the refusal.
type EventScope = (String, Refusal);

#[derive(Debug, Default)]
struct LogState {
    last: Option<Instant>,
    suppressed: u64,
}

/// Counts and reports rejected hosts.
pub struct Rejections {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    events: Events,
    /// By reason.
    log: Mutex<HashMap<&'static str, LogState>>,
    /// When each Event was written, by its detail.
    recent_events: Mutex<HashMap<EventScope, HashMap<String, Instant>>>,
}

impl Rejections {
    /// Counts in `metrics`.
    #[must_use]
    pub fn new(client: Client, clock: Clock, metrics: Metrics) -> Self {
        Self {
            metrics,
            events: Events::new(client.clone(), None),
            client,
            clock,
            log: Mutex::default(),
            recent_events: Mutex::default(),
        }
    }

    /// Counts a refusal, and logs it at a bounded rate.
    pub fn record_rejection(&self, refusal: Refusal, detail: &str, next_action: &str) {
        self.count_rejection(refusal.code(), detail, next_action);
    }

    /// Counts a host that does not trust this authority, or has a certificate
    /// of another one.
    pub fn record_untrusted(&self, detail: &str, next_action: &str) {
        self.count_rejection(UNKNOWN_AUTHORITY, detail, next_action);
    }

    /// Counts a connection that was rejected or closed, and logs it at a bounded
    /// rate.
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

    /// Writes why a host with the token of `registration` was rejected.
    pub(super) async fn write_event(
        &self,
        registration: &MachineRegistration,
        refusal: Refusal,
        detail: &str,
        next_action: &str,
    ) {
        let scope = (registration.uid().unwrap_or_default(), refusal);
        if self.is_new_event(scope, detail, Instant::now()) {
            let note = format!("{detail}: {next_action}");
            self.events.warning(registration, refusal.code(), &note).await;
            let recorded = inventory::record_refusal(registration, refusal, &note, self.clock.now());
            self.write_status(registration, recorded).await;
        }
    }

    /// A host has registered: no other one waits for a correction, as far as is
    /// known. No request where none was refused.
    pub(super) async fn clear_refusal(&self, registration: &MachineRegistration) {
        self.write_status(registration, inventory::clear_refusal(registration, self.clock.now())).await;
    }

    /// Like an Event: one that cannot be written stops nothing.
    async fn write_status(
        &self,
        registration: &MachineRegistration,
        status: Option<MachineRegistrationStatus>,
    ) {
        let Some(status) = status else { return };
        if let Err(error) = write_status(&self.client, registration, &status).await {
            tracing::debug!(error = chain(&error), "the refusal of a host could not be recorded");
        }
    }

    fn is_new_event(&self, scope: EventScope, detail: &str, now: Instant) -> bool {
        let mut recent = self.recent_events.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, written| {
            written.retain(|_, at| now.duration_since(*at) < EVENT_INTERVAL);
            !written.is_empty()
        });
        let written = recent.entry(scope).or_default();
        if written.contains_key(detail) || written.len() >= EVENTS {
            return false;
        }
        written.insert(detail.to_owned(), now);
        true
    }

    fn count_rejection(&self, reason: &'static str, detail: &str, next_action: &str) {
        self.metrics.count_refused(reason);
        if let Some(suppressed) = self.take_log_turn(reason, Instant::now()) {
            tracing::warn!(reason, detail, next_action, suppressed, "host rejected");
        }
    }

    /// The number of suppressed lines, when it is time for the next one.
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
    use std::sync::{Arc, Mutex};

    /// What `work` logs on this thread.
    pub(crate) fn capture_log(work: impl FnOnce()) -> String {
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
    use super::*;

    fn rejections(metrics: &Metrics) -> Rejections {
        let client = fake_apiserver::FakeApi::new().client("coordinator");
        Rejections::new(client, Clock::new(jiff::Timestamp::now), metrics.clone())
    }

    #[tokio::test]
    async fn log_line_has_cause_and_next_action() {
        for refusal in Refusal::ALL {
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
    async fn one_registration_does_not_suppress_another() {
        let (rejections, start) = (rejections(&Metrics::default()), Instant::now());
        let is_new = |uid: &str, refusal, detail: usize, minute| {
            let now = start + Duration::from_mins(minute);
            rejections.is_new_event((uid.to_owned(), refusal), &detail.to_string(), now)
        };
        assert_eq!((0..999).filter(|detail| is_new("a", Refusal::NameTaken, *detail, 0)).count(), EVENTS);
        assert!(is_new("a", Refusal::BadTemplate, 0, 0), "another refusal");
        assert!(is_new("b", Refusal::NameTaken, 0, 0), "another registration");
        assert!(!is_new("b", Refusal::NameTaken, 0, 9), "the same");
        assert!(is_new("b", Refusal::NameTaken, 0, 10), "after a while");
        assert_eq!(rejections.recent_events.lock().unwrap().len(), 1, "the rest is removed");
    }
}
