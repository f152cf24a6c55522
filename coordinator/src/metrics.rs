//! Counters with bounded labels.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::store::Class;

/// Labels of a failed reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    kind: &'static str,
    class: &'static str,
}

/// Labels of an object that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unparsable {
    kind: &'static str,
}

/// Labels of a refused host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    reason: &'static str,
}

/// Labels of a connection that was rejected or closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    reason: &'static str,
}

/// All counters of the process.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    failures: Family<Failed, Counter>,
    refusals: Family<Refused, Counter>,
    unparsable: Family<Unparsable, Counter>,
    connections: Family<Failure, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("baremetal_coordinator");
        let failures = Family::default();
        let refusals = Family::default();
        let unparsable = Family::default();
        let connections = Family::default();
        registry.register("reconcile_failures", "Reconciles that failed", failures.clone());
        registry.register("refusals", "Hosts that were refused", refusals.clone());
        registry.register(
            "unparsable_objects",
            "Events of objects that do not parse; the last usable version stays in use",
            unparsable.clone(),
        );
        registry.register(
            "connection_failures",
            "Connections that were rejected, or closed for being of no use",
            connections.clone(),
        );
        Self { registry: Arc::new(registry), failures, refusals, unparsable, connections }
    }
}

impl Metrics {
    /// Counts a reconcile that failed.
    pub fn count_failure(&self, kind: &'static str, class: Class) {
        self.failures.get_or_create(&Failed { kind, class: class.into() }).inc();
    }

    /// Counts an event whose object does not parse.
    pub fn count_unparsable(&self, kind: &'static str) {
        self.unparsable.get_or_create(&Unparsable { kind }).inc();
    }

    /// Counts a refused host; `reason` is one of a few, or the label is unbounded.
    pub fn count_refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Refused { reason }).inc();
    }

    /// Counts a connection that was rejected or closed; `reason` as above.
    pub fn count_connection(&self, reason: &'static str) {
        self.connections.get_or_create(&Failure { reason }).inc();
    }

    /// The text that Prometheus reads.
    ///
    /// # Errors
    /// Never: a `String` takes everything.
    pub fn encode_text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
