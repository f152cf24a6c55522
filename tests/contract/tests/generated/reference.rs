//! `docs/reference/`: tables of every name, from the code that defines it.

use std::fmt::Write as _;

use coordinator::metrics::catalogue;
use coordinator_api::conditions::{Reason, Type};
use coordinator_api::explain::EventReason;
use proto::refusal::Refusal;
use serde_json::Value;

use super::committed;
use super::source::{Entry, find_block, find_literal, read_entries, read_source};

const NAMES: &str = "coordinator/api/src/names.rs";
const METAL3_NAMES: &str = "coordinator/api/src/metal3.rs";
const CONDITIONS: &str = "coordinator/api/src/conditions.rs";
const EXPLAIN: &str = "coordinator/api/src/explain";
const REFUSAL: &str = "proto/src/refusal.rs";

pub(super) fn header(title: &str, source: &str) -> String {
    format!("<!-- Generated from {source} by `make generate`. -->\n\n# {title}\n")
}

pub(super) fn table(text: &mut String, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let columns: Vec<_> = columns.iter().map(|&column| column.to_owned()).collect();
    let _ = write!(text, "\n{}{}", line(&columns), line(&vec!["---".to_owned(); columns.len()]));
    for row in rows {
        text.push_str(&line(&row));
    }
}

pub(super) fn code(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn conditions_are_documented() {
    let source = read_source(CONDITIONS);
    let mut text = header("Conditions and reasons", &format!("{CONDITIONS} and {EXPLAIN}"));
    text.push_str("\n`kubectl baremetal why KIND/NAME` shows the entries of an object.\n");
    let types = read_entries(find_block(&source, "pub enum Type {", "\n}"), [',', ',']);
    let row = |entry: &Entry| {
        let kind: Type = entry.name.parse().unwrap_or_else(|_| panic!("{} is no condition", entry.name));
        let problem = if kind.is_bad_when_true() { "`True`" } else { "`False`, `Unknown`" };
        vec![code(&entry.name), entry.doc.clone(), problem.to_owned()]
    };
    table(&mut text, &["condition", "meaning when `True`", "tells of a problem when"], types.iter().map(row));
    text.push_str("\n## Reasons\n");
    let row = |reason: Reason| {
        let entry = reason.explanation();
        vec![code(reason.as_str()), cell(entry.cause), cell(entry.action)]
    };
    table(&mut text, &["reason", "cause", "next action"], Reason::all().map(row));
    committed("docs/reference/conditions.md", &text);
}

/// Escapes bars, because a bar ends the cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const EVENTS_INTRODUCTION: &str = "
Events of the coordinator (`v1`, `reportingComponent: baremetal-coordinator`). Events of one object with one type and reason
within six minutes are one Event with a `count` and the last message; `kubectl get events --sort-by=.lastTimestamp` shows the
newest last. Normal Events are shown once per transition, warnings once per cause.

A warning may also have the reason of a condition ([conditions.md](conditions.md)): on a BaremetalMachine, BareMetalHost or
Metal3Machine the reason of `Ready` when it waits for an operator; on a MachineInventory `OwnerMissing`, and
`PlanSecretMissing`, `PlanSecretInvalid` or `PlanSecretAltered` when the plan was written again with a higher generation; on
a kind of Metal3 without conditions `ApiRequestFailed`. A warning on a MachineRegistration or a MachineInventory may have the
code of a refusal (below): at most one a minute, and once in ten minutes per cause. The condition `HostsRefused` of the
MachineRegistration shows the last refusal for half an hour.
";

const REFUSALS_INTRODUCTION: &str = "
## Refusals

Codes in Events, logs, the metric `baremetal_coordinator_refusals_total` and on the console of the host. `UnknownAuthority`
is in metric and log alone: the TLS handshake failed, because host and coordinator have different CAs; download a new ISO.
";

#[test]
fn events_are_documented() {
    let mut text = header("Events", &format!("{EXPLAIN} and {REFUSAL}"));
    text.push_str(EVENTS_INTRODUCTION);
    let row = |reason: EventReason| {
        let entry = reason.entry();
        let kind: &str = entry.kind.into();
        let names = [entry.objects.to_owned(), kind.to_owned(), code(reason.as_str())];
        [names.to_vec(), [entry.meaning, entry.action].map(cell).to_vec()].concat()
    };
    table(&mut text, &["object", "type", "reason", "meaning", "next action"], EventReason::all().map(row));
    text.push_str(REFUSALS_INTRODUCTION);
    let row =
        |refusal: &Refusal| vec![code(refusal.code()), cell(refusal.cause()), cell(refusal.next_action())];
    table(&mut text, &["code", "cause", "next action"], Refusal::ALL.iter().map(row));
    committed("docs/reference/events.md", &text);
}

#[test]
fn names_are_documented() {
    let source = read_source(NAMES);
    let mut text = header("Annotations, labels, finalizers and Secret keys", NAMES);
    text.push_str("\n\"Ours\" marks what the systems that this project is compatible with do not have.\n");
    for (module, title) in [
        ("annotation", "Annotations"),
        ("label", "Labels"),
        ("finalizer", "Finalizers"),
        ("plan_secret", "Plan Secrets: type, keys and the value of an empty plan"),
        ("registration_secret", "Registration token Secrets: type, key and suffix of the name"),
    ] {
        let _ = write!(text, "\n## {title}\n");
        let entries = read_entries(find_block(&source, &format!("pub mod {module} {{"), "\n}"), [';', ';']);
        let row = |entry: &Entry| {
            let value = find_literal(&entry.declaration, "=").unwrap_or_default();
            vec![code(value), entry.doc.clone()]
        };
        table(&mut text, &["name", "meaning"], entries.iter().map(row));
    }
    text.push_str("\n## On objects of Metal3\n");
    let metal3 = read_source(METAL3_NAMES);
    let entries = read_entries(find_block(&metal3, "pub mod names {", "\n}"), [';', ';']);
    let row = |entry: &Entry| {
        let values = entry.declaration.split('"').skip(1).step_by(2).map(code);
        vec![values.collect::<Vec<_>>().join(", "), entry.doc.clone()]
    };
    table(&mut text, &["name", "meaning"], entries.iter().map(row));
    committed("docs/reference/names.md", &text);
}

#[test]
fn flags_are_documented() {
    const COLUMNS: [&str; 4] = ["flag", "environment", "default", "meaning"];
    const COORDINATOR: &str = "coordinator/src/config.rs";
    const LIMITS: &str = "coordinator/src/base_image/limits.rs";
    const ELECTION: &str = "coordinator/src/lease.rs";
    const EGRESS: &str = "coordinator/src/egress.rs";
    const AGENT: &str = "agent/src/main.rs";
    let source = [COORDINATOR, LIMITS, ELECTION, EGRESS].map(read_source).concat();
    let sources = format!("{COORDINATOR}, {LIMITS}, {ELECTION}, {EGRESS} and {AGENT}");
    let mut text = header("Flags and environment", &sources);
    text.push_str("\n## baremetal-coordinator\n");
    let read = |block| read_entries(find_block(&source, block, "\n}"), [',', ',']);
    let mut flags = read("pub struct Config {");
    flags.retain(|entry| !entry.declaration.contains("command(flatten)"));
    flags.extend(read("pub struct ElectionTimes {"));
    flags.extend(read("pub struct BaseImageLimits {"));
    flags.extend(read("pub struct WorkloadTargets {"));
    flags.extend(read("pub struct ConnectionLimits {"));
    let row = |entry: &Entry| {
        let quoted = |key: &str| find_literal(&entry.declaration, key).map(code);
        let flag = find_literal(&entry.declaration, "long = ").map(str::to_owned);
        let flag = flag.unwrap_or_else(|| entry.name.replace('_', "-"));
        let default = if entry.declaration.contains("names::IMAGE_CATALOG") {
            Some(code(coordinator_api::names::IMAGE_CATALOG))
        } else {
            quoted("default_value = ")
        };
        vec![
            code(&format!("--{flag}")),
            quoted("env = ").unwrap_or_default(),
            default.unwrap_or_default(),
            entry.doc.clone(),
        ]
    };
    table(&mut text, &COLUMNS, flags.iter().map(row));
    text.push_str("\n## baremetal-coordinator fetch-base-images\n");
    table(&mut text, &COLUMNS, read("pub struct FetcherConfig {").iter().map(row));
    text.push_str(
        "\n`RUST_LOG` filters the log (default `info`; syntax of `tracing_subscriber::EnvFilter`). Those of OpenTelemetry: [observability.md](../observability.md#traces).\n\n## baremetal-agent\n\n",
    );
    let source = read_source(AGENT);
    let usage = find_block(&source, "const USAGE: &str = \"\\\n", "\";");
    let environment = "The agent reads no environment, except that `run-plan` reads `CATTLE_AGENT_EXECUTION_PWD`, which the upstream agent sets.";
    let _ = write!(text, "{environment}\n\n```\n{usage}```\n");
    committed("docs/reference/flags.md", &text);
}

#[test]
fn fields_are_documented() {
    let mut text = header("Fields", "coordinator/api");
    text.push_str("\nFields of `spec` and `status`; `[]` is an element of a list, `*` a key of a map. `kubectl explain KIND` shows the same.\n");
    for crd in coordinator_api::crds::all().into_iter().chain(coordinator_api::metal3::crds()) {
        let crd = serde_json::to_value(&crd).unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let _ = write!(
                text,
                "\n## {} ({}/{})\n\n{}\n",
                crd["spec"]["names"]["kind"].as_str().unwrap(),
                crd["spec"]["group"].as_str().unwrap(),
                version["name"].as_str().unwrap(),
                schema["description"].as_str().unwrap(),
            );
            let mut rows = vec![];
            for part in ["spec", "status"] {
                list_fields(part, &schema["properties"][part], &mut rows);
            }
            table(&mut text, &["field", "type", "meaning"], rows);
        }
    }
    committed("docs/reference/fields.md", &text);
}

fn list_fields(path: &str, schema: &Value, rows: &mut Vec<Vec<String>>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        check_description(&path, field);
        rows.push(vec![code(&path), describe_type(field), describe_field(field)]);
        // metav1.Condition is the same everywhere.
        if name != "conditions" {
            list_fields(&path, field, rows);
            list_fields(&format!("{path}[]"), &field["items"], rows);
            list_fields(&format!("{path}.*"), &field["additionalProperties"], rows);
        }
    }
}

/// `kubectl explain` shows the description and no default.
fn check_description(path: &str, field: &Value) {
    let text = field["description"].as_str().unwrap_or_default();
    assert!(!text.is_empty(), "{path} says nothing");
    let default = &field["default"];
    let has_default =
        path.starts_with("spec.") && (default.is_string() || default.is_number() || default.is_boolean());
    assert!(
        !has_default || text.contains("Default: "),
        "{path} does not name its default {default}: {text:?}"
    );
}

fn describe_type(field: &Value) -> String {
    let own = field["type"].as_str().unwrap_or("any");
    match own {
        "array" => format!("list of {}", field["items"]["type"].as_str().unwrap_or("any")),
        "object" if field["additionalProperties"].is_object() => "map".to_owned(),
        _ => own.to_owned(),
    }
}

fn describe_field(field: &Value) -> String {
    let doc = field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
    let values = field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let values: Vec<_> = values.map(code).collect();
    if values.is_empty() { doc } else { format!("{doc} One of {}.", values.join(", ")) }
}

const METRICS: &str = "
Served at `https://POD:8444/metrics` (flag `--diagnostics-address`) in the OpenMetrics text format, to callers with the
ClusterRole `baremetal-metrics-reader` ([observability.md](../observability.md#metrics)). Labels have a bounded set of
values; no label holds a name of an object or host. Dashboard and alerts: [observability.md](../observability.md).
";

const PROBES: &str = "
`/healthz` answers as long as the process runs. `/readyz` answers 200 once the caches are filled and the CA Secret is there,
else 503 with the reason.
";

#[test]
fn metrics_are_documented() {
    let mut text = header("Metrics", "coordinator/src/metrics/catalogue.rs");
    text.push_str(METRICS);
    let row = |metric: &catalogue::Entry| {
        let kind: &str = metric.kind.into();
        let names = metric.exported().iter().map(|name| code(name)).collect::<Vec<_>>().join(", ");
        let labels = metric.labels.iter().map(|(name, values)| format!("{}: {values}", code(name)));
        vec![names, kind.to_owned(), labels.collect::<Vec<_>>().join("; "), metric.meaning.to_owned()]
    };
    table(&mut text, &["name", "type", "labels", "meaning"], catalogue::ALL.iter().map(row));
    text.push_str(PROBES);
    committed("docs/reference/metrics.md", &text);
}
