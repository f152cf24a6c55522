//! Dashboard, alerts and the program name the same metrics and labels, and alerts lead into the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use contract::documents::checkout;
use coordinator::metrics::{Metrics, catalogue};
use regex::Regex;
use serde_json::Value;

/// Labels that Prometheus itself adds.
const OF_SCRAPES: [&str; 4] = ["instance", "job", "namespace", "pod"];

fn read(path: &str) -> String {
    fs::read_to_string(checkout(path)).unwrap()
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_norway::from_str(&read("coordinator/observability/alerts.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The expressions of the dashboard and of the alerts.
fn list_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("coordinator/observability/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    targets
        .filter_map(|target| text(&target["expr"]))
        .chain(variables.iter().filter_map(|variable| text(&variable["definition"])))
        .chain(alerts().iter().map(|alert| text(&alert["expr"]).unwrap()))
        .collect()
}

/// The labels of what a scrape has.
fn list_exported() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut exported = BTreeMap::new();
    for entry in catalogue::ALL {
        let labels = entry.labels.iter().map(|label| label.0);
        let own = (entry.kind == catalogue::Kind::Histogram).then_some("le");
        let labels: BTreeSet<_> = labels.chain(own).chain(OF_SCRAPES).collect();
        exported.extend(entry.exported().into_iter().map(|name| (name, labels.clone())));
    }
    exported
}

/// The metrics of a query, with the labels that they are selected by.
fn list_selectors(query: &str) -> Vec<(String, BTreeSet<String>)> {
    let selector = Regex::new(r"(baremetal_coordinator_\w+)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"(\w+)\s*(?:=~|!~|!=|=)\s*""#).unwrap();
    let found = selector.captures_iter(query).map(|found| {
        let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
        let labels = matcher.captures_iter(matchers).map(|label| label[1].to_owned());
        (found[1].to_owned(), labels.collect())
    });
    found.collect()
}

#[test]
fn queries_name_what_is_exported() {
    let (exported, queries) = (list_exported(), list_queries());
    let grouping = Regex::new(r"\bby \(([^)]*)\)").unwrap();
    let mut named = BTreeSet::new();
    for query in &queries {
        let selectors = list_selectors(query);
        assert!(!selectors.is_empty(), "no metric in {query}");
        let mut known = BTreeSet::new();
        for (name, labels) in selectors {
            let wanted = exported.get(&name).unwrap_or_else(|| panic!("{name} is not exported: {query}"));
            for label in labels {
                assert!(wanted.contains(label.as_str()), "{name} has no label {label}: {query}");
            }
            known.extend(wanted.iter().copied());
            named.insert(name);
        }
        for labels in grouping.captures_iter(query) {
            for label in labels[1].split(',').map(str::trim) {
                assert!(known.contains(label), "no label {label}: {query}");
            }
        }
    }
    let unused: Vec<_> = catalogue::ALL
        .iter()
        .filter(|entry| entry.exported().iter().all(|name| !named.contains(name)))
        .map(|entry| entry.name)
        .collect();
    assert!(unused.is_empty(), "neither dashboard nor alerts show {unused:?}");
}

/// The series that the tests of the alerts have of these metrics.
fn list_tested_series(metrics: &BTreeSet<String>) -> Vec<String> {
    let tests: Value = serde_norway::from_str(&read("coordinator/observability/alerts_test.yaml")).unwrap();
    let tests = tests["tests"].as_array().unwrap();
    let inputs = tests.iter().flat_map(|test| test["input_series"].as_array().unwrap());
    let series = inputs.map(|input| input["series"].as_str().unwrap());
    series.filter(|series| metrics.contains(series.split('{').next().unwrap())).map(str::to_owned).collect()
}

/// An alert asks for the increase of a series, and the first event has to be one.
#[test]
fn series_of_increases_are_in_a_fresh_scrape() {
    let increase = Regex::new(r"increase\((\w+)").unwrap();
    let mut metrics = BTreeSet::new();
    for alert in alerts() {
        let expression = alert["expr"].as_str().unwrap();
        metrics.extend(increase.captures_iter(expression).map(|found| found[1].to_owned()));
    }
    let coordinator = Metrics::default();
    for kind in ["Cluster", "Machine", "MachineInventory"] {
        coordinator.create_unparsable(kind);
    }
    let scrape = coordinator.encode_text().unwrap();
    let of_replica = Regex::new(r#"instance="\w+","#).unwrap();
    let tested = list_tested_series(&metrics);
    for metric in &metrics {
        assert!(tested.iter().any(|series| series.starts_with(metric)), "no test of {metric}");
    }
    for series in tested {
        let wanted = format!("{} 0", of_replica.replace(&series, ""));
        assert!(scrape.lines().any(|line| line == wanted), "{wanted}: {scrape}");
    }
}

/// As the forge makes it of a heading.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn each_alert_leads_to_manual_section() {
    let manual = read("docs/operations.md");
    let headings = manual.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<_> = headings.map(|line| anchor_of(line.trim_start_matches('#').trim())).collect();
    let all = alerts();
    assert!(all.len() > 10);
    let tests = read("coordinator/observability/alerts_test.yaml");
    for alert in &all {
        let name = alert["alert"].as_str().unwrap();
        let annotation = |key: &str| alert["annotations"][key].as_str().unwrap_or_default().to_owned();
        assert!(!annotation("summary").is_empty() && annotation("description").len() > 40, "{name}");
        let runbook = annotation("runbook");
        let section = runbook.strip_prefix("docs/operations.md#").unwrap_or_default();
        assert!(anchors.contains(section), "{name}: no section {runbook}");
        assert!(["critical", "warning", "info"].contains(&alert["labels"]["severity"].as_str().unwrap()));
        assert!(tests.contains(name), "{name} has no test");
    }
}
