//! The alert rules by the real promtool: their syntax, and their unit tests; the syntax of what the dashboard asks.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use control_plane::{Part, Parts};
use serde_json::{Value, json};

/// Each expression of the dashboard as a recording rule, with what Grafana puts in place of its variables.
fn list_panels() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../coordinator/observability/dashboard.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut rules = vec![];
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap().replace("$job", ".*");
            assert!(!expression.contains('$'), "an unknown variable: {expression}");
            let reference = target["refId"].as_str().unwrap_or_default();
            rules.push(json!({ "record": format!("panel_{}_{reference}", panel["id"]), "expr": expression }));
        }
    }
    rules
}

fn check_rules(rules: &[Value]) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.yaml");
    let groups = json!({ "groups": [{ "name": "panels", "rules": rules }] });
    std::fs::write(&file, groups.to_string()).unwrap();
    run_promtool(&["check", "rules", "--lint=all", "--lint-fatal", file.to_str().unwrap()])
}

/// Runs promtool in the directory of the rules; what it wrote when it fails.
fn run_promtool(arguments: &[&str]) -> Result<(), String> {
    let promtool = Parts::from_environment().unwrap().path(Part::Promtool).unwrap();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../coordinator/observability");
    let output = Command::new(promtool).args(arguments).current_dir(rules).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&text).into_owned()) }
}

#[test]
fn alert_rules_are_well_formed() {
    assert_eq!(run_promtool(&["check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"]), Ok(()));
}

#[test]
fn alerts_fire_when_they_should() {
    assert_eq!(run_promtool(&["test", "rules", "alerts_test.yaml"]), Ok(()));
}

#[test]
fn expressions_of_the_dashboard_are_well_formed() {
    let mut panels = list_panels();
    assert!(panels.len() >= 20, "{panels:?}");
    assert_eq!(check_rules(&panels), Ok(()));
    panels[0]["expr"] = json!("sum by (state (baremetal_coordinator_hosts)");
    assert!(check_rules(&panels).is_err());
}
