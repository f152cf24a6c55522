//! The trace of a machine, as a collector receives it from two replicas, and the log
//! lines that belong to it.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::collector::{Collector, Received};
use e2e::host::Simulated;
use e2e::lifecycle::Lifecycle;
use serde_json::Value;
use tokio::time::timeout;

use crate::common::Setup;

/// Spans of one trace, in the order of their beginnings.
type Trace = Vec<Received>;

#[tokio::test(flavor = "multi_thread")]
async fn traces_follow_machines_from_claim_to_running() {
    let collector = Collector::start().await.unwrap();
    let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = [
        collector.environment(),
        text("OTEL_BSP_SCHEDULE_DELAY", "200"),
        text("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        text("LOGGING_FORMAT", "json"),
    ];
    let setup = Setup::start_configured(&environment).await;
    let mut host = Simulated::new(setup.environment.workload.clone(), 1).unwrap();
    let lifecycle = Lifecycle::new(&setup.environment, &mut host, setup.progress.clone());
    setup.check(lifecycle.run(&setup.base).await);
    // The host became a node twice, and was cleaned between.
    let has_both = |spans: &[Received]| {
        let traces = group_spans(spans);
        traces.values().filter(|trace| is_whole(trace)).count() == 2
            && traces.values().any(|trace| find_span(trace, "clean").is_some())
    };
    let spans = timeout(Duration::from_mins(3), collector.wait_for(has_both)).await.unwrap();
    let traces = group_spans(&spans);
    assert_eq!(traces.len(), 2, "{traces:#?}");
    for (id, trace) in &traces {
        check_trace(trace);
        let lines = lines_of(&setup.environment.logs(), id);
        for message in ["host claimed", "plan assigned", "sending plan", "plan ended", "machine provisioned"]
        {
            assert!(lines.iter().any(|line| line.contains(message)), "{message}, of {id}: {lines:#?}");
        }
    }
}

fn group_spans(spans: &[Received]) -> BTreeMap<String, Trace> {
    let mut traces = BTreeMap::<String, Trace>::new();
    for received in spans {
        let bytes = received.span.trace_id.clone().try_into().unwrap();
        let id = format!("{:032x}", u128::from_be_bytes(bytes));
        traces.entry(id).or_default().push(received.clone());
    }
    for trace in traces.values_mut() {
        trace.sort_by_key(|received| received.span.start_time_unix_nano);
    }
    traces
}

fn find_span<'a>(trace: &'a [Received], name: &str) -> Option<&'a Received> {
    trace.iter().find(|received| received.span.name == name)
}

/// Steps of the plan that make a host a node.
const STEPS: [&str; 3] = ["write-node-identity", "write-seed", "upgrade-system"];

/// The machine is Running, and what it waited for arrived.
fn is_whole(trace: &Trace) -> bool {
    ["machine", "claim", "reprovision"].iter().chain(&STEPS).all(|name| find_span(trace, name).is_some())
}

fn check_trace(trace: &Trace) {
    let machine = find_span(trace, "machine").unwrap();
    let plan = find_span(trace, "reprovision").unwrap();
    assert_eq!(machine.service, "baremetal-coordinator");
    assert!(machine.span.parent_span_id.is_empty());
    for name in ["claim", "reprovision"] {
        assert_eq!(find_span(trace, name).unwrap().span.parent_span_id, machine.span.span_id, "{name}");
    }
    let steps: Vec<_> =
        trace.iter().filter(|received| received.span.parent_span_id == plan.span.span_id).collect();
    for name in STEPS {
        assert!(steps.iter().any(|step| step.span.name == name), "{name}: {trace:#?}");
    }
    for step in steps {
        assert!(plan.span.start_time_unix_nano <= step.span.start_time_unix_nano, "{step:#?} of {plan:#?}");
        assert!(step.span.end_time_unix_nano <= plan.span.end_time_unix_nano, "{step:#?} of {plan:#?}");
        assert_eq!(step.attribute("baremetal.host"), machine.attribute("baremetal.host"));
    }
    assert!(plan.span.end_time_unix_nano <= machine.span.end_time_unix_nano);
    assert!(trace.iter().all(|received| received.span.status.as_ref().is_none_or(|status| status.code == 0)));
}

/// Lines of the coordinators' logs with that `trace_id`, in the line or its span.
fn lines_of(logs: &str, trace: &str) -> Vec<String> {
    let objects = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let belongs = |line: &Value| line["fields"]["trace_id"] == *trace || line["span"]["trace_id"] == *trace;
    objects.filter(belongs).map(|line| line["fields"]["message"].to_string()).collect()
}
