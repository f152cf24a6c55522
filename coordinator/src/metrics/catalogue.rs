//! The table of metrics: name, labels, meaning. The exported texts and `docs/reference/metrics.md`
//! are made from its entries.

use strum::IntoStaticStr;

/// The prefix of every name.
pub const PREFIX: &str = "baremetal_coordinator";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// A counter; its exported name ends in `_total`.
    Counter,
    /// A gauge.
    Gauge,
    /// A histogram, exported as `_bucket`, `_sum` and `_count`.
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name without prefix and, for a counter, without `_total`.
    pub name: &'static str,
    pub kind: Kind,
    /// Names of the labels, with their values.
    pub labels: &'static [(&'static str, &'static str)],
    pub meaning: &'static str,
}

impl Entry {
    /// The names of the series that a scrape has.
    pub fn exported(&self) -> Vec<String> {
        let name = format!("{PREFIX}_{}", self.name);
        match self.kind {
            Kind::Counter => vec![name + "_total"],
            Kind::Gauge => vec![name],
            Kind::Histogram => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).to_vec(),
        }
    }
}

const OBJECT: (&str, &str) = ("kind", "kind of the object");
const PLAN: (&str, &str) = ("kind", "`reprovision`, `clean`, `custom`");
const END: (&str, &str) = ("result", "`applied`, `failed`");

pub const HOSTS: Entry = Entry {
    name: "hosts",
    kind: Kind::Gauge,
    labels: &[
        ("state", "allocation state: `Available`, `Allocated`, `Preparing`, `Reprovisioning`, `Unavailable`"),
        ("ready", "status of the condition `Ready`: `True`, `False`, `Unknown`"),
    ],
    meaning: "MachineInventories; each replica tells of all, so take `max`, not `sum`, over replicas",
};
pub const HOSTS_NOT_READY: Entry = Entry {
    name: "hosts_not_ready",
    kind: Kind::Gauge,
    labels: &[("reason", "reason of the condition `Ready` ([conditions.md](conditions.md)), or `Other`")],
    meaning: "MachineInventories that are not ready, by their reason; each replica tells of all",
};
pub const SESSIONS: Entry = Entry {
    name: "sessions",
    kind: Kind::Gauge,
    labels: &[],
    meaning: "streams of installed hosts that this replica serves",
};
pub const LEADER: Entry = Entry {
    name: "leader",
    kind: Kind::Gauge,
    labels: &[],
    meaning: "1 while this replica runs the controllers, else 0",
};
pub const PLANS: Entry = Entry {
    name: "plans",
    kind: Kind::Counter,
    labels: &[PLAN, END, ("reason", "why it failed, a reason of `PlanApplied`; empty when it was applied")],
    meaning: "plans whose end a host reported",
};
pub const PLAN_DURATION: Entry = Entry {
    name: "plan_duration_seconds",
    kind: Kind::Histogram,
    labels: &[PLAN, END],
    meaning: "from the announcement of a plan to the report of its end",
};
pub const STEP_DURATION: Entry = Entry {
    name: "step_duration_seconds",
    kind: Kind::Histogram,
    labels: &[("step", "name of the step, as in `kubectl baremetal logs`"), ("result", "`done`, `failed`")],
    meaning: "from the report of the step before, or the sending of the plan, to the report of this one, \
              where both were by this replica; of `reboot` it includes the boot",
};
pub const REFUSALS: Entry = Entry {
    name: "refusals",
    kind: Kind::Counter,
    labels: &[("reason", "code of the refusal ([events.md](events.md))")],
    meaning: "hosts that were rejected",
};
pub const CONNECTION_FAILURES: Entry = Entry {
    name: "connection_failures",
    kind: Kind::Counter,
    labels: &[(
        "reason",
        "`SourceConnections`, `SourceAnonymous`, `SourceHandshakes`, `SourceRate`, `AnonymousConnections`, \
         `HostConnections`, `SourceRequests`, `SourceRegistrations`, `HostRequests`, `HostCalls`, \
         `MessageTimeout`, `CallTimeout` (limits, [flags.md](flags.md)), `HelloTimeout`, `HandshakeTimeout`, \
         `HandshakeFailed`, `NoRequest`, `Idle`, `Expired`",
    )],
    meaning: "connections that were rejected or closed, requests that were rejected",
};
pub const QUEUE_DEPTH: Entry = Entry {
    name: "queue_depth",
    kind: Kind::Gauge,
    labels: &[OBJECT],
    meaning: "objects that an event triggered and whose reconcile has not begun; of the leader",
};
pub const RECONCILE_DURATION: Entry = Entry {
    name: "reconcile_duration_seconds",
    kind: Kind::Histogram,
    labels: &[OBJECT, ("result", "`done`, `failed`")],
    meaning: "one reconcile, with its requests",
};
pub const RECONCILE_FAILURES: Entry = Entry {
    name: "reconcile_failures",
    kind: Kind::Counter,
    labels: &[OBJECT, ("class", "`conflict`, `transient`, `terminal`")],
    meaning: "reconciles that ended with an error",
};
pub const EVENTS_DROPPED: Entry = Entry {
    name: "events_dropped",
    kind: Kind::Counter,
    labels: &[(
        "reason",
        "`queue_full`: too many waited; `refused`: the API server did not accept it; `unanswered`: the API \
         server failed or gave no answer",
    )],
    meaning: "Events that were not written; the log names them at the level `debug`",
};
pub const UNPARSABLE_OBJECTS: Entry = Entry {
    name: "unparsable_objects",
    kind: Kind::Counter,
    labels: &[OBJECT],
    meaning: "events of objects that do not parse; the log names the object, and its last usable version \
              stays in use",
};
pub const API_REQUESTS: Entry = Entry {
    name: "api_requests",
    kind: Kind::Counter,
    labels: &[
        ("verb", "`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `other`"),
        ("resource", "plural, with `/` and the subresource; `none` for discovery and versions"),
        ("code", "status of the answer; `none` without an answer"),
    ],
    meaning: "requests to the API server of the management cluster; a watch counts when it is opened",
};
pub const AUTHORITY_EXPIRY: Entry = Entry {
    name: "authority_expiry_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    meaning: "when the certificate authority of the coordinator expires, in seconds since 1970",
};

pub const WATCH_OPENED: Entry = Entry {
    name: "watch_opened_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[("resource", "plural of the watched objects")],
    meaning: "when the newest watch of these objects was opened, in seconds since 1970; a watch is opened again \
              every 40 seconds",
};

pub const SECRET_WRITES_LIMITED: Entry = Entry {
    name: "secret_writes_limited",
    kind: Kind::Gauge,
    labels: &[],
    meaning: "1 once the API server has refused this replica a write to a Secret that is not its own; until then \
              the replica serves nothing",
};

/// All metrics, in the order of the page.
pub const ALL: [Entry; 18] = [
    HOSTS,
    HOSTS_NOT_READY,
    SESSIONS,
    LEADER,
    PLANS,
    PLAN_DURATION,
    STEP_DURATION,
    REFUSALS,
    CONNECTION_FAILURES,
    QUEUE_DEPTH,
    RECONCILE_DURATION,
    RECONCILE_FAILURES,
    EVENTS_DROPPED,
    UNPARSABLE_OBJECTS,
    API_REQUESTS,
    WATCH_OPENED,
    AUTHORITY_EXPIRY,
    SECRET_WRITES_LIMITED,
];
