//! The metrics for Prometheus: counts and times with bounded labels, recorded where they happen.

pub mod catalogue;
mod hosts;

use std::array;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use coordinator_api::inventory::MachineInventory;
use coordinator_core::plan::failure_reasons;
use coordinator_core::problem::Problem;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use proto::plan::Kind as PlanKind;
use strum::VariantNames as _;

use crate::key::Presence;
use crate::store::Class;
use catalogue::Entry;

/// Buckets of the duration of requests, in seconds.
const REQUEST_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Buckets of the duration of steps on hosts, in seconds.
const HOST_BUCKETS: [f64; 11] = [1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0];

type Label = (&'static str, Cow<'static, str>);
type Value = Cow<'static, str>;

/// A metric with `N` labels.
#[derive(Clone, Debug)]
struct Labelled<const N: usize, M> {
    names: [&'static str; N],
    family: Family<[Label; N], M>,
}

impl<const N: usize, M: Clone> Labelled<N, M> {
    /// The metric of these label values. They come from a small set, so that the label is bounded.
    fn of(&self, values: [impl Into<Value>; N]) -> M {
        let mut names = self.names.into_iter();
        self.family.get_or_create_owned(&values.map(|value| (names.next().unwrap_or_default(), value.into())))
    }
}

/// The cause for which an Event was not written.
#[derive(Clone, Copy, Debug, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum DroppedEvent {
    QueueFull,
    Refused,
    Unanswered,
}

/// All metrics of the process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        let inner = Inner::default();
        inner.create_plan_series();
        for cause in DroppedEvent::VARIANTS {
            inner.events_dropped.of([*cause]);
        }
        Self(Arc::new(inner))
    }
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    known_hosts: hosts::Hosts,
    hosts: Labelled<2, Gauge>,
    hosts_not_ready: Labelled<1, Gauge>,
    sessions: Gauge,
    leader: Gauge,
    plans: Labelled<3, Counter>,
    plan_duration: Labelled<2, Histogram>,
    step_duration: Labelled<2, Histogram>,
    refusals: Labelled<1, Counter>,
    connection_failures: Labelled<1, Counter>,
    queue_depth: Labelled<1, Gauge>,
    reconcile_duration: Labelled<2, Histogram>,
    reconcile_failures: Labelled<2, Counter>,
    events_dropped: Labelled<1, Counter>,
    unparsable_objects: Labelled<1, Counter>,
    api_requests: Labelled<3, Counter>,
    watch_opened: Labelled<1, Gauge>,
    authority_expiry: Gauge,
    secret_writes_limited: Gauge,
}

impl Default for Inner {
    fn default() -> Self {
        let mut all = Registration(Registry::with_prefix(catalogue::PREFIX));
        Self {
            known_hosts: hosts::Hosts::default(),
            hosts: all.labelled(&catalogue::HOSTS, Gauge::default),
            hosts_not_ready: all.labelled(&catalogue::HOSTS_NOT_READY, Gauge::default),
            sessions: all.plain(&catalogue::SESSIONS),
            leader: all.plain(&catalogue::LEADER),
            plans: all.labelled(&catalogue::PLANS, Counter::default),
            plan_duration: all.labelled(&catalogue::PLAN_DURATION, || Histogram::new(HOST_BUCKETS)),
            step_duration: all.labelled(&catalogue::STEP_DURATION, || Histogram::new(HOST_BUCKETS)),
            refusals: all.labelled(&catalogue::REFUSALS, Counter::default),
            connection_failures: all.labelled(&catalogue::CONNECTION_FAILURES, Counter::default),
            queue_depth: all.labelled(&catalogue::QUEUE_DEPTH, Gauge::default),
            reconcile_duration: all
                .labelled(&catalogue::RECONCILE_DURATION, || Histogram::new(REQUEST_BUCKETS)),
            reconcile_failures: all.labelled(&catalogue::RECONCILE_FAILURES, Counter::default),
            events_dropped: all.labelled(&catalogue::EVENTS_DROPPED, Counter::default),
            unparsable_objects: all.labelled(&catalogue::UNPARSABLE_OBJECTS, Counter::default),
            api_requests: all.labelled(&catalogue::API_REQUESTS, Counter::default),
            watch_opened: all.labelled(&catalogue::WATCH_OPENED, Gauge::default),
            authority_expiry: all.plain(&catalogue::AUTHORITY_EXPIRY),
            secret_writes_limited: all.plain(&catalogue::SECRET_WRITES_LIMITED),
            registry: all.0,
        }
    }
}

impl Inner {
    /// Alerts ask for the increase of these counters, and the first plan is an increase only if an
    /// earlier scrape had the 0.
    fn create_plan_series(&self) {
        for kind in [PlanKind::Reprovision, PlanKind::Clean, PlanKind::Custom].map(PlanKind::as_str) {
            self.plans.of([kind, "applied", ""]);
            for reason in failure_reasons() {
                self.plans.of([kind, "failed", reason.as_str()]);
            }
        }
    }
}

/// Registers each metric under its name and text in the catalogue.
struct Registration(Registry);

impl Registration {
    fn plain<M: Metric + Clone + Default>(&mut self, entry: &Entry) -> M {
        let metric = M::default();
        self.0.register(entry.name, entry.meaning, metric.clone());
        metric
    }

    fn labelled<const N: usize, M>(&mut self, entry: &Entry, make: fn() -> M) -> Labelled<N, M>
    where
        Family<[Label; N], M>: Metric + Clone,
    {
        let family = Family::new_with_constructor(make);
        self.0.register(entry.name, entry.meaning, family.clone());
        Labelled {
            names: array::from_fn(|index| entry.labels.get(index).map_or("", |label| label.0)),
            family,
        }
    }
}

impl Metrics {
    /// Counts a host by the facts of its inventory.
    pub fn record_host(&self, inventory: &MachineInventory, presence: Presence) {
        let Some(change) = self.0.known_hosts.record_change(inventory, presence) else { return };
        for (host, step) in [(change.old, -1), (change.new, 1)] {
            let Some(host) = host else { continue };
            self.0.hosts.of([host.state, host.ready]).inc_by(step);
            if let Some(reason) = host.reason {
                self.0.hosts_not_ready.of([reason]).inc_by(step);
            }
        }
    }

    /// Sets the number of streams of this replica.
    pub fn set_sessions(&self, count: usize) {
        self.0.sessions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Shows whether this replica runs the controllers.
    pub fn set_leader(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    /// Sets the time when the authority expires.
    /// Tells whether the API server refused a write that is not the coordinator's own.
    pub fn set_writes_limited(&self, are: bool) {
        self.0.secret_writes_limited.set(i64::from(are));
    }

    pub fn set_authority_expiry(&self, at: Timestamp) {
        self.0.authority_expiry.set(at.as_second());
    }

    /// Counts the end of a plan; `problem` is the cause of a failure.
    pub fn count_plan(&self, kind: PlanKind, problem: Option<&Problem>, took: Option<Duration>) {
        let result = if problem.is_some() { "failed" } else { "applied" };
        let reason = problem.map_or("", |problem| problem.reason.as_str());
        self.0.plans.of([kind.as_str(), result, reason]).inc();
        if let Some(took) = took {
            self.0.plan_duration.of([kind.as_str(), result]).observe(took.as_secs_f64());
        }
    }

    /// Records the duration of a step on a host.
    pub fn observe_step(&self, step: &'static str, is_done: bool, took: Duration) {
        let result = if is_done { "done" } else { "failed" };
        self.0.step_duration.of([step, result]).observe(took.as_secs_f64());
    }

    /// Counts a refused host; `reason` comes from a small set, so that the label is bounded.
    pub fn count_refused(&self, reason: &'static str) {
        self.0.refusals.of([reason]).inc();
    }

    /// Counts a connection that was rejected or closed; `reason` comes from a small set.
    pub fn count_connection(&self, reason: &'static str) {
        self.0.connection_failures.of([reason]).inc();
    }

    /// Sets the number of objects of a kind that wait for their reconcile.
    pub fn set_queue_depth(&self, kind: &'static str, depth: usize) {
        self.0.queue_depth.of([kind]).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    pub fn observe_reconcile(&self, kind: &'static str, is_done: bool, took: Duration) {
        let result = if is_done { "done" } else { "failed" };
        self.0.reconcile_duration.of([kind, result]).observe(took.as_secs_f64());
    }

    pub fn count_failure(&self, kind: &'static str, class: Class) {
        self.0.reconcile_failures.of([kind, class.into()]).inc();
    }

    /// Counts an Event that was not written.
    pub fn count_dropped_event(&self, cause: DroppedEvent) {
        self.0.events_dropped.of([<&'static str>::from(cause)]).inc();
    }

    /// Shows a watched kind before any object does not parse.
    pub fn create_unparsable(&self, kind: &'static str) {
        self.0.unparsable_objects.of([kind]);
    }

    /// Counts an event whose object does not parse.
    pub fn count_unparsable(&self, kind: &'static str) {
        self.0.unparsable_objects.of([kind]).inc();
    }

    /// Counts a request to the API server; `code` is `None` without an answer.
    pub fn count_request(&self, verb: &'static str, resource: String, code: Option<http::StatusCode>) {
        let code = code.map_or(Cow::Borrowed("none"), |code| Cow::Owned(code.as_str().to_owned()));
        self.0.api_requests.of([Cow::Borrowed(verb), Cow::Owned(resource), code]).inc();
    }

    /// Records that a watch of `resource` was opened.
    pub fn note_watch(&self, resource: String, at: Timestamp) {
        self.0.watch_opened.of([resource]).set(at.as_second());
    }

    pub fn encode_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
