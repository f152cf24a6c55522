use std::collections::{BTreeMap, BTreeSet};

use coordinator_api::conditions::Reason;
use serde_json::json;

use super::*;

/// The labels of each series that a scrape has.
fn read_series(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut series = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let labels = rest.split('}').next().unwrap().trim_start_matches('{');
        let names = labels.split("\",").filter_map(|pair| Some(pair.split_once("=\"")?.0.to_owned()));
        let is_labelled = rest.starts_with('{');
        series.entry(name.to_owned()).or_default().extend(names.filter(|name| is_labelled && name != "le"));
    }
    series
}

#[test]
fn what_is_exported_is_what_the_catalogue_says() {
    let metrics = Metrics::default();
    let problem = Problem::of_cause(Reason::NoSpace, String::new());
    metrics.record_host(&inventory("h", "False", "HostUnreachable"), Presence::Exists);
    metrics.set_sessions(1);
    metrics.set_leader(true);
    metrics.set_authority_expiry(Timestamp::UNIX_EPOCH);
    metrics.set_writes_limited(true);
    metrics.count_plan(PlanKind::Clean, Some(&problem), Some(Duration::from_secs(40)));
    metrics.observe_step("reboot", true, Duration::from_secs(40));
    metrics.count_refused("UnknownToken");
    metrics.count_connection("Idle");
    metrics.set_queue_depth("MachineInventory", 3);
    metrics.observe_reconcile("MachineInventory", true, Duration::from_millis(3));
    metrics.count_failure("MachineInventory", Class::Conflict);
    metrics.count_unparsable("MachineInventory");
    metrics.count_request("get", "secrets".to_owned(), Some(http::StatusCode::OK));
    metrics.note_watch("secrets".to_owned(), Timestamp::UNIX_EPOCH);
    let text = metrics.encode_text().unwrap();
    let wanted: BTreeMap<_, BTreeSet<_>> = catalogue::ALL
        .iter()
        .flat_map(|entry| {
            let labels: BTreeSet<_> = entry.labels.iter().map(|label| label.0.to_owned()).collect();
            entry.exported().into_iter().map(move |name| (name, labels.clone()))
        })
        .collect();
    assert_eq!(read_series(&text), wanted, "{text}");
    for line in [
        "plans_total{kind=\"clean\",result=\"failed\",reason=\"NoSpace\"} 1",
        "plan_duration_seconds_bucket{le=\"60.0\",kind=\"clean\",result=\"failed\"} 1",
        "api_requests_total{verb=\"get\",resource=\"secrets\",code=\"200\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn plans_are_in_a_fresh_scrape() {
    let text = Metrics::default().encode_text().unwrap();
    let series: Vec<_> = text.lines().filter_map(|line| line.split_once("_plans_total{")).collect();
    assert_eq!(series.len(), 3 * (1 + failure_reasons().count()), "{text}");
    for wanted in [
        "kind=\"reprovision\",result=\"applied\",reason=\"\"} 0",
        "kind=\"clean\",result=\"failed\",reason=\"NetworkReverted\"} 0",
        "kind=\"custom\",result=\"failed\",reason=\"PlanFailed\"} 0",
    ] {
        assert!(series.iter().any(|(_, rest)| *rest == wanted), "{wanted}: {text}");
    }
}

fn inventory(name: &str, ready: &str, reason: &str) -> MachineInventory {
    serde_json::from_value(json!({
        "apiVersion": "elemental.cattle.io/v1beta1", "kind": "MachineInventory",
        "metadata": { "name": name, "namespace": "fleet" }, "spec": {},
        "status": { "conditions": [{
            "type": "Ready", "status": ready, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] },
    }))
    .unwrap()
}

#[test]
fn hosts_are_counted_by_their_last_state() {
    let metrics = Metrics::default();
    for (host, ready, reason, presence) in [
        ("a", "False", "WaitingForPlan", Presence::Exists),
        ("a", "True", "PlanSuccessfullyApplied", Presence::Exists),
        ("a", "True", "PlanSuccessfullyApplied", Presence::Exists),
        ("b", "Unknown", "HostUnreachable", Presence::Exists),
        ("c", "False", "InventedByAnother", Presence::Exists),
        ("d", "True", "PlanSuccessfullyApplied", Presence::Exists),
        ("d", "True", "PlanSuccessfullyApplied", Presence::Deleted),
        ("e", "True", "PlanSuccessfullyApplied", Presence::Deleted),
    ] {
        metrics.record_host(&inventory(host, ready, reason), presence);
    }
    let text = metrics.encode_text().unwrap();
    let mut found: Vec<_> =
        text.lines().filter(|line| line.contains("_hosts") && !line.starts_with('#')).collect();
    found.sort_unstable();
    let line = |rest: &str| format!("baremetal_coordinator_hosts{rest}");
    let wanted = [
        "_not_ready{reason=\"HostUnreachable\"} 1",
        "_not_ready{reason=\"Other\"} 1",
        "_not_ready{reason=\"WaitingForPlan\"} 0",
        "{state=\"Available\",ready=\"False\"} 1",
        "{state=\"Available\",ready=\"True\"} 1",
        "{state=\"Available\",ready=\"Unknown\"} 1",
    ];
    assert_eq!(found, wanted.map(line));
}
